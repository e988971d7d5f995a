package command

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// malformed are bodies of calls of which %s is the part that is valid; each would run if one of its
// readings were taken.
var malformed = map[string]string{
	"duplicate member":                `{%s,"tool":"exec"}`,
	"duplicate member, another value": `{"tool":"shell",%s}`,
	"duplicate by an escape":          `{%s,"\u0074ool":"exec"}`,
	"duplicate in another case":       `{%s,"Tool":"exec"}`,
	"duplicate, all in upper case":    `{%s,"INPUT":{}}`,
	"duplicate in an object":          `{%s,"env":{"A":"1","A":"2"}}`,
	"unknown member":                  `{%s,"colour":1}`,
	"member __proto__":                `{%s,"__proto__":{}}`,
	"NaN":                             `{%s,"timeout_seconds":NaN}`,
	"Infinity":                        `{%s,"timeout_seconds":Infinity}`,
	"1e400":                           `{%s,"timeout_seconds":1e400}`,
	"-1e400":                          `{%s,"timeout_seconds":-1e400}`,
	"2^53+1":                          `{%s,"tty":{"columns":9007199254740993,"rows":1}}`,
	"2^64":                            `{%s,"tty":{"columns":18446744073709551616,"rows":1}}`,
	"hexadecimal":                     `{%s,"timeout_seconds":0x10}`,
	"leading zero":                    `{%s,"timeout_seconds":010}`,
	"leading plus":                    `{%s,"timeout_seconds":+1}`,
	"no digits after the point":       `{%s,"timeout_seconds":1.}`,
	"byte order mark":                 "\xef\xbb\xbf{%s}",
	"UTF-16":                          "\xff\xfe{\x00%s}\x00",
	"invalid UTF-8":                   "{%s,\"cwd\":\"\xff\"}",
	"overlong UTF-8":                  "{%s,\"cwd\":\"\xc0\xaf\"}",
	"lone surrogate":                  `{%s,"cwd":"\ud800"}`,
	"control character":               "{%s,\"cwd\":\"a\nb\"}",
	"unknown escape":                  `{%s,"cwd":"\x41"}`,
	"trailing document":               `{%s}{}`,
	"trailing text":                   `{%s} x`,
	"trailing NUL":                    "{%s}\x00",
	"trailing comma":                  `{%s,}`,
	"comment":                         `{%s/* x */}`,
	"single quotes":                   `{%s,'cwd':''}`,
	"name without quotes":             `{%s,cwd:""}`,
	"array around":                    `[{%s}]`,
	"not closed":                      `{%s`,
	"null":                            `{%s,"cwd":null}`,
	"another type":                    `{%s,"env":[]}`,
	"nested deeply":                   `{%s,"context":` + nested + `}`,
	"NDJSON":                          "{%s}\n{%[1]s}",
}

var nested = strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)

// Malformed JSON is refused and runs nothing, judged by the file that a run makes; the daemon does
// not grow (SE-03).
func TestAccess_MalformedJSON(t *testing.T) {
	d := startAccessDaemon(t)
	post := func(headers, body string) (int, string) {
		return d.raw("POST /v1/invocations HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" +
			"Content-Type: application/json\r\nAuthorization: Bearer " + d.token + "\r\n" + headers + "\r\n\r\n" + body)
	}
	length := func(body string) string { return "Content-Length: " + strconv.Itoa(len(body)) }
	before := d.peakMemory()
	for name, form := range malformed {
		valid, file := d.writes(d.work, "ran")
		body := fmt.Sprintf(form, strings.TrimSuffix(strings.TrimPrefix(valid, "{"), "}"))
		status, got := post(length(body), body)
		if _, err := os.Stat(file); status != 400 || !strings.Contains(got, `"code":"invalid_request"`) || err == nil {
			t.Errorf("%s: %d %.300s, file %v", name, status, got, err)
		}
		_ = os.Remove(file)
	}
	if status, _ := post("Content-Length: 2147483648", "{"); status != 413 {
		t.Errorf("2 GB: %d", status)
	}
	if status := d.flood(t, 2<<30); status != 413 {
		t.Errorf("2 GB in chunks: %d", status)
	}
	if grown := d.peakMemory() - before; grown > 128<<10 {
		t.Errorf("the daemon grew by %d KiB", grown)
	}
}

// peakMemory returns the maximum of the daemon's resident memory in KiB.
func (d *accessDaemon) peakMemory() int {
	d.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.pid))
	if err != nil {
		d.t.Fatal(err)
	}
	peak := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	n, err := strconv.Atoi(string(peak[1]))
	if err != nil {
		d.t.Fatal(err)
	}
	return n
}

// flood sends a body of up to so many bytes in chunks, until the daemon responds and closes the
// connection, and returns the status.
func (d *accessDaemon) flood(t *testing.T, size int) (status int) {
	t.Helper()
	conn, err := net.Dial("tcp", d.tcp)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "POST /v1/invocations HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
		"Authorization: Bearer "+d.token+"\r\nTransfer-Encoding: chunked\r\n\r\n")
	head := make(chan string, 1)
	go func() {
		b := make([]byte, 12)
		n, _ := io.ReadFull(conn, b)
		head <- string(b[:n])
	}()
	chunk := []byte("100000\r\n" + strings.Repeat("[", 1<<20) + "\r\n")
	for range size >> 20 {
		if _, err := conn.Write(chunk); err != nil {
			break
		}
	}
	_, _ = fmt.Sscanf(<-head, "HTTP/1.1 %d", &status)
	return status
}

// Integers reach the tool digit for digit, of any size (SE-03).
func TestAccess_BigIntegers(t *testing.T) {
	d := startAccessDaemon(t)
	const input = `{"a":9007199254740993,"b":-123456789012345678901234567890,"c":1e400,"d":1.10}`
	file := filepath.Join(d.work, "input")
	body := fmt.Sprintf(`{"tool":"keep","workspace":%q,"environment":"host","input":%s}`, d.work, input)
	status, got := d.raw("POST /v1/invocations HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" +
		"Content-Type: application/json\r\nAuthorization: Bearer " + d.token + "\r\n" +
		fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body))
	text, err := os.ReadFile(file)
	if status != 200 || err != nil || string(text) != input {
		t.Fatalf("%d, %v, the tool got %s", status, err, text)
	}
	var rec struct{ Input json.RawMessage }
	if err := json.Unmarshal([]byte(got), &rec); err != nil || string(rec.Input) != input {
		t.Errorf("the record has %s, %v", rec.Input, err)
	}
}
