//go:build !mcpfixtures

package mcp

import sdk "github.com/modelcontextprotocol/go-sdk/mcp"

// addFixtures is for the conformance suite, whose fixtures no other build has.
func addFixtures(_ *sdk.Server, tasks taskStore) taskStore { return tasks }

func fixtureOptions(*sdk.ServerOptions) {}
