// Command dray-agent is the part of dray inside a container: executor/process behind internal/wire.
//
// The daemon starts it by an engine exec as uid 0 and talks to it over its stdin and stdout. It
// starts what the daemon asks for, as the user that the daemon names, under a supervisor for each
// call, and ends everything when the daemon goes away or falls silent. It uses nothing of the
// image: no shell, no ps, no kill. It links the standard library and golang.org/x/sys only, is static,
// and has less than 3.5 MB.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/dray-dev/dray/executor/files"
	"github.com/dray-dev/dray/executor/process"
)

// version is set by the linker.
var version = "dev"

const usage = "usage: dray-agent serve | supervise | files ROOT | environ | version (started by the dray daemon, not by hand)"

// agentThreads is how many threads an agent has from its beginning: about as many as it uses under
// load.
const agentThreads = 8

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "dray-agent:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "serve":
		process.ReserveThreads(agentThreads)
		return serve(polled(0, "stdin"), polled(1, "stdout"))
	case len(args) == 1 && args[0] == "supervise":
		return process.Supervise(3)
	case len(args) == 2 && args[0] == "files":
		return files.Serve(args[1], os.Stdin, os.Stdout)
	case len(args) == 1 && args[0] == "environ":
		return printEnviron(os.Stdout)
	case len(args) == 1 && args[0] == "version":
		_, err := fmt.Println(version)
		return err
	default:
		return errors.New(usage)
	}
}
