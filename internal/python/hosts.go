package python

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/dray-dev/dray"
)

// Host is a host that code may send requests to, or a domain with all hosts in it.
type Host struct {
	name   string // lower case, without a dot at the end
	domain bool   // all hosts below name, and not name itself
	port   uint16 // zero is 80 and 443
}

// hostPattern matches the texts of ParseHost.
var hostPattern = regexp.MustCompile(
	`^(\*\.)?([A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?)\.?(?::([0-9]{1,5}))?$`)

// ParseHost returns the host of a text: a name or an IPv4 address, or "*." and a domain, which
// stands for all hosts below it. ":" and a port may follow; else the ports are 80 and 443. It fails
// with invalid_input.
func ParseHost(text string) (Host, error) {
	parts := hostPattern.FindStringSubmatch(text)
	if len(parts) == 0 || len(parts[2]) > 253 || strings.Contains(parts[2], "..") {
		return Host{}, hostError(text)
	}
	h := Host{name: strings.ToLower(parts[2]), domain: parts[1] != ""}
	if parts[3] == "" {
		return h, nil
	}
	port, err := strconv.ParseUint(parts[3], 10, 16)
	if err != nil || port == 0 {
		return Host{}, hostError(text)
	}
	h.port = uint16(port)
	return h, nil
}

func hostError(text string) *dray.Error {
	return dray.Errorf(dray.CodeInvalidInput, "%q is not a host of permissions.network", text).
		WithHint("write a name such as api.example.org, *.example.org or api.example.org:8443")
}

func parseHosts(texts []string) ([]Host, error) {
	hosts := make([]Host, len(texts))
	for i, text := range texts {
		var err error
		if hosts[i], err = ParseHost(text); err != nil {
			return nil, err
		}
	}
	return hosts, nil
}

// permitsName reports whether h includes a host, whose name is in lower case and has no final dot.
func (h Host) permitsName(name string) bool {
	if h.domain {
		return strings.HasSuffix(name, "."+h.name)
	}
	return name == h.name
}

// covers reports whether h includes all that other does.
func (h Host) covers(other Host) bool {
	if other.domain {
		return h.domain && (h.name == other.name || h.permitsName(other.name)) && h.coversPort(other.port)
	}
	return h.permitsName(other.name) && h.coversPort(other.port)
}

func (h Host) coversPort(port uint16) bool {
	return port == h.port || h.port == 0 && (port == 80 || port == 443)
}

// String returns the text of a host.
func (h Host) String() string {
	text := h.name
	if h.domain {
		text = "*." + text
	}
	if h.port != 0 {
		text = fmt.Sprintf("%s:%d", text, h.port)
	}
	return text
}
