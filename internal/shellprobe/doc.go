// Package shellprobe gets the environment that a user's shell sets up, by the same command line as
// the devcontainer reference (userEnvProbe).
//
// The agent links this package.
package shellprobe
