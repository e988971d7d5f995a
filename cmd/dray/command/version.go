package command

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/dray-dev/dray/internal/wire"
)

// version and commit are set by the build (-ldflags -X); a build without them takes what the Go command recorded.
var version, commit string

func newVersion(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Print the version", Args: noArgs}
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(context.Context, []string) error { return a.runVersion(thisBuild()) })
	return cmd
}

// build is what this program was made from.
type build struct {
	Version string `json:"version"`
	// Commit is empty where the program was not built in a checkout; Modified says that the checkout had changes.
	Commit   string `json:"commit"`
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	// AgentProtocol is the newest version of what daemon and agent speak.
	AgentProtocol int `json:"agent_protocol"`
}

func thisBuild() build {
	b := build{Version: version, Commit: commit, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, AgentProtocol: wire.MaxProtocol}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version = cmp.Or(b.Version, info.Main.Version)
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = cmp.Or(b.Commit, s.Value)
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

func (a *app) runVersion(b build) error {
	if a.json {
		return a.printJSON(b)
	}
	from := cmp.Or(b.Commit, "unknown")
	if b.Modified {
		from += " and changes"
	}
	_, err := fmt.Fprintf(a.out, "dray %s\ncommit %s\n%s %s\nagent protocol %d\n", b.Version, from, b.Go, b.Platform, b.AgentProtocol)
	return outputError(err)
}
