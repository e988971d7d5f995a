// Package trust decides whether a workspace may be brought up: the user has agreed to what `up`
// would do on the host, and nothing of it has changed since.
//
//	Store.Summary   what would be done, for the user
//	Store.Trust     the user agrees
//	Store.Approve   whether it is still the same; its Approval permits `up`
//
// What decides about that are the inputs: files and settings of the workspace, see inputs. What a
// container with the workspace mounted could change before `up` has used it is in Approval.Reads.
package trust
