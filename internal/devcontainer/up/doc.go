// Package up runs `devcontainer up` of the reference CLI for a workspace that is trusted: its log
// becomes progress, its failures are recorded, and the files that it leaves are private.
package up
