// Package server is the HTTP edge: it decodes and validates requests, starts calls, shows their
// events and answers in the contract's form.
//
// It knows nothing of containers, routing or storage. What it asks of other rooms stands in
// needs.go, one small interface each. The rooms below it: calls (what runs, and its end), event
// (what happens in a call, for any number of readers), stdin (input that arrives in pieces),
// strictjson (one meaning for every request), unixsock (who may connect).
//
// # What is refused and what fails
//
// What is wrong with a request itself is a 4xx, and nothing is accepted: [status] has the one table
// from codes to statuses. Once a call is accepted, it has an id and a row, and the answer is 200
// with the invocation, however it ended. Accepted means that the trail has committed the call's
// begin: [call.MarkAccepted] tells.
//
// # Huma
//
// The operations are registered with huma, which routes them on the standard mux and describes
// them: the OpenAPI document is generated from the Go types that are decoded and encoded. Reading
// bodies, and errors, are ours: huma's own decoder accepts what the contract refuses (duplicate
// keys, unknown members), and its error form is a variable of the whole process, which this package
// does not touch.
package api
