// Package policy decides whether a call may run: allowed, allowed once a human approves it, or
// denied (SE-04). The rules are Cedar policies in files that the operator configures. Their context
// is the facts of a call.
//
// No fact is taken from the context of a call, its labels or its plan, so nothing that a caller
// adds to a call can select a looser policy (SE-05).
package policy
