// Package agentbin holds the agent programs that `make build` puts into the daemon, one for each
// architecture of a container.
package agentbin

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"sync"

	"github.com/dray-dev/dray"
)

// The directory is committed with a README alone, so that the package compiles before the agents
// are built.
//
//go:embed bin
var bin embed.FS

// Agent is the program for one architecture.
type Agent struct {
	Arch string
	Data []byte
	// Digest is the start of the program's SHA-256 in hexadecimal; it names the file, so that versions
	// never meet under one name.
	Digest string
}

var cache sync.Map // arch -> Agent

// For gives the agent for a Linux architecture as the engine names it ("amd64", "arm64").
func For(arch string) (Agent, error) {
	if a, ok := cache.Load(arch); ok {
		return a.(Agent), nil //nolint:forcetypeassert,errcheck // nothing else is stored
	}
	data, err := bin.ReadFile("bin/dray-agent-linux-" + arch)
	if err != nil {
		return Agent{}, dray.Errorf(dray.CodeHelperMissing,
			"this build of dray has no agent for linux/%s", arch).
			WithHint("build dray with `make build`, which puts the agents for amd64 and arm64 inside")
	}
	sum := sha256.Sum256(data)
	a := Agent{Arch: arch, Data: data, Digest: hex.EncodeToString(sum[:])[:12]}
	cache.Store(arch, a)
	return a, nil
}
