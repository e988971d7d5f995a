// Command dray is the daemon and the command line of dray. See the package command beneath it.
package main

import (
	"context"
	"os"

	"github.com/dray-dev/dray/cmd/dray/command"
)

func main() {
	os.Exit(command.Execute(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
