// Package mcp serves dray's tools over the Model Context Protocol, beside HTTP and with the same
// rules: a tool call is a call of internal/call, with an id, an audit record, limits and a route.
//
// # Revisions
//
// One address serves two kinds of client (MC-01). A request of the revision 2026-07-28 or later has
// no session and stands by itself; closing it cancels its call. A client of an earlier revision has
// a session, and cancels with notifications/cancelled. The session ids are signed, so a client
// whose session is gone, because the daemon was restarted or the session was idle, is served as if
// it still had one: its next request works.
//
// # Results
//
// Clients differ in what they show to a model: some only the text of a result, some only its
// structured content. So both have the output of the tool (MC-03). The text begins with a line that
// says how the call ended, how long it took, its id and what was left out. A result is an error
// (isError) if the tool did not run to its end: it was refused, not started, killed or timed out. A
// program that ends with another exit code than 0 is not.
//
// A call that takes longer than its client waits is left running with wait_ms: the result then has
// the id of the call, with which the tool read_output waits for it and reads it. A client that
// declares the extension for tasks gets a task instead (MC-04).
package mcp
