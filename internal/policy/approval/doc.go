// Package approval lets a human decide about the calls that policy asks about (SE-04, MC-05).
//
// [Gate] is the layer of a call after its begin record and before its slot. It asks the policy
// about the call. A call that is asked about needs an approval of exactly this call: of a keyed
// hash of the principal, the tool, the input and everything else that decides what runs. An
// approval lets one call run and expires. Requests, decisions, uses and expiries are events of the
// audit log, which are committed before they take effect, so that a daemon that is killed never
// runs an approved call twice.
package approval
