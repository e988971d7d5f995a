package python

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dray-dev/dray"
)

// The limits of a request. fetchTimeout is the default of its timeout, maxFetchTimeout the maximum.
const (
	fetchTimeout       = 30 * time.Second
	maxFetchTimeout    = time.Hour
	maxRedirects       = 5
	maxURL             = 8 << 10  // bytes
	maxRequestHeaders  = 64       // number
	maxResponseHeaders = 32 << 10 // bytes
)

// fetchCall is a request as the code sends it.
type fetchCall struct {
	URL     string      `json:"url"`
	Method  string      `json:"method"`
	Headers [][2]string `json:"headers"`
	Body    []byte      `json:"body"`    // base64
	Timeout float64     `json:"timeout"` // seconds; zero is fetchTimeout
}

// fetchResponse is the last response.
type fetchResponse struct {
	Status  int         `json:"status"`
	URL     string      `json:"url"`
	Headers [][2]string `json:"headers"`
	Content []byte      `json:"content"` // base64
}

// fetcher sends requests of code to hosts. It has no cookies, uses no proxy, and connects to public
// addresses only. It is safe for concurrent use.
type fetcher struct {
	transport *http.Transport
}

// newFetcher returns a fetcher that connects to addresses that allow accepts; nil is isPublic.
// allow gets the address that is dialed, whatever a name resolved to before.
func newFetcher(allow func(netip.Addr) bool) *fetcher {
	if allow == nil {
		allow = isPublic
	}
	dialer := &net.Dialer{
		Timeout: 10 * time.Second,
		Control: func(_, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err != nil || !allow(to.Addr()) {
				return errPrivateAddress
			}
			return nil
		},
	}
	return &fetcher{transport: &http.Transport{
		DialContext: dialer.DialContext, DisableKeepAlives: true,
		TLSHandshakeTimeout: 10 * time.Second, MaxResponseHeaderBytes: maxResponseHeaders,
	}}
}

var errPrivateAddress = errors.New("its address is not a public one")

// fetch sends a request and follows redirects. record gets each request that was sent, and the one
// that was refused.
func (f *fetcher) fetch(ctx context.Context, hosts []Host, call fetchCall,
	record func(dray.Fetch),
) (*fetchResponse, error) {
	limit, err := call.timeout()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req, err := call.request(ctx)
	if err != nil {
		return nil, err
	}
	for redirects := 0; ; redirects++ {
		sent := dray.Fetch{Method: req.Method, Host: strings.ToValidUTF8(req.URL.Host, "\uFFFD")}
		res, next, err := f.send(req, hosts)
		if err == nil && next != nil && redirects == maxRedirects {
			err = fetchError("ELOOP", dray.CodeLimitExceeded, "there are more than %d redirects",
				maxRedirects)
		}
		if res != nil {
			sent.Status, sent.Bytes = res.Status, int64(len(res.Content))
		}
		if err != nil {
			sent.Error = describeBrokered(err).Errno
		}
		record(sent)
		if err != nil || next == nil {
			return res, err
		}
		if req, err = redirected(req, res.Status, next, call.Body); err != nil {
			return nil, err
		}
	}
}

func (c fetchCall) timeout() (time.Duration, error) {
	switch {
	case c.Timeout < 0 || c.Timeout > maxFetchTimeout.Seconds():
		return 0, invalidFetch("the timeout is not from 0 to %v seconds", maxFetchTimeout.Seconds())
	case c.Timeout == 0:
		return fetchTimeout, nil
	default:
		return max(time.Duration(c.Timeout*float64(time.Second)), time.Millisecond), nil
	}
}

var fetchMethods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

// request returns the first request.
func (c fetchCall) request(ctx context.Context) (*http.Request, error) {
	if !slices.Contains(fetchMethods, c.Method) {
		return nil, invalidFetch("the method is not one of %s", strings.Join(fetchMethods, ", "))
	}
	if len(c.URL) > maxURL {
		return nil, invalidFetch("the URL is longer than %d bytes", maxURL)
	}
	to, err := url.Parse(c.URL)
	if err != nil {
		return nil, invalidFetch("the URL is malformed")
	}
	req, err := http.NewRequestWithContext(ctx, c.Method, to.String(), bodyOf(c.Body))
	if err != nil {
		return nil, invalidFetch("the URL is malformed")
	}
	if err := setHeaders(req, c.Headers); err != nil {
		return nil, err
	}
	return req, nil
}

func bodyOf(body []byte) io.Reader {
	if len(body) == 0 {
		return nil
	}
	return bytes.NewReader(body)
}

// refusedHeaders are those of the connection. Go sets them.
var refusedHeaders = []string{
	"Host", "Connection", "Content-Length", "Expect", "Keep-Alive", "Proxy-Authenticate",
	"Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// headerName and headerValue match the fields of a header (RFC 9110, 5.5 and 5.6.2).
var (
	headerName  = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")
	headerValue = regexp.MustCompile(`^[^\x00-\x08\x0a-\x1f\x7f]*$`)
)

func setHeaders(req *http.Request, headers [][2]string) error {
	if len(headers) > maxRequestHeaders {
		return invalidFetch("there are more than %d headers", maxRequestHeaders)
	}
	req.Header.Set("User-Agent", "dray")
	size := 0
	for _, h := range headers {
		size += len(h[0]) + len(h[1])
		name := http.CanonicalHeaderKey(h[0])
		if !headerName.MatchString(h[0]) || !headerValue.MatchString(h[1]) ||
			slices.Contains(refusedHeaders, name) || size > maxResponseHeaders {
			return invalidFetch("the header %.100q is not allowed, malformed or too long", h[0])
		}
		req.Header.Set(name, h[1])
	}
	return nil
}

// send sends one request. next is where the response redirects to, nil for nowhere.
func (f *fetcher) send(req *http.Request, hosts []Host) (res *fetchResponse, next *url.URL,
	err error,
) {
	if err := checkTarget(req.URL, hosts); err != nil {
		return nil, nil, err
	}
	req.Host = ""
	name, port := hostName(req.URL), req.URL.Port()
	if req.URL.Host = name; port != "" { // one form: to a server a final dot is another name
		req.URL.Host = net.JoinHostPort(name, port)
	}
	got, err := f.transport.RoundTrip(req)
	if err != nil {
		return nil, nil, requestError(req, err)
	}
	defer func() { _ = got.Body.Close() }()
	res = &fetchResponse{Status: got.StatusCode, URL: req.URL.String(), Headers: [][2]string{}}
	for name, values := range got.Header {
		for _, value := range values {
			res.Headers = append(res.Headers, [2]string{
				strings.ToLower(name), strings.ToValidUTF8(value, "\uFFFD"),
			})
		}
	}
	slices.SortStableFunc(res.Headers, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
	if to := redirect(req, got); to != nil {
		return res, to, nil
	}
	res.Content, err = io.ReadAll(io.LimitReader(got.Body, maxContent+1))
	switch {
	case len(res.Content) > maxContent:
		return nil, nil, fetchError("EFBIG", dray.CodeLimitExceeded,
			"the response of %s is larger than %d bytes", req.URL.Hostname(), maxContent)
	case err != nil:
		return nil, nil, requestError(req, err)
	}
	return res, nil, nil
}

// checkTarget fails unless a URL leads to a permitted host.
func checkTarget(to *url.URL, hosts []Host) error {
	name := hostName(to)
	port, err := portOf(to)
	switch {
	case to.Scheme != "http" && to.Scheme != "https" || to.Opaque != "" || name == "":
		return invalidFetch("the URL does not begin with http://HOST or https://HOST")
	case to.User != nil:
		return invalidFetch("the URL has a user or a password: set the header Authorization")
	case err != nil:
		return err
	}
	permitted := func(h Host) bool { return h.permitsName(name) && h.coversPort(port) }
	if !slices.ContainsFunc(hosts, permitted) {
		return withErrno("EACCES", dray.Errorf(dray.CodeDenied,
			"this session may not send requests to %q, port %d", name, port).
			WithHint("add it to python.permissions.network in the configuration, and to the "+
				"permissions of the first call of the session if that names them"))
	}
	return nil
}

// hostName returns the host of a URL as [Host] has it.
func hostName(to *url.URL) string { return strings.ToLower(strings.TrimSuffix(to.Hostname(), ".")) }

func portOf(to *url.URL) (uint16, error) {
	switch port := to.Port(); {
	case port != "":
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return 0, invalidFetch("the port of the URL is not from 1 to 65535")
		}
		return uint16(n), nil
	case to.Scheme == "https":
		return 443, nil
	default:
		return 80, nil
	}
}

// redirect returns where a response redirects to, nil for nowhere.
func redirect(req *http.Request, res *http.Response) *url.URL {
	switch res.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
	default:
		return nil
	}
	location := res.Header.Get("Location")
	if location == "" || len(location) > maxURL {
		return nil
	}
	to, err := req.URL.Parse(location)
	if err != nil {
		return nil
	}
	to.Fragment = ""
	return to
}

// originHeaders are sent to another origin too. All others may be secrets.
var originHeaders = []string{"Accept", "Accept-Language", "Content-Type", "User-Agent"}

// redirected returns the request that follows a redirect, as browsers do it.
func redirected(last *http.Request, status int, to *url.URL, body []byte) (*http.Request, error) {
	method := last.Method
	keep := status == http.StatusTemporaryRedirect || status == http.StatusPermanentRedirect
	if !keep && method != http.MethodGet && method != http.MethodHead {
		method = http.MethodGet
	}
	if method == http.MethodGet || method == http.MethodHead {
		body = nil
	}
	req, err := http.NewRequestWithContext(last.Context(), method, to.String(), bodyOf(body))
	if err != nil {
		return nil, invalidFetch("a redirect leads to a malformed URL")
	}
	sameOrigin := to.Scheme == last.URL.Scheme && strings.EqualFold(to.Host, last.URL.Host)
	for name, values := range last.Header {
		if sameOrigin || slices.Contains(originHeaders, name) {
			req.Header[name] = values
		}
	}
	if body == nil {
		req.Header.Del("Content-Type")
	}
	return req, nil
}

// requestError returns the error of a request that got no response.
func requestError(req *http.Request, err error) error {
	host := req.URL.Hostname()
	switch ctx := req.Context(); {
	case errors.Is(err, errPrivateAddress):
		return withErrno("EACCES", dray.Errorf(dray.CodeDenied,
			"%s: %w", host, errPrivateAddress).
			WithHint("code in a session reaches public addresses only; use call_tool for others"))
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return fetchError("ETIMEDOUT", dray.CodeTransferFailed, "%s did not answer in time", host)
	case ctx.Err() != nil:
		return withErrno("ECANCELED", dray.Errorf(dray.CodeTransferFailed, "%w", context.Cause(ctx)))
	default:
		return fetchError("EIO", dray.CodeTransferFailed, "the request to %s failed: %s", host, err)
	}
}

func invalidFetch(format string, args ...any) error {
	return withErrno("EINVAL", dray.Errorf(dray.CodeInvalidInput, format, args...))
}

func fetchError(errno string, code dray.Code, format string, args ...any) error {
	return withErrno(errno, dray.Errorf(code, "%s", fmt.Sprintf(format, args...)))
}

// privatePrefixes are addresses that are global unicast ones by their form, and are not public
// (the special-purpose registries of IANA), or that lead to IPv4 addresses.
var privatePrefixes = parsePrefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
	"192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15",
	"198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
	"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
)

// globalIPv6 has all public IPv6 addresses. NAT64 (64:ff9b::/96), unique local, link-local and
// multicast ones are outside of it.
var globalIPv6 = netip.MustParsePrefix("2000::/3")

func parsePrefixes(texts ...string) []netip.Prefix {
	prefixes := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		prefixes[i] = netip.MustParsePrefix(text)
	}
	return prefixes
}

// isPublic reports whether an address is one of the public internet.
func isPublic(addr netip.Addr) bool {
	if !addr.IsGlobalUnicast() || addr.Zone() != "" || addr.Is4In6() ||
		addr.Is6() && !globalIPv6.Contains(addr) {
		return false
	}
	return !slices.ContainsFunc(privatePrefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}
