//go:build !mcpfixtures

package mcp

import sdk "github.com/modelcontextprotocol/go-sdk/mcp"

// addFixtures is for the conformance suite, whose fixtures no other build has.
func addFixtures(*sdk.Server) {}

func fixtureOptions(*sdk.ServerOptions) {}
