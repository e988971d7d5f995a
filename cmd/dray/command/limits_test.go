package command

import (
	"testing"

	"github.com/dray-dev/dray/config"
	"github.com/dray-dev/dray/internal/wire"
)

// One connection to an agent carries all calls that limits.per_container admits (EX-13).
func TestPerContainerFitsOneConnection(t *testing.T) {
	if config.MaxPerContainer > wire.MaxStreams {
		t.Errorf("limits.per_container may be %d, and a connection carries %d", config.MaxPerContainer,
			wire.MaxStreams)
	}
}
