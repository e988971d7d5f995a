package python

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/dray-dev/dray/executor/process/processtest"
)

func TestMain(m *testing.M) {
	processtest.Main()
	goleak.VerifyTestMain(m)
}
