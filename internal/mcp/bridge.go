package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"

	"github.com/dray-dev/dray"
)

// Bridge connects a client on stdin and stdout to /mcp of a daemon. A message that is malformed or
// too long, or that cannot be sent to the daemon, gets an error as its response; the bridge goes
// on.
type Bridge struct {
	// Do sends a request to the daemon.
	Do func(*http.Request) (*http.Response, error)
	// Path is /mcp, and in its query the defaults of calls.
	Path string
	In   io.Reader
	Out  io.Writer
	// MaxMessage is the maximum length of a message in bytes.
	MaxMessage int

	writing sync.Mutex // guards Out and failed
	failed  error      // of Out

	mu      sync.Mutex // guards the fields below
	session string
	version string // that initialize has agreed on
	pending map[string]context.CancelFunc
}

// Run passes messages on until In ends and all requests have their responses, or ctx ends.
func (b *Bridge) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b.pending = map[string]context.CancelFunc{}
	lines := make(chan line)
	go readLines(ctx, b.In, b.MaxMessage, lines)
	var requests, events sync.WaitGroup
	for {
		select {
		case <-ctx.Done():
			requests.Wait()
			return context.Cause(ctx)
		case l, ok := <-lines:
			if !ok {
				requests.Wait()
				b.endSession(ctx)
				cancel()
				events.Wait()
				return b.outError()
			}
			b.handle(ctx, l, &requests, &events)
		}
	}
}

// line is a message of the client, or why there is none.
type line struct {
	text []byte
	err  error
}

var errTooLong = errors.New("the message is too long")

// readLines sends the lines of r that are not empty. For one that is too long it sends errTooLong.
func readLines(ctx context.Context, r io.Reader, limit int, lines chan<- line) {
	defer close(lines)
	in := bufio.NewReaderSize(r, 64<<10)
	for {
		l, err := readLine(in, limit)
		if len(l.text) > 0 || l.err != nil {
			select {
			case lines <- l:
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func readLine(in *bufio.Reader, limit int) (l line, err error) {
	for {
		part, err := in.ReadSlice('\n')
		if len(l.text)+len(part) > limit {
			l.err, l.text = errTooLong, nil
		}
		if l.err == nil {
			l.text = append(l.text, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			l.text = bytes.TrimSpace(l.text)
			return l, err
		}
	}
}

// rpcMessage is what the bridge needs of a message.
type rpcMessage struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	params rpcParams
	batch  bool // of several messages
	// answered reports whether the client waits for a response: to a request, and to a text that is
	// not a message.
	answered bool
}

type rpcParams struct {
	Name      string          `json:"name"`
	URI       string          `json:"uri"`
	TaskID    string          `json:"taskId"`
	RequestID json.RawMessage `json:"requestId"`
	Meta      struct {
		Version string `json:"io.modelcontextprotocol/protocolVersion"`
	} `json:"_meta"`
}

// parseMessage parses a message. It fails only for a text that is not JSON: the daemon refuses
// members of wrong types, in a response with the id of the request.
func parseMessage(text []byte) (rpcMessage, error) {
	var m rpcMessage
	if !json.Valid(text) {
		return m, errors.New("the message is not JSON")
	}
	if text[0] == '[' {
		return rpcMessage{batch: true, answered: true}, nil
	}
	var members struct {
		ID     json.RawMessage `json:"id"`
		Method json.RawMessage `json:"method"`
		Params json.RawMessage `json:"params"`
		Result json.RawMessage `json:"result"`
		Error  json.RawMessage `json:"error"`
	}
	_ = json.Unmarshal(text, &members)
	_ = json.Unmarshal(members.Method, &m.Method)
	_ = json.Unmarshal(members.Params, &m.params)
	m.ID = members.ID
	response := m.Method == "" && len(members.Result)+len(members.Error) > 0
	m.answered = !response && (m.Method == "" || len(m.ID) > 0)
	return m, nil
}

func (m *rpcMessage) isRequest() bool { return m.Method != "" && len(m.ID) > 0 }

// handle passes a message on. Requests run concurrently; other messages keep their order.
func (b *Bridge) handle(ctx context.Context, l line, requests, events *sync.WaitGroup) {
	if l.err != nil {
		b.fail(nil, codeRequest, fmt.Sprintf("%v: the maximum is %d bytes", l.err, b.MaxMessage))
		return
	}
	m, err := parseMessage(l.text)
	if err != nil {
		b.fail(nil, codeParse, err.Error())
		return
	}
	if m.Method == methodCancelled && b.cancelRequest(m.params.RequestID) {
		return
	}
	switch {
	case m.batch:
		requests.Go(func() { b.post(ctx, l.text, m) })
		return
	case !m.isRequest():
		b.post(ctx, l.text, m)
		return
	}
	request, cancel := context.WithCancel(ctx)
	b.mu.Lock()
	b.pending[string(m.ID)] = cancel
	b.mu.Unlock()
	run := func() {
		defer cancel()
		b.post(request, l.text, m)
		b.mu.Lock()
		delete(b.pending, string(m.ID))
		b.mu.Unlock()
	}
	if m.Method != "initialize" {
		requests.Go(run)
		return
	}
	run() // the messages after it need the session
	events.Go(func() { b.followEvents(ctx) })
}

// cancelRequest closes a request of a client without a session, and reports whether there was one.
// With a session the daemon must get the notification.
func (b *Bridge) cancelRequest(id json.RawMessage) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	cancel, ok := b.pending[string(id)]
	if ok = ok && b.session == ""; ok {
		cancel()
	}
	return ok
}

// post sends a message to the daemon and writes the messages of its response.
func (b *Bridge) post(ctx context.Context, text []byte, m rpcMessage) {
	resp, err := b.send(ctx, http.MethodPost, text, m)
	if err != nil {
		if ctx.Err() == nil && m.answered {
			e := dray.AsError(err)
			b.fail(m.ID, codeInternal, strings.TrimSuffix(e.Message+": "+e.Hint, ": "))
		}
		return
	}
	defer resp.Body.Close()
	if m.Method == "initialize" {
		b.mu.Lock()
		b.session = resp.Header.Get(sessionHeader)
		b.mu.Unlock()
	}
	err = b.copyMessages(resp, m.Method == "initialize")
	if err != nil && ctx.Err() == nil && m.answered {
		b.fail(m.ID, codeInternal, err.Error())
	}
}

func (b *Bridge) send(ctx context.Context, method string, text []byte, m rpcMessage,
) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://localhost"+b.Path,
		bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	h := req.Header
	h.Set("Content-Type", mediaJSON)
	h.Set("Accept", mediaJSON+", "+mediaSSE)
	b.mu.Lock()
	session, version := b.session, b.version
	b.mu.Unlock()
	if v := m.params.Meta.Version; v >= statelessRevision {
		h.Set(versionHeader, v)
		h.Set(methodHeader, m.Method)
		if name := m.params.Name + m.params.URI + m.params.TaskID; name != "" {
			h.Set(nameHeader, name)
		}
		return b.Do(req)
	}
	if session != "" {
		h.Set(sessionHeader, session)
	}
	if version != "" {
		h.Set(versionHeader, version)
	}
	return b.Do(req)
}

const (
	mediaJSON = "application/json"
	mediaSSE  = "text/event-stream"
)

// copyMessages writes the messages in a response.
func (b *Bridge) copyMessages(resp *http.Response, initialize bool) error {
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	use := func(message []byte) {
		if initialize {
			b.agree(message)
		}
		b.write(message)
	}
	switch {
	case resp.StatusCode == http.StatusAccepted:
		return nil
	case media == mediaSSE:
		return readEvents(resp.Body, use)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("read the response of the daemon: %w", err)
	}
	if media == mediaJSON {
		use(body)
		return nil
	}
	return fmt.Errorf("the daemon answered %s: %s", resp.Status, bytes.TrimSpace(body))
}

// agree stores the revision in the response to initialize.
func (b *Bridge) agree(message []byte) {
	var reply struct {
		Result struct {
			Version string `json:"protocolVersion"`
		} `json:"result"`
	}
	if json.Unmarshal(message, &reply) == nil && reply.Result.Version != "" {
		b.mu.Lock()
		b.version = reply.Result.Version
		b.mu.Unlock()
	}
}

// followEvents writes the messages that the daemon sends without a request, such as a change of the
// list of tools.
func (b *Bridge) followEvents(ctx context.Context) {
	b.mu.Lock()
	session := b.session
	b.mu.Unlock()
	if session == "" {
		return
	}
	resp, err := b.send(ctx, http.MethodGet, nil, rpcMessage{})
	if err != nil {
		return // a client works without these events
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		_ = readEvents(resp.Body, b.write)
	}
}

// endSession deletes the session.
func (b *Bridge) endSession(ctx context.Context) {
	b.mu.Lock()
	session := b.session
	b.mu.Unlock()
	if session == "" {
		return
	}
	if resp, err := b.send(ctx, http.MethodDelete, nil, rpcMessage{}); err == nil {
		_ = resp.Body.Close()
	}
}

// readEvents calls use with the data of each server-sent event.
func readEvents(r io.Reader, use func([]byte)) error {
	in := bufio.NewReaderSize(r, 64<<10)
	var data []byte
	for {
		text, err := in.ReadBytes('\n')
		text = bytes.TrimRight(text, "\r\n")
		if value, ok := bytes.CutPrefix(text, []byte("data:")); ok {
			data = append(data, bytes.TrimPrefix(value, []byte(" "))...)
		}
		if len(text) == 0 && len(data) > 0 {
			use(data)
			data = nil
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the response of the daemon: %w", err)
		}
	}
}

// fail writes an error as the response to a request, or to a message without an id.
func (b *Bridge) fail(id json.RawMessage, code int, text string) {
	b.write(errorReply(id, code, text))
}

// write writes a message as a line.
func (b *Bridge) write(message []byte) {
	var compact bytes.Buffer
	if json.Compact(&compact, message) != nil {
		return
	}
	compact.WriteByte('\n')
	b.writing.Lock()
	defer b.writing.Unlock()
	if b.failed == nil {
		_, b.failed = b.Out.Write(compact.Bytes())
	}
}

func (b *Bridge) outError() error {
	b.writing.Lock()
	defer b.writing.Unlock()
	return b.failed
}
