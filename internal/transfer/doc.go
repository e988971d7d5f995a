// Package transfer copies files between the host and a container. It has the policy: which files
// may be copied, and where to. dray.Files reads and writes them on both sides.
//
//	Fetch           container -> sandbox root    the tool sync, POST /v1/sync, `dray sync`
//	FetchDeclared   container -> sandbox root    the declared outputs of a call
//	Push            host -> container            the tool sync with the direction to_container
//
// # Sources
//
// Sources in a container are absolute, clean paths beneath its workspace folder, a bind mount,
// /tmp, or Config.Sources, and only regular files and directories. They are opened beneath the
// nearest of these directories as the user that tools run as, so that no symlink leads out of it.
// Sources on the host are beneath the sandbox root, a directory of host.roots, or the call's
// trusted workspace.
//
// # Targets
//
// With a destination the target is <root>/<destination>/<base name>. Otherwise it is the path
// beneath the root to which a configured mapping leads; else <root>/<base name> for a sync, and
// <root>/<invocation>/<path> for a declared output, with the path relative to the workspace folder,
// or its absolute path. Sources with the same target, or with one inside another, are refused.
//
// # Denied names
//
// Names that would run code on the host are refused, and those of Config.Deny. The target's name
// counts, at any depth, whatever its case.
//
// # All or nothing
//
// One refusal ends a sync with nothing written, unless refusals are skipped; so does a limit, the
// timeout or a full disk. An interrupted transfer is resumed at the same byte, at most twice, if no
// file has changed.
package transfer
