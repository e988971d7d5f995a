package audit

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/dray-dev/dray"
)

// kind is the kind of an event.
type kind string

const (
	begun       kind = "begun"
	ended       kind = "ended"
	interrupted kind = "interrupted"
)

// event is one row of the table events.
type event struct {
	seq        int64
	invocation string
	kind       kind
	at         int64 // nanoseconds since 1970 UTC
	body       []byte
}

// canonical returns the bytes of the event that a Merkle log hashes. The package documentation
// defines them.
func (e event) canonical() []byte {
	return fmt.Appendf(nil, "dray event v1\n%d\n%d\n%s\n%s\n%x\n", e.seq, e.at, e.kind, e.invocation,
		sha256.Sum256(e.body))
}

// leaf returns the RFC 6962 leaf hash of the event.
func (e event) leaf() tlog.Hash { return tlog.RecordHash(e.canonical()) }

// lowerUUID matches a lower-case UUID, as the canonical bytes require.
var lowerUUID = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// maxInline is the maximum size in bytes of an input or output in the body of an event. Longer ones
// are files.
const maxInline = 8 << 10

// beginBody is the body of a begun event: the accepted invocation and its route. Two of its fields
// are shadowed: the environment has only the names, and a long input is a file.
type beginBody struct {
	dray.Invocation
	Env       []string        `json:"env,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	InputFile *blobRef        `json:"input_file,omitempty"`
	Route     dray.Route      `json:"route"` // events of older versions have none
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
	// ListsFile contains the complete lists of the metadata if they are truncated here.
	ListsFile *blobRef `json:"lists_file,omitempty"`
}

// encodeBegin returns the body of a begun event, and the reference of an input that is too long for
// it. An input that is not JSON is omitted and reported by inputErr.
func encodeBegin(call dray.Call, at time.Time, blobs *blobStore) (
	body []byte, ref *blobRef, inputErr, err error,
) {
	inv := call.Invocation
	b := beginBody{
		Invocation: inv, Env: slices.Sorted(maps.Keys(inv.Env)), Route: call.Route, StartedAt: at,
	}
	inline, ref, err := inlineOrBlob(inv.Input, blobs)
	if errors.Is(err, errNotJSON) {
		inputErr, err = err, nil
	}
	if err != nil {
		return nil, nil, nil, fmt.Errorf("store the input: %w", err)
	}
	b.InputFile = ref
	body, err = encode(b, "input", inline)
	return body, ref, inputErr, err
}

// encodeEnd returns the body of an ended event, and the reference of an output that is too long for
// it.
func encodeEnd(res dray.Result, blobs *blobStore) ([]byte, *blobRef, error) {
	inline, ref, err := inlineOrBlob(res.Output, blobs)
	if err != nil {
		return nil, nil, fmt.Errorf("store the output: %w", err)
	}
	metadata, lists, err := storeLists(res.Metadata, blobs)
	if err != nil {
		return nil, nil, fmt.Errorf("store the lists of files: %w", err)
	}
	body, err := encode(endBody{
		Status: res.Status, Reason: res.Reason, ExitCode: res.ExitCode, Signal: res.Signal,
		Stdout: res.Stdout, Stderr: res.Stderr, Error: res.Error, Route: res.Route,
		Metadata: metadata, EndedAt: res.EndedAt, Duration: &res.Duration,
		OutputFile: ref, ListsFile: lists,
	}, "output", inline)
	return body, ref, err
}

var errNotJSON = errors.New("it is not valid JSON")

// inlineOrBlob returns a JSON value for the body, or the reference of a file that is durable when
// inlineOrBlob returns.
func inlineOrBlob(raw json.RawMessage, blobs *blobStore) (json.RawMessage, *blobRef, error) {
	switch {
	case len(raw) == 0:
		return nil, nil, nil
	case !isJSON(raw):
		return nil, nil, errNotJSON
	case len(raw) <= maxInline:
		return raw, nil, nil
	}
	ref, err := blobs.put(raw)
	return nil, ref, err
}

// isJSON returns the same as json.Valid, and is faster.
func isJSON(raw json.RawMessage) bool {
	return jsontext.Value(raw).IsValid(jsontext.AllowDuplicateNames(true),
		jsontext.AllowInvalidUTF8(true))
}

// encode marshals v, an object, and adds the member name with the bytes of raw. The encoder would
// remove spaces from raw, and a record must read back equal.
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

// maxInlineEntries is the maximum number of entries of each list of files in a body. Longer lists
// are stored in a file, because a sync of ten thousand files takes megabytes.
const maxInlineEntries = 10

// fileLists are the lists of files in the metadata of a result.
type fileLists struct {
	Files   []dray.SyncedFile  `json:"files"`
	Refused []dray.RefusedPath `json:"refused"`
	Landed  []dray.SyncTarget  `json:"landed"`
	Changes []dray.FileChange  `json:"changes"`
}

// storeLists returns metadata whose lists have at most maxInlineEntries entries, with the number of
// the others. If there are others, it also returns the reference of a file with the complete lists,
// which is durable when storeLists returns.
func storeLists(m dray.Metadata, blobs *blobStore) (dray.Metadata, *blobRef, error) {
	all := fileLists{Changes: m.Changes}
	omitted := truncate(&m.Changes, &m.ChangesOmitted)
	if m.Sync != nil {
		all.Files, all.Refused, all.Landed = m.Sync.Files, m.Sync.Refused, m.Sync.Targets
		report := *m.Sync
		omitted += truncate(&report.Files, &report.FilesOmitted) +
			truncate(&report.Refused, &report.RefusedOmitted) +
			truncate(&report.Targets, &report.TargetsOmitted)
		m.Sync = &report
	}
	if omitted == 0 {
		return m, nil, nil
	}
	raw, err := json.Marshal(all)
	if err != nil {
		return m, nil, fmt.Errorf("encode the lists of files: %w", err)
	}
	ref, err := blobs.put(raw)
	return m, ref, err
}

// truncate omits entries of a list, and counts them in addition to those that it had omitted
// before.
func truncate[T any](list *[]T, omitted *int) (more int) {
	n := min(len(*list), maxInlineEntries)
	more = len(*list) - n
	*list, *omitted = (*list)[:n:n], *omitted+more
	return more
}

// restore is the reverse of truncate.
func restore[T any](list *[]T, omitted *int, all []T) {
	*list, *omitted = all, *omitted-(len(all)-len(*list))
}

// loadLists restores the complete lists.
func loadLists(m *dray.Metadata, ref *blobRef, blobs *blobStore) error {
	if ref == nil || blobs == nil {
		return nil
	}
	raw, err := blobs.get(ref)
	if err != nil {
		return err
	}
	var all fileLists
	if err := json.Unmarshal(raw, &all); err != nil {
		return fmt.Errorf("read the lists of files: %w", err)
	}
	restore(&m.Changes, &m.ChangesOmitted, all.Changes)
	if m.Sync != nil {
		restore(&m.Sync.Files, &m.Sync.FilesOmitted, all.Files)
		restore(&m.Sync.Refused, &m.Sync.RefusedOmitted, all.Refused)
		restore(&m.Sync.Targets, &m.Sync.TargetsOmitted, all.Landed)
	}
	return nil
}
