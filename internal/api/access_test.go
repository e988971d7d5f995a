package api

import (
	"net/http/httptest"
	"testing"

	"github.com/dray-dev/dray"
)

// The hint for a host that is not allowed names localhost only if that is allowed (SE-02).
func TestGuard_HostHint(t *testing.T) {
	for hint, allowed := range map[string][]string{
		"use localhost, or add the host to server.allowed_hosts": {"localhost", "127.0.0.1"},
		"add the host to server.allowed_hosts":                   {"dray.test"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "http://evil.test/v1/tools", nil)
		e := dray.AsError(guard{TCPAccess: TCPAccess{AllowedHosts: allowed}}.checkHost(r))
		if e.Code != dray.CodeForbiddenHost || e.Hint != hint {
			t.Errorf("%v: got %q with the hint %q", allowed, e.Code, e.Hint)
		}
	}
}
