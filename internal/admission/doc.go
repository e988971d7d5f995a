// Package admission decides which calls run now, which wait for their turn, and which are not taken
// at all.
//
// # What a slot is
//
// A call holds one running slot from the moment its place is ready to the moment when everything
// that it started is over: programs and file tools alike, on the host and in containers. There are
// limits.concurrent slots in all, and a container takes limits.per_container calls of them.
// Bringing a workspace up, looking for a container and connecting to an agent hold none: a call
// that waits for such things keeps nobody from running. What is no call (routes, paths, the trail,
// workspaces brought up by hand) needs none.
//
// # Let in or refused
//
// [Controller.Executor] stands outside the trail. It lets a call in if the calls that are in could
// not all run at once without it only by at most limits.queue of them waiting; else the answer is
// busy, and nothing was accepted: no id, no row. So whatever was accepted gets its turn, and no
// call finds out half way that there is no room. Which container a call will run in is known by its
// route alone then, not by the container's id; the gate remembers which id a route led to the last
// time. A route that leads elsewhere this time moves its calls, and they wait even where the queue
// is longer for it than it should be: it never holds more than limits.concurrent + limits.queue
// calls in all.
//
// # The order
//
// [Controller.Acquire] gives the slots, in the order in which the calls were let in, passing over
// those whose container is full: one busy container keeps no call for another from running, and no
// call is overtaken by a later one for the same container that came to its turn after it.
package admission
