// Package admission decides which calls run now, which are queued, and which are refused.
//
// # Slots
//
// A call holds a slot from the moment its environment is ready until everything that it started has
// ended: programs and file tools alike, on the host and in containers. There are limits.concurrent
// slots, of which each container can use limits.per_container. Bringing a workspace up, finding a
// container and connecting to an agent need no slot, so they delay no other call. Requests that are
// not calls (routes, paths, the audit log, workspaces) need none.
//
// # Admission
//
// [Controller.Executor] is outside the audit log. It admits a call if at most limits.queue of the
// admitted calls would then have to wait. A client that has less than its share of the queue is
// admitted although others fill it, until twice as many wait. Otherwise the call fails with the
// code busy and leaves no id and no row. So every accepted call gets a slot eventually. At this
// point a container is known only by the route of the call, not by its id, so the controller caches
// the id that each route last led to. A route that leads to another container moves its calls
// there, and they wait even if its queue becomes longer than limits.queue allows: there are never
// more than limits.concurrent + twice limits.queue calls in all.
//
// # Order
//
// There is a queue for each client: a principal, and each of its workspaces (SS-07).
// [Controller.Acquire] grants a slot to the principal that has the fewest, and of its workspaces to
// the one that has the fewest; equal ones take turns. So a client with many calls delays its own.
// Calls of one client get slots in the order of admission. Calls whose container is full are passed
// over, so a busy container delays no call for another one.
package admission
