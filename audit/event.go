package audit

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/dray-dev/dray"
)

// kind says what an event tells.
type kind string

const (
	begun       kind = "begun"
	ended       kind = "ended"
	interrupted kind = "interrupted"
)

// event is one row of the trail.
type event struct {
	seq        int64
	invocation string
	kind       kind
	at         int64 // nanoseconds since 1970 UTC
	body       []byte
}

// canonical gives the bytes that stand for the event in a Merkle log; the package's documentation
// describes them for others.
func (e event) canonical() []byte {
	return fmt.Appendf(nil, "dray event v1\n%d\n%d\n%s\n%s\n%x\n", e.seq, e.at, e.kind, e.invocation,
		sha256.Sum256(e.body))
}

// leaf is the RFC 6962 leaf hash of the event.
func (e event) leaf() tlog.Hash {
	return tlog.RecordHash(e.canonical())
}

// validID says whether s is a UUID in lower case: what may stand in a line of the canonical bytes.
func validID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i, c := range []byte(s) {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		hex := c >= '0' && c <= '9' || c >= 'a' && c <= 'f'
		if dash && c != '-' || !dash && !hex {
			return false
		}
	}
	return true
}

// maxInline is how much of an input or output stands in the body of an event; what is longer lies
// in a file.
const maxInline = 8 << 10

// beginBody is the body of a begun event: the invocation as it was accepted. Two fields of it are
// shadowed: of the environment only the names are kept, and a long input is in a file.
type beginBody struct {
	dray.Invocation
	Env       []string        `json:"env,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	InputFile *blobRef        `json:"input_file,omitempty"`
	StartedAt time.Time       `json:"started_at"`
}

// endBody is the body of an ended or interrupted event. Duration is in nanoseconds; an interrupted
// call has none.
type endBody struct {
	Status     dray.Status        `json:"status"`
	Reason     dray.Reason        `json:"reason"`
	ExitCode   *int               `json:"exit_code"`
	Signal     *dray.Signal       `json:"signal"`
	Stdout     dray.StreamSummary `json:"stdout"`
	Stderr     dray.StreamSummary `json:"stderr"`
	Error      *dray.Error        `json:"error"`
	Route      dray.Route         `json:"route"`
	Metadata   dray.Metadata      `json:"metadata"`
	EndedAt    time.Time          `json:"ended_at"`
	Duration   *time.Duration     `json:"duration_ns"`
	Output     json.RawMessage    `json:"output,omitempty"`
	OutputFile *blobRef           `json:"output_file,omitempty"`
	// ListsFile holds the lists of the metadata where they are longer than they are here.
	ListsFile *blobRef `json:"lists_file,omitempty"`
}

// encodeBegin gives the body of a begun event and, where the input is too long for it, the file
// that holds it. An input that is not JSON is left out and told as unfit; the body is good all the
// same.
func encodeBegin(inv dray.Invocation, at time.Time, files *blobStore) (body []byte, file *blobRef,
	unfit, err error,
) {
	b := beginBody{Invocation: inv, Env: slices.Sorted(maps.Keys(inv.Env)), StartedAt: at}
	inline, file, err := inlineOrBlob(inv.Input, files)
	if errors.Is(err, errNotJSON) {
		unfit, err = err, nil
	}
	if err != nil {
		return nil, nil, nil, fmt.Errorf("keep the input: %w", err)
	}
	b.InputFile = file
	body, err = encode(b, "input", inline)
	return body, file, unfit, err
}

// encodeEnd gives the body of an ended event and, where the output is too long for it, the file
// that holds it.
func encodeEnd(res dray.Result, files *blobStore) ([]byte, *blobRef, error) {
	inline, file, err := inlineOrBlob(res.Output, files)
	if err != nil {
		return nil, nil, fmt.Errorf("keep the output: %w", err)
	}
	metadata, lists, err := storeLists(res.Metadata, files)
	if err != nil {
		return nil, nil, fmt.Errorf("keep the lists of files: %w", err)
	}
	body, err := encode(endBody{
		Status: res.Status, Reason: res.Reason, ExitCode: res.ExitCode, Signal: res.Signal, Stdout: res.Stdout, Stderr: res.Stderr,
		Error: res.Error, Route: res.Route, Metadata: metadata, EndedAt: res.EndedAt, Duration: &res.Duration, OutputFile: file, ListsFile: lists,
	}, "output", inline)
	return body, file, err
}

var errNotJSON = errors.New("it is not valid JSON")

// inlineOrBlob decides where a JSON value lies: in the body, or in a file that is durable when
// place returns.
func inlineOrBlob(raw json.RawMessage, files *blobStore) (inline json.RawMessage, file *blobRef,
	err error,
) {
	switch {
	case len(raw) == 0:
		return nil, nil, nil
	case !isJSON(raw):
		return nil, nil, errNotJSON
	case len(raw) <= maxInline:
		return raw, nil, nil
	}
	ref, err := files.put(raw)
	if err != nil {
		return nil, nil, err
	}
	return nil, &ref, nil
}

// isJSON says what json.Valid does, and is faster: outputs may be long.
func isJSON(raw json.RawMessage) bool {
	return jsontext.Value(raw).IsValid(jsontext.AllowDuplicateNames(true),
		jsontext.AllowInvalidUTF8(true))
}

// encode marshals v, an object, and adds the member name with the very bytes of raw: the encoder
// would strip its spaces, and a record shall read back equal.
func encode(v any, name string, raw json.RawMessage) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode the event: %w", err)
	}
	if raw == nil {
		return body, nil
	}
	body = fmt.Appendf(body[:len(body)-1], ",%q:", name)
	return append(append(body, raw...), '}'), nil
}

// maxInlineEntries is how many entries of each of its lists of files a body has. All of them stand
// in a file beside the database where there are more: a sync of ten thousand files is megabytes,
// which nobody wants to read to see that there was one.
const maxInlineEntries = 10

// fileLists are the lists of a result's metadata that grow with what a call did.
type fileLists struct {
	Files   []dray.SyncedFile  `json:"files"`
	Refused []dray.RefusedPath `json:"refused"`
	Landed  []dray.SyncTarget  `json:"landed"`
	Changes []dray.FileChange  `json:"changes"`
}

// truncateLists gives metadata whose lists have at most maxInlineEntries entries and say how many
// more there are, and the whole lists; nil where all of them are that short.
func truncateLists(m dray.Metadata) (dray.Metadata, *fileLists) {
	var all fileLists
	all.Changes = m.Changes
	m.Changes, m.ChangesOmitted = truncate(m.Changes)
	omitted := m.ChangesOmitted
	if m.Sync != nil {
		all.Files, all.Refused, all.Landed = m.Sync.Files, m.Sync.Refused, m.Sync.Targets
		report := *m.Sync
		report.Files, report.FilesOmitted = truncate(report.Files)
		report.Refused, report.RefusedOmitted = truncate(report.Refused)
		report.Targets, report.TargetsOmitted = truncate(report.Targets)
		m.Sync = &report
		omitted += report.FilesOmitted + report.RefusedOmitted + report.TargetsOmitted
	}
	if omitted == 0 {
		return m, nil
	}
	return m, &all
}

func truncate[T any](list []T) (some []T, omitted int) {
	n := min(len(list), maxInlineEntries)
	return list[:n:n], len(list) - n
}

// storeLists gives the metadata for the body and the file that holds what was cut off, which is
// durable when storeLists returns.
func storeLists(m dray.Metadata, files *blobStore) (dray.Metadata, *blobRef, error) {
	m, all := truncateLists(m)
	if all == nil {
		return m, nil, nil
	}
	raw, err := json.Marshal(all)
	if err != nil {
		return m, nil, fmt.Errorf("encode the lists of files: %w", err)
	}
	ref, err := files.put(raw)
	return m, &ref, err
}

// loadLists puts the whole lists back.
func loadLists(m *dray.Metadata, ref *blobRef, files *blobStore) error {
	if ref == nil || files == nil {
		return nil
	}
	raw, err := files.get(*ref)
	if err != nil {
		return err
	}
	var all fileLists
	if err := json.Unmarshal(raw, &all); err != nil {
		return fmt.Errorf("read the lists of files: %w", err)
	}
	m.Changes, m.ChangesOmitted = all.Changes, 0
	if m.Sync != nil {
		m.Sync.Files, m.Sync.FilesOmitted = all.Files, 0
		m.Sync.Refused, m.Sync.RefusedOmitted = all.Refused, 0
		m.Sync.Targets, m.Sync.TargetsOmitted = all.Landed, 0
	}
	return nil
}
