package command

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"github.com/dray-dev/dray/executor/process"
)

func TestMain(m *testing.M) {
	testscript.Main(leakChecked{m}, map[string]func(){
		"dray": func() {
			completionTimeout = time.Minute // the machine of a test may be busy
			if os.Getenv(wholeDaemon) != "" {
				os.Exit(Execute(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
			}
			a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr, newService: newFakeDaemon}
			os.Exit(execute(context.Background(), os.Args[1:], a))
		},
		supervisor: func() {
			if err := process.Supervise(3); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		},
	})
}

// leakChecked fails if a test leaves a goroutine running.
type leakChecked struct{ m *testing.M }

func (l leakChecked) Run() int {
	code := l.m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// TestScripts runs the program as users do. Each script has its own state directory and daemon.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:   "testdata/scripts",
		Setup: setUpScript,
		Cmds:  scriptCommands,
	})
}
