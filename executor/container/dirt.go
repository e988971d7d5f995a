package container

import "sync"

// dirt remembers the containers in which a call's end was not proved, so that later calls there can say so. A restart ends whatever was left,
// and is another start.
type dirt struct {
	mu     sync.Mutex
	starts map[agentKey]struct{}
}

// dirtWarning is what later calls say.
const dirtWarning = "an earlier call in this container ended without a proof that nothing of it is left; restart the container to be sure"

func startOf(key agentKey) agentKey {
	key.user = ""
	return key
}

func (d *dirt) mark(key agentKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.starts == nil {
		d.starts = map[agentKey]struct{}{}
	}
	d.starts[startOf(key)] = struct{}{}
}

func (d *dirt) forget(key agentKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.starts, startOf(key))
}

// warnings are those of one call.
func (d *dirt) warnings(key agentKey) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, dirty := d.starts[startOf(key)]; dirty {
		return []string{dirtWarning}
	}
	return nil
}
