// Command dray-agent is the part of dray inside a container: executor/process behind internal/wire.
//
// The daemon starts it by an engine exec as uid 0 and connects to it by a unix socket, or by its
// stdin and stdout. It starts processes for the daemon, each as the requested user and under a
// supervisor, and ends everything when the connection ends or its lease expires. It needs no
// program of the image. It is static, links only the standard library and golang.org/x/sys, and has
// less than 3.5 MB.
package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/dray-dev/dray/executor/files"
	"github.com/dray-dev/dray/executor/process"
)

// version is set by the linker.
var version = "dev"

const usage = "usage: dray-agent serve | supervise | files ROOT | hold | environ | version " +
	"(the dray daemon starts it)"

// agentThreads is the number of threads that the agent creates at its start: about as many as it
// uses under load. It cannot create more when a tool has filled the container's limit of processes.
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
		process.RestartWithTimerSlack(process.AgentTimerSlack, "GOMAXPROCS=2")
		process.ReserveThreads(agentThreads)
		return serve(nonblocking(0, "stdin"), nonblocking(1, "stdout"))
	case len(args) == 1 && args[0] == "supervise":
		return process.Supervise(3)
	case len(args) == 2 && args[0] == "files":
		return files.Serve(args[1], os.Stdin, os.Stdout)
	case len(args) == 1 && args[0] == "hold":
		time.Sleep(connectTimeout)
		return nil
	case len(args) == 1 && args[0] == "environ":
		return printEnviron(os.Stdout)
	case len(args) == 1 && args[0] == "version":
		_, err := fmt.Println(version)
		return err
	default:
		return errors.New(usage)
	}
}
