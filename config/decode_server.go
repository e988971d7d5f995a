package config

import (
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/dray-dev/dray/internal/lexical"
)

const (
	hostPattern   = `^([^\s/:@]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?$`
	originPattern = `^https?://[^\s/@?#]+$`
)

// tcpAddress returns HOST:PORT. Without a host it is 127.0.0.1.
func (d *decoder) tcpAddress(v value) string {
	s, ok := d.scalar(v, "an address such as 127.0.0.1:7300")
	if !ok {
		return ""
	}
	if !strings.Contains(s, ":") {
		s = ":" + s
	}
	host, port, err := net.SplitHostPort(s)
	if _, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil {
		return d.refuse(v, "is not an address", "write HOST:PORT, or PORT for this machine alone")
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// allowedHost returns a value of the Host header in lower case: a name, with or without a port.
func (d *decoder) allowedHost(v value) string {
	s, ok := d.lineText(v)
	if !ok {
		return ""
	}
	u, err := url.Parse("//" + s)
	if err != nil || s == "" || u.Host != s || u.Hostname() == "" {
		return d.refuse(v, "is not a host", "write a name or an address, and :PORT only if no other "+
			"port is allowed")
	}
	return strings.ToLower(s)
}

// allowedOrigin returns a value of the Origin header in lower case.
func (d *decoder) allowedOrigin(v value) string {
	s, ok := d.lineText(v)
	if !ok {
		return ""
	}
	u, err := url.Parse(s)
	if err != nil || u.Hostname() == "" || s != u.Scheme+"://"+u.Host ||
		u.Scheme != "http" && u.Scheme != "https" {
		return d.refuse(v, "is not an origin", "write it as a browser sends it: https://HOST or "+
			"https://HOST:PORT, without a path")
	}
	return strings.ToLower(s)
}

// tokenFiles returns the files of tokens by name. The token "default" is in the state directory.
func (d *decoder) tokenFiles(v value) map[string]string {
	files := map[string]string{}
	d.eachNamed(v, func(f field) {
		switch {
		case f.name == DefaultToken:
			d.addKey(f.origin, f.value.key, "is the token in the state directory",
				"choose another name")
		case !lexical.IsName(f.name):
			d.addKey(f.origin, f.value.key, "is not a name",
				"use letters, digits, '.', '_' and '-'")
		default:
			files[f.name] = d.path(f.value)
		}
	})
	return files
}

// userName returns the name of a user, or a uid.
func (d *decoder) userName(v value) string {
	s, ok := d.scalar(v, "the name of a user, or a uid")
	if ok && (s == "" || strings.ContainsFunc(s, isControl) || strings.ContainsAny(s, " :/")) {
		return d.refuse(v, "is not a user", "write a name of /etc/passwd, or a uid")
	}
	return s
}

// checkUsers refuses users who could not reach the socket: the state directory is private.
func (d *decoder) checkUsers() {
	if len(d.c.Server.Users) == 0 || d.c.Server.Socket != d.c.State.Socket() {
		return
	}
	d.add(Diagnostic{
		Origin: d.c.Origin("server.users"), Key: "server.users",
		Problem: "has users who cannot enter the state directory, where the socket is",
		Suggestion: "set server.socket to a path in a directory that they can enter, for instance " +
			"/run/dray/dray.sock",
	})
}
