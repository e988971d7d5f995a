package mcp

import (
	"net/http"
	"strings"
)

const methodCancelled = "notifications/cancelled"

// methodWriter answers a request for an unknown method with the error of JSON-RPC. For revisions
// with sessions the SDK answers HTTP 400 with a text, without the id of the request: the status 400
// is withheld until its text is written.
type methodWriter struct {
	http.ResponseWriter
	body     []byte // of the request
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
	m, err := parseMessage(w.body)
	if err != nil || !m.isRequest() {
		return false
	}
	w.Header().Set("Content-Type", mediaJSON)
	w.ResponseWriter.WriteHeader(http.StatusOK)
	// a client that has disconnected needs no answer
	_, _ = w.ResponseWriter.Write(errorReply(m.ID, codeMethod, "method not found: "+m.Method))
	return true
}
