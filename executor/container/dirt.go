package container

import "sync"

// taintTracker remembers the containers in which a call's end was not proved, so that later calls there can say so. A restart ends whatever was left,
// and is another start.
type taintTracker struct {
	mu     sync.Mutex
	starts map[agentKey]struct{}
}

// taintWarning is what later calls say.
const taintWarning = "an earlier call in this container ended without a proof that nothing of it is left; restart the container to be sure"

func containerStart(key agentKey) agentKey {
	key.user = ""
	return key
}

func (d *taintTracker) taint(key agentKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.starts == nil {
		d.starts = map[agentKey]struct{}{}
	}
	d.starts[containerStart(key)] = struct{}{}
}

func (d *taintTracker) forget(key agentKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.starts, containerStart(key))
}

// warningsFor are those of one call.
func (d *taintTracker) warningsFor(key agentKey) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, dirty := d.starts[containerStart(key)]; dirty {
		return []string{taintWarning}
	}
	return nil
}
