package client

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// BenchmarkStream measures the bytes of output per second that the client reads.
func BenchmarkStream(b *testing.B) {
	const piece, pieces = 32 << 10, 64 // as the daemon sends it
	random := make([]byte, piece)
	_, _ = rand.Read(random)
	text, _ := jsontext.AppendQuote(nil,
		strings.Repeat("ok\tgithub.com/dray-dev/dray 0.1\n", piece/32))
	zeros, _ := jsontext.AppendQuote(nil, make([]byte, piece))
	for name, member := range map[string]string{
		"text":   `"text":` + string(text),
		"zeros":  `"text":` + string(zeros),
		"base64": `"base64":"` + base64.StdEncoding.EncodeToString(random) + `"`,
	} {
		b.Run(name, func(b *testing.B) {
			var events bytes.Buffer
			events.WriteString(accepted)
			for i := range pieces {
				fmt.Fprintf(&events, `{"seq":%d,"event":"stdout","offset":%d,%s}`+"\n", i+2, i*piece, member)
			}
			b.SetBytes(piece * pieces)
			for b.Loop() {
				s, err := newStream(&http.Response{Body: io.NopCloser(bytes.NewReader(events.Bytes()))})
				if err != nil {
					b.Fatal(err)
				}
				for range pieces {
					if _, err := s.Next(); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
