// Package transfer moves files between the host and a container, and decides what may be moved
// where. How they are read and written is the matter of dray.Files on both sides: Collect there,
// Place here. This room has the policy between the two.
//
//	Fetch      container -> sandbox root    the tool sync, POST /v1/sync, `dray sync`
//	Declared   container -> sandbox root    what a tool or a call declares, when the call ends; what the host sees through a mount is named
//	Push       host -> container            the tool sync with the direction to_container
//
// # What may be taken
//
// Sources of a container are absolute and clean paths beneath its workspace folder, a bind mount,
// /tmp, or Config.Sources, and regular files and folders alone. They are opened beneath the nearest
// of these folders as the user that tools run as, so that no link leads out of it. Sources on the
// host lie beneath the sandbox root, a folder of host.roots, or the call's workspace where that is
// trusted.
//
// # Where it lands
//
// With a destination at <root>/<destination>/<base name>. Without one a path that a configured
// mapping leads to beneath the root lands at that path; else an explicit sync lands at <root>/<base
// name> and a declared output at <root>/<invocation>/<its path below the workspace folder, or its
// absolute path>. Sources that would land on one path, or one within what another brings, are
// refused.
//
// # What may be written
//
// Names that would run code on the host are refused, and those of Config.Deny. The name at the
// destination counts, at any depth, whatever its case.
//
// # All or nothing
//
// One refusal ends a sync with nothing written, unless refusals are to be skipped; so does a limit,
// the deadline or a full disk. A transfer that breaks off is taken up again where it stopped,
// twice, as long as no file has changed meanwhile.
package transfer
