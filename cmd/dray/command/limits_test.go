package command

import (
	"testing"

	"github.com/dray-dev/dray/config"
	"github.com/dray-dev/dray/internal/wire"
)

// EX-13: what may be configured is what one connection to an agent carries, so that no call that
// was let in finds out there that it is one too many.
func TestPerContainerFitsOneConnection(t *testing.T) {
	if config.MaxPerContainer > wire.MaxStreams {
		t.Errorf("limits.per_container may be %d, and a connection carries %d", config.MaxPerContainer,
			wire.MaxStreams)
	}
}
