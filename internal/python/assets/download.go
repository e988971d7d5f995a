package assets

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/dray-dev/dray"
)

// The limits of a download.
const (
	downloadAttempts = 5
	maxAttempts      = 100
	connectTimeout   = 15 * time.Second
	headerTimeout    = 30 * time.Second
	stallTimeout     = 30 * time.Second
	firstBackoff     = time.Second
	maxRedirects     = 5
)

// errRefused is a response that another attempt would get too.
var errRefused = errors.New("the registry refused it")

// errRange is a response with other bytes than those that were requested.
var errRange = errors.New("the registry sent another range")

// downloader downloads packages.
type downloader struct {
	client *http.Client
	// backoff is the wait after the first failed attempt; it doubles. stall bounds the time without
	// bytes.
	backoff, stall time.Duration
}

// reporter receives the bytes of the package that are there, and the reason of an interruption.
type reporter func(done int64, waiting string)

func newDownloader() *downloader {
	return &downloader{
		client: &http.Client{
			Transport: &http.Transport{
				Proxy:                 http.ProxyFromEnvironment,
				DialContext:           (&net.Dialer{Timeout: connectTimeout}).DialContext,
				TLSHandshakeTimeout:   connectTimeout,
				ResponseHeaderTimeout: headerTimeout,
				DisableCompression:    true,
				ForceAttemptHTTP2:     true,
			},
			CheckRedirect: checkRedirect,
		},
		backoff: firstBackoff, stall: stallTimeout,
	}
}

// checkRedirect follows redirects to other hosts, since the content is pinned, but never to plain
// HTTP.
func checkRedirect(req *http.Request, via []*http.Request) error {
	switch {
	case len(via) > maxRedirects:
		return fmt.Errorf("%w: more than %d redirects", errRefused, maxRedirects)
	case via[0].URL.Scheme == "https" && req.URL.Scheme != "https":
		return fmt.Errorf("%w: a redirect to %s", errRefused, req.URL.Redacted())
	default:
		return nil
	}
}

// download appends a package to a file, which may have its first bytes already. It gives up after
// downloadAttempts without new bytes in a row, or after maxAttempts.
func (d *downloader) download(ctx context.Context, pkg *Package, file *os.File,
	report reporter,
) error {
	wait, failed := d.backoff, 0
	for range maxAttempts {
		before, err := file.Seek(0, io.SeekEnd)
		if err != nil {
			return err
		}
		err = d.attempt(ctx, pkg, file, before, report)
		if err == nil {
			err = verifyDownload(ctx, pkg, file)
		}
		after, seekErr := file.Seek(0, io.SeekEnd)
		switch {
		case err == nil:
			return nil
		case context.Cause(ctx) != nil:
			return context.Cause(ctx)
		case after > before:
			wait, failed = d.backoff, 0
		default:
			failed++
		}
		_, differs := asProblem(err)
		if seekErr != nil || errors.Is(err, errRefused) || failed == downloadAttempts ||
			differs && before == 0 { // before > 0: the first bytes may be those of another download
			return downloadError(pkg, err)
		}
		report(after, err.Error())
		if err := pause(ctx, wait); err != nil {
			return err
		}
		wait *= 2
	}
	return downloadError(pkg, fmt.Errorf("more than %d attempts", maxAttempts))
}

// pause waits for a time, with some jitter.
func pause(ctx context.Context, wait time.Duration) error {
	//nolint:gosec // the jitter is no secret
	timer := time.NewTimer(wait + rand.N(wait/4+1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func downloadError(pkg *Package, err error) error {
	if p, ok := asProblem(err); ok {
		return dray.Errorf(dray.CodeTransferFailed, "%w", err).WithHint("%s", p.fix())
	}
	return dray.Errorf(dray.CodeTransferFailed, "download %s %s from %s: %w", pkg.Name, pkg.Version,
		pkg.URL, err).WithHint("run `dray python fetch` again: it goes on where this one ended; " +
		"without a network use `dray python fetch --from DIR`")
}

// attempt requests the bytes from size on and appends them.
func (d *downloader) attempt(ctx context.Context, pkg *Package, file *os.File, size int64,
	report reporter,
) error {
	if size == pkg.Size {
		return nil
	}
	if size > pkg.Size {
		if err := file.Truncate(0); err != nil {
			return err
		}
		size = 0
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	resp, err := d.request(ctx, pkg, size)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	start, err := startOf(resp, pkg, size)
	if errors.Is(err, errRange) {
		return errors.Join(err, file.Truncate(0))
	}
	if err != nil {
		return err
	}
	if err := file.Truncate(start); err != nil {
		return err
	}
	body := &watched{r: resp.Body, limit: d.stall, done: start, report: report}
	body.timer = time.AfterFunc(d.stall, func() {
		cancel(fmt.Errorf("no bytes for %v", d.stall))
	})
	defer body.timer.Stop()
	err = copyTo(ctx, io.NewOffsetWriter(file, start), io.LimitReader(body, pkg.Size-start+1))
	switch {
	case context.Cause(ctx) != nil:
		return context.Cause(ctx)
	case err == nil && body.done < pkg.Size:
		err = fmt.Errorf("the download ended after %d of %d bytes", body.done, pkg.Size)
	}
	return err
}

func (d *downloader) request(ctx context.Context, pkg *Package, size int64,
) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, pkg.URL, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "dray")
	if size > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", size))
	}
	return d.client.Do(req)
}

// startOf returns the offset of the body.
func startOf(resp *http.Response, pkg *Package, size int64) (int64, error) {
	switch resp.StatusCode {
	case http.StatusOK:
		return 0, nil
	case http.StatusPartialContent:
		want := fmt.Sprintf("bytes %d-%d/%d", size, pkg.Size-1, pkg.Size)
		if got := resp.Header.Get("Content-Range"); got != want {
			return 0, fmt.Errorf("%w: %q, not %q", errRange, got, want)
		}
		return size, nil
	case http.StatusRequestedRangeNotSatisfiable:
		return 0, fmt.Errorf("%w: %s", errRange, resp.Status)
	case http.StatusRequestTimeout, http.StatusTooManyRequests:
		return 0, errors.New(resp.Status)
	default:
		if resp.StatusCode >= http.StatusInternalServerError {
			return 0, errors.New(resp.Status)
		}
		return 0, fmt.Errorf("%w: %s", errRefused, resp.Status)
	}
}

// watched reports progress, and restarts the timer that ends a silent download.
type watched struct {
	r      io.Reader
	timer  *time.Timer
	limit  time.Duration
	done   int64
	report reporter
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	if n > 0 {
		w.timer.Reset(w.limit)
		w.done += int64(n)
		w.report(w.done, "")
	}
	return n, err
}

// verifyDownload compares a package with its pin. It truncates the file if they differ.
func verifyDownload(ctx context.Context, pkg *Package, file *os.File) error {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	h := sha256.New()
	if err := copyTo(ctx, h, file); err != nil {
		return err
	}
	if got := hexOf(h); got != pkg.SHA256 {
		return errors.Join(mismatchOf(pkg, got), file.Truncate(0))
	}
	return nil
}

func mismatchOf(pkg *Package, got string) error {
	return &Problem{
		Kind: Mismatch, File: "the package " + pkg.Name + " " + pkg.Version, Source: pkg.URL,
		Expected: "sha256 " + pkg.SHA256, Got: "sha256 " + got,
		Fix: "what was downloaded was removed; ask who runs the registry or the proxy, or use " +
			"`dray python fetch --from DIR`",
	}
}
