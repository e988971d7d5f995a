// Package call is the life of a call, for every kind of server in front of it.
//
// [Intake] turns a request into a [Prepared] call: it validates the request, finds its tool and
// routes it, each once. A [Registry] starts prepared calls and finds them again while they run and
// for some minutes afterwards. A [Call] has live events, a stdin that is written while it runs, and
// its record.
//
// A call runs independently of the request that started it, and [Registry.Drain] waits for its end.
// It is accepted when the audit log has committed its begin record, which [Recorded] reports. A
// failure before that rejects the request, and there is no such call. Every failure after that is
// the result of the call.
//
// The [dray.Record] of a call is made of its invocation when it starts, and of the result that
// [Recorded] passes to the audit log when it ends. It is encoded once, for the response and the end
// event.
package call
