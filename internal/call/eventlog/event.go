package eventlog

import (
	"encoding/base64"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray"
)

// Names of the events, which are part of the contract.
const (
	State    = "state"
	Progress = "progress"
	Stdout   = "stdout"
	Stderr   = "stderr"
	End      = "end"
)

// Event is one event of a call. At is when it happened: for output, when its first byte arrived.
// Body is a JSON object without line breaks.
type Event struct {
	Seq  int64
	Name string
	At   time.Time
	Body []byte
}

// AppendSSE appends the event to dst as a server-sent event.
func (e Event) AppendSSE(dst []byte) []byte {
	dst = append(dst, "id: "...)
	dst = strconv.AppendInt(dst, e.Seq, 10)
	dst = append(dst, "\nevent: "...)
	dst = append(dst, e.Name...)
	dst = append(dst, "\ndata: {"...)
	dst = e.appendMembers(dst)
	return append(dst, "\n\n"...)
}

// AppendNDJSON appends the event to dst as a line of JSON: seq, event, and the members of the data
// of a server-sent event.
func (e Event) AppendNDJSON(dst []byte) []byte {
	dst = append(dst, `{"seq":`...)
	dst = strconv.AppendInt(dst, e.Seq, 10)
	dst = append(dst, `,"event":"`...)
	dst = append(dst, e.Name...)
	dst = append(dst, `",`...)
	dst = e.appendMembers(dst)
	return append(dst, '\n')
}

// appendMembers appends the member at, the members of the body and the closing brace.
func (e Event) appendMembers(dst []byte) []byte {
	dst = append(dst, `"at":"`...)
	dst = e.At.UTC().AppendFormat(dst, time.RFC3339Nano)
	dst = append(dst, '"')
	if len(e.Body) > len("{}") {
		dst = append(dst, ',')
	}
	return append(dst, e.Body[1:]...)
}

const endOpen, endClose = `{"invocation":`, `}`

// EndBody returns the body of the end event of a call. invocation is JSON.
func EndBody(invocation []byte) []byte {
	b := make([]byte, 0, len(endOpen)+len(invocation)+len(endClose))
	b = append(b, endOpen...)
	b = append(b, invocation...)
	return append(b, endClose...)
}

// Invocation returns the invocation in a body that EndBody made. It shares the memory of the body.
func Invocation(endBody []byte) []byte {
	end := len(endBody) - len(endClose)
	return endBody[len(endOpen):end:end]
}

// appendOutputBody appends the body of an output event: text if the bytes are UTF-8, else base64.
// Text with many control characters is base64 too, because JSON escapes each with six bytes.
func appendOutputBody(dst []byte, offset int64, p []byte) []byte {
	dst = append(dst, `{"offset":`...)
	dst = strconv.AppendInt(dst, offset, 10)
	if utf8.Valid(p) && !escapesLong(p) {
		dst = append(dst, `,"text":`...)
		dst, _ = jsontext.AppendQuote(dst, p) // it fails only for invalid UTF-8
		return append(dst, '}')
	}
	dst = append(dst, `,"base64":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, p)
	return append(dst, `"}`...)
}

// escapesLong reports whether escapes would add more than half of the length of p. It is false for
// short output, which is more useful as text.
func escapesLong(p []byte) bool {
	if len(p) < 4<<10 {
		return false
	}
	long := 0
	for _, c := range p {
		if c < ' ' && c != '\n' && c != '\t' && c != '\r' {
			long++
		}
	}
	return long > len(p)/10
}

// incomplete returns the number of bytes, at most 3, of an incomplete character at the end of p.
func incomplete(p []byte) int {
	for n := 1; n <= min(len(p), utf8.UTFMax-1); n++ {
		if rest := p[len(p)-n:]; utf8.RuneStart(rest[0]) {
			if utf8.FullRune(rest) {
				return 0
			}
			return n
		}
	}
	return 0
}

func nameOf(s dray.Stream) string {
	if s == dray.Stderr {
		return Stderr
	}
	return Stdout
}
