package python

// Unlock starts workers without lock-down, so that code reaches JavaScript and meets Deno's
// permissions.
func (c PyodideConfig) Unlock() PyodideConfig {
	c.unlocked = true
	return c
}
