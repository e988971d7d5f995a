package api

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/validate"
)

// TCPAccess decides which requests over TCP are served.
type TCPAccess struct {
	// Tokens are the secrets of the principals token:NAME, by NAME.
	Tokens map[string]string
	// AllowedHosts and AllowedOrigins are the values of Host and Origin, in lower case. A host without
	// a port allows any.
	AllowedHosts, AllowedOrigins []string
}

// guard is TCPAccess with the hashes of its tokens. All hashes have the same length, so comparing
// them tells nothing about the token.
type guard struct {
	TCPAccess
	tokens map[string][sha256.Size]byte // by principal
}

func newGuard(access TCPAccess) guard {
	g := guard{access, map[string][sha256.Size]byte{}}
	for name, secret := range access.Tokens {
		g.tokens["token:"+name] = sha256.Sum256([]byte(secret))
	}
	return g
}

// checkHost refuses requests for another host. A page of the web whose name leads to this machine
// sends its own.
func (g guard) checkHost(r *http.Request) error {
	host := strings.ToLower(r.Host)
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
		if strings.Contains(h, ":") {
			name = "[" + h + "]"
		}
	}
	if slices.Contains(g.AllowedHosts, host) || slices.Contains(g.AllowedHosts, name) {
		return nil
	}
	hint := "add the host to server.allowed_hosts"
	if slices.Contains(g.AllowedHosts, "localhost") {
		hint = "use localhost, or " + hint
	}
	return dray.Errorf(dray.CodeForbiddenHost, "host %q is not allowed", validate.Quote(r.Host)).
		WithHint("%s", hint)
}

// checkOrigin refuses requests of pages whose origin is not allowed.
func (g guard) checkOrigin(r *http.Request) error {
	for _, origin := range r.Header.Values("Origin") {
		if !slices.Contains(g.AllowedOrigins, strings.ToLower(origin)) {
			return dray.Errorf(dray.CodeForbiddenOrigin, "origin %q is not allowed",
				validate.Quote(origin)).WithHint("add the origin to server.allowed_origins")
		}
	}
	return nil
}

// authenticate returns the principal of the token in a request. A token in the query is not read,
// because queries are logged.
func (g guard) authenticate(r *http.Request) (string, error) {
	values := r.Header.Values("Authorization")
	if len(values) == 1 {
		scheme, secret, _ := strings.Cut(values[0], " ")
		given := sha256.Sum256([]byte(strings.TrimSpace(secret)))
		for principal, known := range g.tokens {
			if strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(given[:], known[:]) == 1 {
				return principal, nil
			}
		}
	}
	problem := "the token is unknown"
	if len(values) == 0 {
		problem = "a token is required"
	}
	return "", dray.Errorf(dray.CodeUnauthorized, "%s", problem).
		WithHint("send the header Authorization: Bearer TOKEN; the daemon's own token is in STATE/token")
}

// admit checks Host, Origin and token of a request over TCP, and returns the request with its
// principal. handled is set for the preflight request of a browser, which has no token: it has got
// its response.
func (g guard) admit(w http.ResponseWriter, r *http.Request) (_ *http.Request, handled bool,
	err error,
) {
	if err := g.checkHost(r); err != nil {
		return r, false, err
	}
	if err := g.checkOrigin(r); err != nil {
		return r, false, err
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Vary", "Origin")
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, DELETE")
			h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Last-Event-ID, Range")
			w.WriteHeader(http.StatusNoContent)
			return r, true, nil
		}
	}
	who, err := g.authenticate(r)
	if err != nil {
		w.Header().Set("WWW-Authenticate", "Bearer")
		return r, false, err
	}
	return r.WithContext(context.WithValue(r.Context(), principalKey{}, who)), false, nil
}

type principalKey struct{}

// principal returns who makes a request: the peer of its connection, the owner of its token, or ""
// if neither is known.
func principal(r *http.Request) string {
	if who, ok := r.Context().Value(principalKey{}).(string); ok {
		return who
	}
	if c, ok := r.Context().Value(connKey{}).(*problemConn); ok {
		return c.principal
	}
	return ""
}
