// Package calls holds the calls that run, and for a while those that have ended.
//
// Each call has a goroutine of its own, which the registry started and whose end [Registry.Drain]
// waits for; a request that asks for the call only waits for it. A call is accepted once its begin
// is committed in the trail: [MarkAccepted] sits there and tells. Before that, a failure refuses
// the request and no such call exists; after that, every end is an invocation.
package call
