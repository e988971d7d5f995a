// Command dray is the daemon and the command line of dray. See the package command beneath it.
package main

import (
	"context"
	"os"
	"runtime/debug"

	"github.com/dray-dev/dray/cmd/dray/command"
	"github.com/dray-dev/dray/executor/process"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		process.RestartWithTimerSlack(process.DaemonTimerSlack)
		if os.Getenv("GOGC") == "" {
			// Many calls at once allocate in bursts. More than 200 is faster, and a flood of output makes
			// the daemon grow by over 64 MiB then.
			debug.SetGCPercent(200)
		}
	}
	os.Exit(command.Execute(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
