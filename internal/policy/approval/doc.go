// Package approval lets a human decide about the calls that policy asks about (SE-04, MC-05).
//
// [Gate] is a layer of each call, after its begin record and before its slot. It evaluates the
// policies about the call. If they ask, the call needs an approval of exactly this call: of a keyed
// hash of the principal, the tool, the input and everything else that decides what runs. An
// approval lets one call run, and expires. Requests, decisions, uses and expiries are events of the
// audit log. Each is committed before it takes effect, so that no approved call runs twice, also if
// the daemon is killed.
package approval
