// Package dray holds the nouns, the two interfaces and the closed list of error codes of the dray
// tool-execution daemon.
//
// An agent framework calls a tool. dray decides whether it runs on the host or inside the project's
// devcontainer, maps paths both ways, streams and bounds the output, ends what overstays, and
// writes every call into an audit trail.
//
// # The nouns
//
// An [Invocation] is one call of a tool as the caller sent it; it never changes. A [Call] is that
// invocation on its way down, with its stdin stream and with what the layers have decided so far. A
// [Result] is how it ended. An [Environment] is a place where processes run. A [Sink] hears what
// happens meanwhile.
//
// # One request, down once and up once
//
//	internal/api          HTTP
//	internal/call         decode, validate and route; live events
//	internal/admission    let in, or busy
//	audit                 begin is committed                        end is committed
//	internal/router       which environment, and why
//	executor              deadline
//	internal/workspace    the container runs, its agent answers     container metadata
//	internal/admission    its turn                                  the next one's turn
//	internal/tool         input mapped                              output mapped back
//	internal/transfer                                               declared outputs come home
//	internal/tool         what to start
//	executor              Start, stdin, capture                     reason of the end
//	executor/host         executor/container ── internal/wire ── cmd/dray-agent
//	executor/process      supervisor, process                       exit, nothing left behind
//
// Everything between the server and the environment is an [Executor] around an [Executor], as
// handlers are in net/http. File tools and syncs stand on [Environment] too, so that there is no
// second way in: [Files] gives a [Tree] of what is on one side, and places one on the other.
//
//	executor/files        files beneath one root, here or by a helper in the container
//	executor/files/tree   a tree as bytes, and a reader that believes none of them
//	executor/files/stage  a tree comes as a whole, or not at all
//	internal/transfer     which files may be moved, where they land, going on after a loss
//
// # Who may import whom
//
//	dray, migrations, internal/lexical,
//	internal/linux, internal/pack,
//	internal/shellprobe                   nothing of ours
//	config                                internal/lexical
//	pathmapper                            dray
//	executor/process, internal/wire       dray, internal/linux, internal/pack; the agent links them
//	executor/files/...                    the same, and each other; the agent links it too
//	audit                                 dray, migrations
//	executor/...                          never internal/api, internal/call, internal/router, internal/tool
//	internal/devcontainer                 dray; it talks to no engine
//	internal/workspace                    joins internal/devcontainer with executor/...
//	internal/router                       dray, internal/lexical; it is pure
//	internal/tool                         never internal/api, internal/call
//	internal/call                         never internal/api
//	internal/strictjson                   dray, internal/lexical
//	internal/transfer                     dray, executor/files/..., internal/lexical, pathmapper
//	internal/admission                    dray, executor
//	internal/client                       dray; it knows the daemon by its HTTP interface alone
//	cmd/dray/command                      everything; the only place that wires
//
// A test keeps this table and names the reason of each ban. Third-party packages have one owner
// each: viper in config, cobra in cmd/dray/command, the SQLite driver in audit, the engine client
// in executor/container.
package dray
