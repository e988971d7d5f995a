// Package dray has the nouns, the two interfaces and the closed list of codes of dray, a daemon
// that runs tools for software agents.
//
// An agent framework calls a tool. dray decides whether the tool runs on the host or in the
// project's devcontainer, maps paths in both directions, streams and bounds the output, stops what
// exceeds its limits, and records every call in an audit log.
//
// # The nouns
//
// An [Invocation] is a call as its caller sent it; it does not change. A [Tool] is data and a run
// function. A [Call] is an invocation with its tool, its route and its stdin on the way through the
// layers. A [Result] is how it ended, and a [Record] is both together, as callers and the audit log
// see them. An [Environment] is where processes run. A [Sink] receives the events of a call.
//
// # One request, down once and up once
//
//	internal/api, mcp     decode                                    response
//	internal/call         validate, find the tool, route            the record, once
//	internal/admission    admit, or busy
//	audit                 commit the begin record                   commit the end record
//	internal/call         accepted                                  result with its route, redacted
//	executor              deadline
//	internal/policy       allowed, denied, or approved by a human
//	internal/workspace    the container runs, its agent answers     container metadata
//	internal/admission    acquire a slot                            release it
//	internal/tool         map the input                             map the output, fetch declared outputs
//	executor              start, stdin, capture                     reason of the end
//	executor/host         executor/agent ── internal/wire ── cmd/dray-agent
//	executor/process      supervisor, process                       exit, survivors
//
// Everything between internal/call and the environment is an [Executor] around an [Executor], as
// handlers are in net/http. File tools and syncs use [Environment] too: [Files] reads a [Tree] of
// files on one side and writes it on the other.
//
//	executor/files        files beneath one root, on the host or through a helper in the container
//	executor/files/tree   the stream format of a tree, and its validating reader
//	executor/files/stage  all-or-nothing writes of a tree
//	internal/transfer     which files may be copied, where to, and how a sync is resumed
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
//	audit                                 dray, migrations, audit/proof
//	audit/proof                           none
//	executor/...                          never audit, internal/api, internal/call, internal/mcp,
//	                                      internal/policy, internal/router, internal/tool,
//	                                      internal/workspace
//	internal/devcontainer/...             dray; it talks to no engine
//	internal/devcontainer/compose         internal/devcontainer/helper, internal/lexical
//	executor/agent                        never executor/docker: it knows no engine
//	executor/docker                       executor/agent, internal/devcontainer; never internal/wire
//	internal/workspace                    internal/devcontainer, executor/agent, executor/process; engine
//	                                      and host by interfaces that it declares
//	internal/router                       dray, internal/lexical; it is pure
//	internal/tool                         never internal/api, internal/call, internal/mcp
//	internal/call                         never internal/api, internal/mcp
//	internal/mcp                          internal/call, internal/policy/approval; never internal/api,
//	                                      internal/router, internal/tool, internal/workspace
//	internal/mcp/upstream                 dray, internal/devcontainer/helper, internal/lexical
//	internal/policy                       dray, internal/lexical, pathmapper
//	internal/policy/approval              dray, audit, executor, internal/call, internal/policy,
//	                                      internal/redact, internal/lexical
//	internal/textview                     nothing of ours
//	internal/strictjson                   dray, internal/lexical
//	internal/validate                     dray, internal/lexical
//	internal/redact                       dray, internal/lexical
//	internal/python                       dray, executor, internal/...; never internal/api,
//	                                      internal/call, internal/mcp, internal/tool
//	internal/python/assets                dray, internal/linux, internal/python/pep508
//	internal/python/pep508                nothing of ours
//	internal/transfer                     dray, executor/files/..., internal/lexical, pathmapper
//	internal/admission                    dray, executor
//	internal/client                       dray; it knows the daemon by its HTTP interface alone
//	cmd/dray/command                      everything; the only place that wires
//
// A test checks this table and has the reason of each rule. Third-party packages have one owner
// each: viper in config, cobra in cmd/dray/command, the SQLite driver in audit, the engine client
// in executor/docker, the SDK of MCP in internal/mcp, Cedar and the shell parser in
// internal/policy.
package dray
