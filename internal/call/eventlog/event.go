package eventlog

import (
	"encoding/base64"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray"
)

// Names of the events, as the contract lists them.
const (
	State    = "state"
	Progress = "progress"
	Stdout   = "stdout"
	Stderr   = "stderr"
	End      = "end"
)

// Event is one event of a call. Body is a JSON object in one line.
type Event struct {
	Seq  int64
	Name string
	Body []byte
}

// AppendSSE appends the event as one server-sent event.
func (e Event) AppendSSE(dst []byte) []byte {
	dst = append(dst, "id: "...)
	dst = strconv.AppendInt(dst, e.Seq, 10)
	dst = append(dst, "\nevent: "...)
	dst = append(dst, e.Name...)
	dst = append(dst, "\ndata: "...)
	dst = append(dst, e.Body...)
	return append(dst, "\n\n"...)
}

// AppendNDJSON appends the event as one line of JSON, with seq and event before the members of the
// body.
func (e Event) AppendNDJSON(dst []byte) []byte {
	dst = append(dst, `{"seq":`...)
	dst = strconv.AppendInt(dst, e.Seq, 10)
	dst = append(dst, `,"event":"`...)
	dst = append(dst, e.Name...)
	dst = append(dst, '"')
	if len(e.Body) > len("{}") {
		dst = append(dst, ',')
	}
	dst = append(dst, e.Body[1:]...)
	return append(dst, '\n')
}

const endOpen, endClose = `{"invocation":`, `}`

// EndBody is the body of a call's end event: the invocation in its JSON form.
func EndBody(invocation []byte) []byte {
	b := make([]byte, 0, len(endOpen)+len(invocation)+len(endClose))
	b = append(b, endOpen...)
	b = append(b, invocation...)
	return append(b, endClose...)
}

// Invocation gives what EndBody has put into a body, without a copy.
func Invocation(endBody []byte) []byte {
	end := len(endBody) - len(endClose)
	return endBody[len(endOpen):end:end]
}

// appendOutputBody appends the body of an output event: text where the bytes are UTF-8, else
// base64. Text that is mostly control characters goes as base64 too, because each of them would be
// written with six.
func appendOutputBody(dst []byte, offset int64, p []byte) []byte {
	dst = append(dst, `{"offset":`...)
	dst = strconv.AppendInt(dst, offset, 10)
	if utf8.Valid(p) && !escapesLong(p) {
		dst = append(dst, `,"text":`...)
		dst, _ = jsontext.AppendQuote(dst, p) // fails for invalid UTF-8 alone
		return append(dst, '}')
	}
	dst = append(dst, `,"base64":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, p)
	return append(dst, `"}`...)
}

// escapesLong says that JSON would need more than half as much again for the escapes alone. Of what
// is short, text is more use.
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

// incomplete counts the bytes at the end of p that begin a character and do not end it: at most 3.
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
