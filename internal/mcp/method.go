package mcp

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
)

const (
	codeMethod      = -32601
	methodCancelled = "notifications/cancelled"
	// maxRecorded bounds the beginning of a request that is kept for its id, in bytes.
	maxRecorded = 64 << 10
)

// answerUnknown returns a handler that answers a request for an unknown method with the error of
// JSON-RPC. For revisions with sessions the SDK answers HTTP 400 with a text, without the id of the
// request.
func answerUnknown(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			next.ServeHTTP(w, r)
			return
		}
		body := &recorder{ReadCloser: r.Body}
		r = r.WithContext(r.Context()) // a copy, because a handler changes no request
		r.Body = body
		mw := &methodWriter{ResponseWriter: w, body: body}
		next.ServeHTTP(mw, r)
		mw.release()
	})
}

// recorder keeps the beginning of a body that is read.
type recorder struct {
	io.ReadCloser
	text []byte
}

func (r *recorder) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.text = append(r.text, p[:min(n, maxRecorded-len(r.text))]...)
	return n, err
}

// methodWriter withholds the status 400 until its text is written.
type methodWriter struct {
	http.ResponseWriter
	body     *recorder
	withheld bool
	dropped  bool // the rest of the SDK's text, in whose place the error was sent
}

func (w *methodWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *methodWriter) WriteHeader(status int) {
	if w.withheld = status == http.StatusBadRequest; !w.withheld {
		w.ResponseWriter.WriteHeader(status)
	}
}

func (w *methodWriter) Write(p []byte) (int, error) {
	if w.dropped {
		return len(p), nil
	}
	if w.withheld && w.answer(strings.TrimSpace(string(p))) {
		w.withheld, w.dropped = false, true
		return len(p), nil
	}
	w.release()
	return w.ResponseWriter.Write(p)
}

// release writes a withheld status.
func (w *methodWriter) release() {
	if w.withheld {
		w.withheld = false
		w.ResponseWriter.WriteHeader(http.StatusBadRequest)
	}
}

// answer writes the error of JSON-RPC if a text is the SDK's for an unknown method.
func (w *methodWriter) answer(text string) bool {
	if !strings.HasSuffix(text, `" unsupported`) {
		return false
	}
	m, err := parseMessage(w.body.text)
	if err != nil || !m.isRequest() {
		return false
	}
	reply, err := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": m.ID,
		"error": map[string]any{"code": codeMethod, "message": "method not found: " + m.Method},
	})
	if err != nil {
		return false
	}
	w.Header().Set("Content-Type", mediaJSON)
	w.ResponseWriter.WriteHeader(http.StatusOK)
	_, _ = w.ResponseWriter.Write(reply) // a client that has disconnected needs no answer
	return true
}
