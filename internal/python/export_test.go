package python

import "net/netip"

// Unlock starts workers without lock-down, so that code reaches JavaScript and meets Deno's
// permissions.
func (c PyodideConfig) Unlock() PyodideConfig {
	c.unlocked = true
	return c
}

// CheckReply checks a reply as that of any worker is checked.
func CheckReply(body []byte, globals []string) error {
	_, err := checkReply(body, globals)
	return err
}

// Loopback lets code reach loopback addresses, where the servers of tests are.
func (c PyodideConfig) Loopback() PyodideConfig {
	c.fetcher = newFetcher(netip.Addr.IsLoopback)
	return c
}
