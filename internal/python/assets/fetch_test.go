package assets

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"go.uber.org/goleak"

	"github.com/dray-dev/dray"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("DRAY_TEST_FETCH_INTO"); dir != "" {
		os.Exit(fetchInto(dir))
	}
	goleak.VerifyTestMain(m)
}

// fetchInto is a process that fetches, to be killed.
func fetchInto(dir string) int {
	var pins Manifest
	if err := json.Unmarshal([]byte(os.Getenv("DRAY_TEST_FETCH_PINS")), &pins); err != nil {
		panic(err)
	}
	if _, err := New(Options{Dir: dir, Manifest: pins}).Fetch(context.Background(), quick()); err != nil {
		panic(err)
	}
	return 0
}

// lockText is a small lock of Pyodide: numpy has a wheel with the content "numpy".
var lockText = fmt.Sprintf(`{"info":{"abi_version":"2026_0","python":"3.14.2"},"packages":{
	"numpy":{"name":"numpy","version":"2.4.6","file_name":"numpy-2.4.6.whl","sha256":%q,
		"imports":["numpy"],"depends":[],"install_dir":"site"},
	"pandas":{"name":"pandas","version":"3.0.2","file_name":"pandas-3.0.2.whl","sha256":%q,
		"imports":["pandas"],"depends":["numpy"],"install_dir":"site"}}}`, sum("numpy"), sum("pandas"))

func sum(text string) string {
	s := sha256.Sum256([]byte(text))
	return hex.EncodeToString(s[:])
}

// member is a member of a package.
type member struct {
	name, text string
	header     tar.Header
}

// pack makes a package as npm does.
func pack(members ...member) []byte {
	var packed bytes.Buffer
	zipped := gzip.NewWriter(&packed)
	w := tar.NewWriter(zipped)
	for _, m := range members {
		h := m.header
		h.Name, h.Mode = m.name, 0o644
		if h.Typeflag == 0 || h.Typeflag == tar.TypeReg {
			h.Size = int64(len(m.text))
		}
		if err := errors.Join(w.WriteHeader(&h), write(w, m.text)); err != nil {
			panic(err)
		}
	}
	if err := errors.Join(w.Close(), zipped.Close()); err != nil {
		panic(err)
	}
	return packed.Bytes()
}

func write(w *tar.Writer, text string) error {
	_, err := w.Write([]byte(text))
	return err
}

// noise is a text that does not compress, the same every time.
func noise(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		b.WriteString(sum(fmt.Sprint(i)))
	}
	return b.String()[:n]
}

var (
	denoText     = "#!/bin/sh\n" + noise(30_000)
	denoPack     = pack(member{name: "package/deno", text: denoText}, member{name: "package/README.md", text: "deno"})
	pyodideTexts = map[string]string{
		"pyodide.mjs": "export {}", "pyodide.asm.wasm": noise(10_000), "pyodide-lock.json": lockText,
	}
	pyodidePack = pack(
		member{name: "package/pyodide.mjs", text: "export {}"},
		member{name: "package/types.d.ts", text: "not used"},
		member{name: "package/pyodide.asm.wasm", text: pyodideTexts["pyodide.asm.wasm"]},
		member{name: "package/pyodide-lock.json", text: lockText})
)

// registry serves packages, and counts the requests and bytes of each.
type registry struct {
	*httptest.Server
	mu       sync.Mutex
	packages map[string][]byte
	requests []string // method, path and range
	// answer may answer in another way; it returns whether it did.
	answer func(w http.ResponseWriter, r *http.Request, n int) bool
}

func newRegistry(t *testing.T) *registry {
	t.Helper()
	r := &registry{packages: map[string][]byte{"/deno.tgz": denoPack, "/pyodide.tgz": pyodidePack}}
	r.Server = httptest.NewServer(http.HandlerFunc(r.serve))
	t.Cleanup(r.Close)
	return r
}

func (r *registry) serve(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	r.requests = append(r.requests, req.URL.Path+" "+req.Header.Get("Range"))
	n, answer := len(r.requests), r.answer
	r.mu.Unlock()
	if answer != nil && answer(w, req, n) {
		return
	}
	http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(r.packages[req.URL.Path]))
}

// respond sets the answer, and forgets the requests so far.
func (r *registry) respond(answer func(w http.ResponseWriter, r *http.Request, n int) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer, r.requests = answer, nil
}

func (r *registry) manifest() Manifest {
	pin := func(name, text string) File {
		return File{Name: name, Size: int64(len(text)), SHA256: sum(text), Executable: name == "deno"}
	}
	deno := Package{
		Name: "@deno/test", Version: "1.2.3", URL: r.URL + "/deno.tgz", Size: int64(len(denoPack)),
		SHA256: sum(string(denoPack)), Files: []File{pin("deno", denoText)},
	}
	pyodide := Package{
		Name: "pyodide", Version: "314.0.0", URL: r.URL + "/pyodide.tgz", Folder: "pyodide",
		Size: int64(len(pyodidePack)), SHA256: sum(string(pyodidePack)),
	}
	for _, name := range slices.Sorted(maps.Keys(pyodideTexts)) {
		pyodide.Files = append(pyodide.Files, pin(name, pyodideTexts[name]))
	}
	return Manifest{Packages: []Package{deno, pyodide}}
}

func (r *registry) store(t *testing.T) *Store {
	t.Helper()
	return New(Options{Dir: filepath.Join(t.TempDir(), "python", "assets"), Manifest: r.manifest()})
}

// quick are options without waits between attempts.
func quick() FetchOptions {
	d := newDownloader()
	d.backoff = time.Millisecond
	d.client.Transport = &http.Transport{DisableKeepAlives: true}
	return FetchOptions{downloader: d}
}

func mustFetch(t *testing.T, s *Store, opts FetchOptions) Fetched {
	t.Helper()
	got, err := s.Fetch(t.Context(), opts)
	if err != nil {
		t.Fatalf("Fetch: %v; hint: %s", err, dray.AsError(err).Hint)
	}
	return got
}

// wantOnly checks the names beside the asset folder: a fetch that succeeded leaves nothing else.
func wantOnly(t *testing.T, dir string, want ...string) {
	t.Helper()
	got, err := names(dir)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("in %s: %q, %v; want %q", dir, got, err, want)
	}
}

// The size is said first, the files are the pinned ones, and a second fetch needs no network
// (PY-09).
func TestFetch(t *testing.T) {
	r := newRegistry(t)
	s, opts := r.store(t), quick()
	var plan Plan
	var last Progress
	opts.Plan = func(p Plan) {
		if len(r.requests) > 0 {
			t.Error("bytes were requested before the plan")
		}
		plan = p
	}
	opts.Progress = func(p Progress) { last = p }
	got := mustFetch(t, s, opts)

	size := int64(len(denoPack) + len(pyodidePack))
	if plan.Bytes != size || plan.Dir != s.Dir() ||
		!slices.Equal(plan.Packages, []string{"@deno/test@1.2.3", "pyodide@314.0.0"}) {
		t.Errorf("plan: %+v", plan)
	}
	if got.Downloaded != size || got.Reused || last.Done != size || last.Total != size {
		t.Errorf("fetched: %+v, last progress %+v", got, last)
	}
	if got.PythonVersion != "3.14.2" || got.DenoVersion != "1.2.3" || got.PyodideVersion != "314.0.0" {
		t.Errorf("versions: %+v", got.Assets)
	}
	info, err := os.Stat(got.Deno)
	if err != nil || info.Mode() != 0o555 {
		t.Errorf("deno: %v, %v", info.Mode(), err)
	}
	wantOnly(t, got.Dir, "pyodide-lock.json", "pyodide.asm.wasm", "pyodide.mjs")
	wantOnly(t, filepath.Dir(s.Dir()), "assets")

	r.Close()
	if again := mustFetch(t, New(Options{Dir: s.Dir(), Manifest: s.pins}), quick()); !again.Reused ||
		again.Downloaded != 0 || again.ID != got.ID {
		t.Errorf("the second fetch: %+v", again)
	}
}

// Connections that break, errors and waits are retried, with the bytes that came (PY-09).
func TestFetchResumes(t *testing.T) {
	half := len(denoPack) / 2
	abort := func(w http.ResponseWriter, n int) {
		w.Header().Set("Content-Length", fmt.Sprint(len(denoPack)))
		_, _ = w.Write(denoPack[:n])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	for name, tc := range map[string]struct {
		answer func(w http.ResponseWriter, n int) bool
		want   []string
	}{
		"a broken connection": {func(w http.ResponseWriter, n int) bool {
			if n == 1 {
				abort(w, half)
			}
			return false
		}, []string{"/deno.tgz ", fmt.Sprintf("/deno.tgz bytes=%d-", half), "/pyodide.tgz "}},
		"no ranges": {func(w http.ResponseWriter, n int) bool {
			switch n {
			case 1:
				abort(w, half)
			case 2:
				_, _ = w.Write(denoPack)
			}
			return n < 3
		}, []string{"/deno.tgz ", fmt.Sprintf("/deno.tgz bytes=%d-", half), "/pyodide.tgz "}},
		"another range": {func(w http.ResponseWriter, n int) bool {
			switch n {
			case 1:
				abort(w, half)
			case 2:
				w.Header().Set("Content-Range", fmt.Sprintf("bytes 1-%d/%d", len(denoPack)-1, len(denoPack)))
				w.WriteHeader(http.StatusPartialContent)
			}
			return n < 3
		}, []string{"/deno.tgz ", fmt.Sprintf("/deno.tgz bytes=%d-", half), "/deno.tgz ", "/pyodide.tgz "}},
		"an error of the server keeps the bytes": {func(w http.ResponseWriter, n int) bool {
			switch n {
			case 1:
				abort(w, half)
			case 2:
				w.WriteHeader(http.StatusBadGateway)
			}
			return n < 3
		}, []string{
			"/deno.tgz ", fmt.Sprintf("/deno.tgz bytes=%d-", half),
			fmt.Sprintf("/deno.tgz bytes=%d-", half), "/pyodide.tgz ",
		}},
		"the first bytes were of another file": {func(w http.ResponseWriter, n int) bool {
			if n == 1 {
				w.Header().Set("Content-Length", fmt.Sprint(len(denoPack)))
				_, _ = w.Write(bytes.Repeat([]byte("x"), half))
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			}
			return false
		}, []string{"/deno.tgz ", fmt.Sprintf("/deno.tgz bytes=%d-", half), "/deno.tgz ", "/pyodide.tgz "}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegistry(t)
			r.answer = func(w http.ResponseWriter, _ *http.Request, n int) bool { return tc.answer(w, n) }
			mustFetch(t, r.store(t), quick())
			if !slices.Equal(r.requests, tc.want) {
				t.Errorf("requests: %q, want %q", r.requests, tc.want)
			}
		})
	}
}

// A fetch that was interrupted leaves no folder, and the next one goes on where it was, also if the
// first was killed (PY-09).
func TestFetchInterrupted(t *testing.T) {
	r := newRegistry(t)
	s, opts := r.store(t), quick()
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stopped by the user")
	opts.Progress = func(p Progress) {
		if p.Done > int64(len(denoPack)) {
			cancel(stop)
		}
	}
	if _, err := s.Fetch(ctx, opts); !errors.Is(err, stop) {
		t.Fatalf("Fetch: %v", err)
	}
	if _, err := os.Stat(s.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the asset folder is there: %v", err)
	}
	// what a killed fetch leaves
	work := filepath.Join(filepath.Dir(s.Dir()), ".assets.fetch")
	if err := os.MkdirAll(filepath.Join(work, newPrefix+"killed", "pyodide"), 0o700); err != nil {
		t.Fatal(err)
	}
	r.requests = nil
	got := mustFetch(t, s, quick())
	if slices.Contains(r.requests, "/deno.tgz ") {
		t.Errorf("the whole package was requested again: %q", r.requests)
	}
	if got.Downloaded > int64(len(pyodidePack)) {
		t.Errorf("downloaded %d bytes", got.Downloaded)
	}
	wantOnly(t, filepath.Dir(s.Dir()), "assets")
}

// A fetch that is killed, in the first package or when one is unpacked already, leaves no folder;
// the next one requests only what is missing, and leaves nothing of the first (PY-09).
func TestFetchKilled(t *testing.T) {
	for path, want := range map[string][]string{
		"/deno.tgz":    {fmt.Sprintf("/deno.tgz bytes=%d-", len(denoPack)/2), "/pyodide.tgz "},
		"/pyodide.tgz": {fmt.Sprintf("/pyodide.tgz bytes=%d-", len(pyodidePack)/2)},
	} {
		t.Run(path, func(t *testing.T) {
			r := newRegistry(t)
			s := r.store(t)
			halfway := make(chan struct{})
			r.respond(func(w http.ResponseWriter, req *http.Request, _ int) bool {
				if req.URL.Path != path {
					return false
				}
				all := r.packages[path]
				w.Header().Set("Content-Length", fmt.Sprint(len(all)))
				_, _ = w.Write(all[:len(all)/2])
				_ = http.NewResponseController(w).Flush()
				close(halfway)
				<-req.Context().Done()
				return true
			})
			pins, err := json.Marshal(s.pins)
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), "DRAY_TEST_FETCH_INTO="+s.Dir(), "DRAY_TEST_FETCH_PINS="+string(pins))
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			<-halfway
			waitForSize(t, filepath.Join(filepath.Dir(s.Dir()), ".assets.fetch"), len(r.packages[path])/2)
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			if _, err := os.Stat(s.Dir()); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the asset folder is there: %v", err)
			}
			r.respond(nil)
			mustFetch(t, s, quick())
			if !slices.Equal(r.requests, want) {
				t.Errorf("requests: %q, want %q", r.requests, want)
			}
			wantOnly(t, filepath.Dir(s.Dir()), "assets")
		})
	}
}

// waitForSize waits until a download in a folder has some bytes.
func waitForSize(t *testing.T, dir string, size int) {
	t.Helper()
	for t.Context().Err() == nil {
		all, err := filepath.Glob(dir + "/*.partial")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range all {
			if info, err := os.Stat(name); err == nil && info.Size() == int64(size) {
				return
			}
		}
		runtime.Gosched()
	}
}

// A package with other content is named with file, expected, got, source and fix, and is not kept
// (PY-24).
func TestFetchMismatch(t *testing.T) {
	r := newRegistry(t)
	other := append([]byte{}, denoPack...)
	other[len(other)/2] ^= 1
	for name, sent := range map[string][]byte{
		"a changed byte": other, "longer": append(denoPack, 'x'),
	} {
		t.Run(name, func(t *testing.T) {
			r.packages["/deno.tgz"] = sent
			s := r.store(t)
			_, err := s.Fetch(t.Context(), quick())
			known := dray.AsError(err)
			p, ok := asProblem(err)
			if !ok || p.Kind != Mismatch || known.Code != dray.CodeTransferFailed || known.Hint == "" {
				t.Fatalf("Fetch: %v (%s), hint %q", err, known.Code, known.Hint)
			}
			for _, want := range []string{"@deno/test 1.2.3", sum(string(denoPack)), "got sha256", r.URL} {
				if !strings.Contains(known.Message, want) {
					t.Errorf("the message %q lacks %q", known.Message, want)
				}
			}
			if _, err := os.Stat(s.Dir()); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the asset folder is there: %v", err)
			}
			r.packages["/deno.tgz"] = denoPack
			mustFetch(t, s, quick())
		})
	}
}

// What another attempt cannot change is not repeated; what it can is, a bounded number of times.
func TestFetchGivesUp(t *testing.T) {
	for status, want := range map[int]int{
		http.StatusNotFound: 1, http.StatusUnauthorized: 1,
		http.StatusServiceUnavailable: downloadAttempts,
	} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			r := newRegistry(t)
			r.answer = func(w http.ResponseWriter, _ *http.Request, _ int) bool {
				w.WriteHeader(status)
				return true
			}
			_, err := r.store(t).Fetch(t.Context(), quick())
			known := dray.AsError(err)
			if known.Code != dray.CodeTransferFailed ||
				!strings.Contains(known.Message, fmt.Sprint(status)) ||
				!strings.Contains(known.Hint, "--from") {
				t.Errorf("Fetch: %v (%s), hint %q", err, known.Code, known.Hint)
			}
			if len(r.requests) != want {
				t.Errorf("%d requests, want %d", len(r.requests), want)
			}
		})
	}
}

// A registry that stops sending is left, and asked again.
func TestFetchStalled(t *testing.T) {
	r := newRegistry(t)
	released := make(chan struct{})
	r.answer = func(w http.ResponseWriter, req *http.Request, n int) bool {
		if n > 1 {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(denoPack)))
		_, _ = w.Write(denoPack[:1000])
		_ = http.NewResponseController(w).Flush()
		<-req.Context().Done() // the client left
		close(released)
		return true
	}
	opts := quick()
	opts.downloader.stall = 50 * time.Millisecond
	mustFetch(t, r.store(t), opts)
	<-released
}

// A redirect from HTTPS to HTTP is refused.
func TestRedirectToPlainHTTP(t *testing.T) {
	request := func(url string) *http.Request {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		return req
	}
	secure, plain := request("https://a.example/x"), request("http://a.example/x")
	if err := checkRedirect(plain, []*http.Request{secure}); !errors.Is(err, errRefused) {
		t.Errorf("to HTTP: %v", err)
	}
	if err := checkRedirect(request("https://b.example/"), []*http.Request{secure}); err != nil {
		t.Errorf("to HTTPS: %v", err)
	}
}

// Of many fetches at the same time one downloads, and all succeed (PY-09).
func TestFetchTogether(t *testing.T) {
	r := newRegistry(t)
	first := r.store(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			s := New(Options{Dir: first.Dir(), Manifest: first.pins})
			if _, err := s.Fetch(t.Context(), quick()); err != nil {
				t.Errorf("Fetch: %v", err)
			}
		})
	}
	all.Wait()
	if want := []string{"/deno.tgz ", "/pyodide.tgz "}; !slices.Equal(r.requests, want) {
		t.Errorf("requests: %q, want %q", r.requests, want)
	}
	wantOnly(t, filepath.Dir(first.Dir()), "assets")
}

// A folder with files of others is not replaced.
func TestFetchKeepsFoldersOfOthers(t *testing.T) {
	r := newRegistry(t)
	s := r.store(t)
	if err := os.MkdirAll(s.Dir(), 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(s.Dir(), "thesis.tex")
	if err := os.WriteFile(file, []byte("years of work"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Fetch(t.Context(), quick()); dray.CodeOf(err) != dray.CodeConflict {
		t.Errorf("Fetch: %v", err)
	}
	if text, err := os.ReadFile(file); string(text) != "years of work" {
		t.Errorf("the file has %q, %v", text, err)
	}
}
