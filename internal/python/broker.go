package python

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/dray-dev/dray"
)

// The limits of brokered calls.
const (
	// maxBrokered bounds the calls of one request, maxFetches those that are recorded.
	maxBrokered = 10_000
	maxFetches  = 100
	// maxContent bounds a file and the body of a response in bytes: in base64 it fits into a result,
	// which has maxCall bytes at most.
	maxContent = 3_000_000
)

// ToolCaller calls a tool for code with the given permissions, and returns its output. It fails
// with denied if they do not suffice, and with the code of the call if that did not end by itself.
// It must return soon after the end of ctx, when all that the call started has ended.
type ToolCaller func(ctx context.Context, name string, input json.RawMessage, may Permissions) (
	json.RawMessage, error)

// Services are what code can ask the daemon for with the module dray (PY-27), besides requests to
// hosts. The zero value has nothing.
type Services struct {
	// Files opens the files beneath the working directory. The broker closes them.
	Files    func(ctx context.Context) (dray.Files, error)
	CallTool ToolCaller
}

// broker does what the code of one request asks for, one call at a time. User code can forge all
// that it receives.
type broker struct {
	answer      func(body []byte) // does not block
	permissions Permissions
	services    Services
	fetcher     *fetcher
	cwd         string
	// begin returns the context of a call, which ends with the request: with cancel.
	begin  func() (context.Context, context.CancelCauseFunc)
	cancel context.CancelCauseFunc

	mu         sync.Mutex
	calls      uint32
	interrupts uint32                  // of the request so far
	pending    context.CancelCauseFunc // of the call that has no answer yet; nil if there is none
	answered   chan struct{}           // closed when there is no call without an answer
	worked     chan struct{}           // closed when the work of the last call has ended
	fetches    []dray.Fetch
	omitted    int
}

// brokeredCall is a call as the code sends it. Exactly one of the last three is set.
type brokeredCall struct {
	// ID counts the calls of the request from 1. Interrupts is how many of them the worker has seen.
	ID         uint32 `json:"id"`
	Interrupts uint32 `json:"interrupts"`

	ReadTextFile *readTextFile `json:"read_text_file,omitempty"`
	Fetch        *fetchCall    `json:"fetch,omitempty"`
	CallTool     *toolCall     `json:"call_tool,omitempty"`
}

type readTextFile struct {
	Path string `json:"path"`
}

type toolCall struct {
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
}

// brokeredResult is the answer to a call. One of the members besides ID is set.
type brokeredResult struct {
	ID       uint32          `json:"id"`
	Error    *brokeredError  `json:"error,omitempty"`
	Content  *[]byte         `json:"content,omitempty"` // of a file, in base64
	Response *fetchResponse  `json:"response,omitempty"`
	Output   json.RawMessage `json:"output,omitempty"`
}

// brokeredError becomes a dray.DrayError. Errno is a name of the module errno.
type brokeredError struct {
	Errno   string `json:"errno"`
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint"`
}

// The causes of the end of a brokered call.
var (
	errRequestEnded = errors.New("the code that made the call has ended")
	errInterrupted  = errors.New("the code was interrupted")
)

func newBroker(e *execution, req Request, permissions *Permissions, f *fetcher) *broker {
	b := &broker{
		answer: e.answerCall, services: req.Services, fetcher: f, cwd: req.Cwd,
		answered: closedChannel(), worked: closedChannel(),
	}
	if permissions != nil {
		b.permissions = *permissions
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	b.begin = func() (context.Context, context.CancelCauseFunc) {
		return context.WithCancelCause(ctx)
	}
	b.cancel = cancel
	return b
}

func closedChannel() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// receive starts a call. It does not block. An error is a violation of the protocol: a call that is
// malformed, or out of order, or that comes before the answer to the last one.
func (b *broker) receive(body []byte) error {
	var call brokeredCall
	if err := decode(body, &call); err != nil {
		return protocolError("its call is wrong: %s", describe(err))
	}
	if call.members() != 1 {
		return protocolError("its call asks for %d things", call.members())
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pending != nil || call.ID != b.calls+1 {
		return protocolError("it made call %d after %d, or did not wait for the answer", call.ID,
			b.calls)
	}
	b.calls++
	ctx, cancel := b.begin()
	if b.interrupts > call.Interrupts {
		cancel(errInterrupted) // it crossed the call
	}
	last := b.worked
	b.pending, b.answered, b.worked = cancel, make(chan struct{}), make(chan struct{})
	go b.serve(ctx, call, last, b.worked)
	return nil
}

func (c brokeredCall) members() int {
	n := 0
	for _, set := range []bool{c.ReadTextFile != nil, c.Fetch != nil, c.CallTool != nil} {
		if set {
			n++
		}
	}
	return n
}

// serve does what a call asks for and answers it. It answers at once when ctx ends; the next call
// then waits until the work of this one has ended.
func (b *broker) serve(ctx context.Context, call brokeredCall, last, worked chan struct{}) {
	results := make(chan brokeredResult, 1)
	go func() {
		defer close(worked)
		<-last
		results <- b.try(ctx, call)
	}()
	var res brokeredResult
	select {
	case res = <-results:
	case <-ctx.Done():
		res = brokeredResult{Error: cancelledError(ctx)}
	}
	res.ID = call.ID
	body, err := json.Marshal(res)
	if err != nil || len(body) > maxCall {
		body, _ = json.Marshal(brokeredResult{ID: call.ID, Error: &brokeredError{
			Errno: "EMSGSIZE", Code: CodePayloadTooLarge,
			Message: fmt.Sprintf("the result is larger than %d bytes", maxCall),
		}})
	}
	b.mu.Lock()
	b.pending(nil)
	b.pending = nil
	close(b.answered)
	b.mu.Unlock()
	b.answer(body) // the next call may come at once
}

func cancelledError(ctx context.Context) *brokeredError {
	return &brokeredError{Errno: "ECANCELED", Message: context.Cause(ctx).Error()}
}

// try does what a call asks for. A panic ends only the call (EX-18).
func (b *broker) try(ctx context.Context, call brokeredCall) (res brokeredResult) {
	defer func() {
		if p := recover(); p != nil {
			e := dray.InternalError(dray.CodeInternal, "", "a call of import dray")
			res = brokeredResult{Error: &brokeredError{
				Errno: "EIO", Code: string(e.Code), Message: e.Message,
			}}
		}
	}()
	if ctx.Err() != nil {
		return brokeredResult{Error: cancelledError(ctx)}
	}
	err := b.do(ctx, call, &res)
	if err != nil {
		res = brokeredResult{Error: describeBrokered(err)}
	}
	return res
}

func (b *broker) do(ctx context.Context, call brokeredCall, res *brokeredResult) error {
	if call.ID > maxBrokered {
		return withErrno("EAGAIN", dray.Errorf(dray.CodeLimitExceeded,
			"one run may call the daemon %d times", maxBrokered).WithHint("use several runs"))
	}
	switch {
	case call.ReadTextFile != nil:
		content, err := b.readTextFile(ctx, call.ReadTextFile.Path)
		res.Content = &content
		return err
	case call.Fetch != nil:
		var err error
		res.Response, err = b.fetch(ctx, *call.Fetch)
		return err
	default:
		var err error
		res.Output, err = b.callTool(ctx, *call.CallTool)
		return err
	}
}

// readTextFile returns the content of a file beneath the working directory.
func (b *broker) readTextFile(ctx context.Context, name string) ([]byte, error) {
	if !fsPermits(b.permissions.FS, FSRead) {
		return nil, deniedError("read files", "fs")
	}
	if b.services.Files == nil {
		return nil, notAvailable("read_text_file")
	}
	below, err := b.beneath(name)
	if err != nil {
		return nil, err
	}
	files, err := b.services.Files(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = files.Close() }()
	content, err := readText(files, below)
	if e, ok := errors.AsType[*dray.Error](err); ok && e.Code == dray.CodePathInvalid {
		err = withErrno("EACCES", e) // a symlink leads out
	}
	return content, err
}

// beneath returns a path relative to the working directory.
func (b *broker) beneath(name string) (string, error) {
	below := name
	if path.IsAbs(name) {
		below, _ = strings.CutPrefix(path.Clean(name), path.Join(b.cwd, "/"))
		if below == path.Clean(name) && b.cwd != "/" || below != "" && b.cwd != "/" && below[0] != '/' {
			return "", outsideError(name, b.cwd)
		}
		below = strings.TrimPrefix(below, "/")
	}
	below = path.Clean(below)
	if below == ".." || strings.HasPrefix(below, "../") || strings.ContainsRune(below, 0) {
		return "", outsideError(name, b.cwd)
	}
	return below, nil
}

func outsideError(name, cwd string) error {
	return withErrno("EACCES", dray.Errorf(dray.CodePathInvalid, "%q is not beneath %s", name, cwd).
		WithHint("code can read files beneath the working directory of the call"))
}

func readText(files dray.Files, name string) ([]byte, error) {
	f, info, err := files.Open(name, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if info.Size > maxContent {
		return nil, fileTooLarge(name)
	}
	content, err := io.ReadAll(io.LimitReader(f, maxContent+1))
	switch {
	case err != nil:
		return nil, err
	case len(content) > maxContent:
		return nil, fileTooLarge(name)
	case !utf8.Valid(content):
		return nil, withErrno("EILSEQ", dray.Errorf(dray.CodeInvalidInput, "%s is not UTF-8", name).
			WithHint("read it with the tool read_file, which returns bytes as base64"))
	}
	return content, nil
}

func fileTooLarge(name string) error {
	return withErrno("EFBIG", dray.Errorf(dray.CodeLimitExceeded,
		"%s is larger than %d bytes", name, maxContent).
		WithHint("read it in parts with the tool read_file"))
}

func (b *broker) fetch(ctx context.Context, call fetchCall) (*fetchResponse, error) {
	if len(b.permissions.Network) == 0 {
		return nil, deniedError("send requests", "network")
	}
	if b.fetcher == nil {
		return nil, notAvailable("fetch")
	}
	hosts, err := parseHosts(b.permissions.Network)
	if err != nil {
		return nil, err
	}
	return b.fetcher.fetch(ctx, hosts, call, b.record)
}

// record records a request to a host.
func (b *broker) record(f dray.Fetch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.fetches) >= maxFetches {
		b.omitted++
		return
	}
	b.fetches = append(b.fetches, f)
}

// recorded returns what record got.
func (b *broker) recorded() (fetches []dray.Fetch, omitted int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fetches, b.omitted
}

func (b *broker) callTool(ctx context.Context, call toolCall) (json.RawMessage, error) {
	if b.services.CallTool == nil {
		return nil, notAvailable("call_tool")
	}
	input := call.Input
	if len(input) == 0 {
		input = json.RawMessage("{}")
	}
	return b.services.CallTool(ctx, call.Name, input, b.permissions)
}

// interrupt ends the call that has no answer yet, and one that the worker makes before it has seen
// the interrupt. signal makes the worker see it, before the result of the call.
func (b *broker) interrupt(signal func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.interrupts++
	signal()
	if b.pending != nil {
		b.pending(errInterrupted)
	}
}

// close ends the call that runs, and blocks until its work has ended. It is called when the request
// has ended, so that none starts any more.
func (b *broker) close() {
	b.cancel(errRequestEnded)
	b.mu.Lock()
	worked := b.worked
	b.mu.Unlock()
	<-worked
}

// idle returns a channel that is closed when there is no call without an answer.
func (b *broker) idle() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.answered
}

// errnoError is an error with the errno that code gets.
type errnoError struct {
	err   *dray.Error
	errno string
}

func (e *errnoError) Error() string { return e.err.Error() }
func (e *errnoError) Unwrap() error { return e.err }

func withErrno(errno string, err *dray.Error) error { return &errnoError{err, errno} }

func deniedError(what, key string) error {
	return withErrno("EACCES", dray.Errorf(dray.CodeDenied,
		"this session may not %s: it lacks the permission %s", what, key).
		WithHint("add it to python.permissions.%s in the configuration, and to the permissions of "+
			"the first call of the session if that names them", key))
}

func notAvailable(function string) error {
	return withErrno("ENOSYS", dray.Errorf(dray.CodeUnsupported,
		"dray.%s is not available in this session", function).
		WithHint("call the tool from outside of the session"))
}

// errnos are those of codes. Others are EIO.
var errnos = map[dray.Code]string{
	dray.CodeDenied: "EACCES", dray.CodeApprovalRequired: "EACCES", dray.CodePathInvalid: "EINVAL",
	dray.CodeNotFound: "ENOENT", dray.CodeUnsupported: "ENOSYS", dray.CodeInvalidInput: "EINVAL",
	dray.CodeInvalidRequest: "EINVAL", dray.CodeUnknownTool: "ENOENT", dray.CodeBadCwd: "ENOENT",
}

// describeBrokered returns what code gets of an error.
func describeBrokered(err error) *brokeredError {
	d := &brokeredError{Errno: "EIO", Message: err.Error()}
	if e, ok := errors.AsType[*dray.Error](err); ok {
		d.Code, d.Hint = string(e.Code), e.Hint
		if errno, ok := errnos[e.Code]; ok {
			d.Errno = errno
		}
	}
	switch e, ok := errors.AsType[*errnoError](err); {
	case ok:
		d.Errno = e.errno
	case errors.Is(err, fs.ErrNotExist):
		d.Errno, d.Code = "ENOENT", string(dray.CodeNotFound)
	case errors.Is(err, fs.ErrPermission):
		d.Errno, d.Code = "EACCES", string(dray.CodeDenied)
	case errors.Is(err, context.DeadlineExceeded):
		d.Errno = "ETIMEDOUT"
	}
	d.Message = truncate(strings.ToValidUTF8(d.Message, "\uFFFD"))
	d.Hint = truncate(strings.ToValidUTF8(d.Hint, "\uFFFD"))
	return d
}

// truncate bounds a message.
func truncate(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxMessage], "")
}

// heldStdin passes stdin on while no brokered call waits for its answer: the worker reads no stdin
// then, and would have to keep it.
type heldStdin struct {
	io.WriteCloser
	execution *execution
}

// Write blocks as the stdin of an execution does.
func (h heldStdin) Write(p []byte) (written int, err error) {
	for len(p) > 0 && err == nil {
		select {
		case <-h.execution.broker.idle():
		case <-h.execution.done:
		}
		var n int
		n, err = h.WriteCloser.Write(p[:min(len(p), maxStdin)])
		written += n
		p = p[n:]
	}
	return written, err
}
