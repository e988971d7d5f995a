package admission

import (
	"cmp"

	"github.com/dray-dev/dray"
)

// client is a principal, or a principal in one workspace, while it has admitted calls (SS-07).
type client struct {
	admitted, running int
	lastGrant         uint64 // number of the last slot that it was granted
}

// waiting returns the number of calls that have no slot.
func (c *client) waiting() int { return c.admitted - c.running }

// clientRef is the client of a call: its principal, and that in the workspace of the call.
type clientRef struct {
	key                  clientKey
	principal, workspace *client
}

type clientKey struct{ principal, workspace string }

// clientTable has the clients with admitted calls.
type clientTable struct {
	principals map[string]*client
	workspaces map[clientKey]*client
	grants     uint64 // number of the last slot that was granted
}

func newClientTable() clientTable {
	return clientTable{principals: map[string]*client{}, workspaces: map[clientKey]*client{}}
}

// enter counts a call for its client.
func (t *clientTable) enter(call dray.Call) clientRef {
	key := clientKey{
		call.Invocation.Principal, cmp.Or(call.Route.Workspace, call.Invocation.Workspace),
	}
	ref := clientRef{key, get(t.principals, key.principal), get(t.workspaces, key)}
	ref.principal.admitted++
	ref.workspace.admitted++
	return ref
}

func get[K comparable](clients map[K]*client, key K) *client {
	c := clients[key]
	if c == nil {
		c = &client{}
		clients[key] = c
	}
	return c
}

// leave is the reverse of enter.
func (t *clientTable) leave(ref clientRef) {
	ref.principal.admitted--
	ref.workspace.admitted--
	if ref.principal.admitted == 0 {
		delete(t.principals, ref.key.principal)
	}
	if ref.workspace.admitted == 0 {
		delete(t.workspaces, ref.key)
	}
}

// reserve returns how many calls may wait beyond a queue, so that a new call of a client is
// admitted: none if the client has more than its share of the queue already. A principal cannot
// take the reserve of others by using many workspaces.
func (t *clientTable) reserve(ref clientRef, queue int) int {
	switch {
	case ref.principal.waiting() <= share(queue, len(t.principals)):
		return queue
	case ref.workspace.waiting() <= share(queue, len(t.workspaces)):
		return (queue + 1) / 2
	default:
		return 0
	}
}

func share(queue, clients int) int { return max(queue/clients, 1) }

func (t *clientTable) grant(ref clientRef) {
	t.grants++
	for _, c := range []*client{ref.principal, ref.workspace} {
		c.running++
		c.lastGrant = t.grants
	}
}

func (ref clientRef) release() {
	ref.principal.running--
	ref.workspace.running--
}

// isBefore reports whether a queued call is granted a slot before another one: that of the
// principal that has fewer slots, or else has waited longer for one; then that of the workspace; of
// one client the call that was admitted first.
func (w *waiter) isBefore(other *waiter) bool {
	a, b := w.client, other.client
	return cmp.Or(
		cmp.Compare(a.principal.running, b.principal.running),
		cmp.Compare(a.principal.lastGrant, b.principal.lastGrant),
		cmp.Compare(a.workspace.running, b.workspace.running),
		cmp.Compare(a.workspace.lastGrant, b.workspace.lastGrant),
		cmp.Compare(w.number, other.number),
	) < 0
}
