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
	"github.com/dray-dev/dray/audit/proof"
)

// kind is the kind of an event.
type kind string

const (
	begun       kind = "begun"
	ended       kind = "ended"
	interrupted kind = "interrupted"
	syncing     kind = "sync"
)

// event is one row of the table events.
type event struct {
	seq        int64
	invocation string
	kind       kind
	at         int64 // nanoseconds since 1970 UTC
	body       []byte
}

// proof returns the event as its leaf has it.
func (e event) proof() proof.Event {
	return proof.Event{
		Seq: e.seq, At: e.at, Kind: string(e.kind), Invocation: e.invocation,
		BodySHA256: sha256.Sum256(e.body),
	}
}

// leaf returns the RFC 6962 leaf hash of the event.
func (e event) leaf() tlog.Hash { return e.proof().Leaf() }

// lowerUUID matches a lower-case UUID, as the canonical bytes require.
var lowerUUID = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// maxInline is the maximum size in bytes of an input or output in the body of an event. Longer ones
// are files.
const maxInline = 8 << 10

// beginBody is the body of a begun event: the accepted invocation and its route. Two of its fields
// are shadowed: the environment has only the names, and a long input is a file.
type beginBody struct {
	dray.Invocation
	Env       []string        `json:"env,omitempty" doc:"names of the variables, sorted; values are not stored"`
	Input     json.RawMessage `json:"input,omitempty" doc:"the input, up to 8 KiB"`
	InputFile *blobRef        `json:"input_file,omitempty" doc:"SHA-256 and size of an input over 8 KiB, which is a file in captures/"`
	Route     dray.Route      `json:"route" doc:"the routing decision: environment, rule, container, workspace and all candidates"` // events of older versions have none
	StartedAt time.Time       `json:"started_at" doc:"when the call was accepted"`

	Idempotency *dray.Idempotency `json:"idempotency,omitempty" doc:"key and hash of the request, if it has a key"`

	refusal error // why the call must not run: its input is not JSON, and omitted
}

// endBody is the body of an ended or interrupted event. Duration is in nanoseconds; an interrupted
// call has none.
type endBody struct {
	Status     dray.Status        `json:"status" doc:"succeeded or failed"`
	Reason     dray.Reason        `json:"reason" doc:"why it ended"`
	ExitCode   *int               `json:"exit_code" doc:"exit code, if the reason is exited"`
	Signal     *dray.Signal       `json:"signal" doc:"signal, if the reason is signalled"`
	Stdout     dray.StreamSummary `json:"stdout" doc:"head, tail, sizes and SHA-256"`
	Stderr     dray.StreamSummary `json:"stderr" doc:"as stdout"`
	Error      *dray.Error        `json:"error" doc:"code, message and hint of a failure"`
	Route      dray.Route         `json:"route" doc:"where it ran"`
	Metadata   endMetadata        `json:"metadata" doc:"container, mapping, kill, retries, sync, changes and warnings"`
	EndedAt    time.Time          `json:"ended_at" doc:"when it ended"`
	Duration   *time.Duration     `json:"duration_ns" doc:"on the monotonic clock, in nanoseconds"`
	Output     json.RawMessage    `json:"output,omitempty" doc:"the structured output, up to 8 KiB"`
	OutputFile *blobRef           `json:"output_file,omitempty" doc:"SHA-256 and size of an output over 8 KiB, which is a file in captures/"`
	// ListsFile contains the complete lists of the metadata if they are truncated here.
	ListsFile *blobRef `json:"lists_file,omitempty" doc:"SHA-256 and size of the complete lists of files, if those in metadata are cut to 10 entries"`

	kind kind // ended if empty
}

// endMetadata is the metadata of a result. Its container is shadowed by the JSON that the column
// metadata_container has.
type endMetadata struct {
	dray.Metadata
	Container json.RawMessage `json:"container,omitempty"`
}

// encodeBegin returns the body of a begun event and its JSON. An input that is too long for it is
// stored in a file.
func encodeBegin(call dray.Call, at time.Time, blobs *blobStore) (
	b beginBody, body []byte, err error,
) {
	inv := call.Invocation
	b = beginBody{
		Invocation: inv, Env: slices.Sorted(maps.Keys(inv.Env)), Route: call.Route, StartedAt: at,
		Idempotency: call.Idempotency,
	}
	inline, ref, err := inlineOrBlob(inv.Input, blobs)
	switch {
	case errors.Is(err, errNotJSON):
		b.refusal = dray.Errorf(dray.CodeInvalidInput, "record the input: %w", err).
			WithHint("send a JSON object")
	case err != nil:
		return b, nil, fmt.Errorf("store the input: %w", err)
	}
	b.InputFile = ref
	body, err = encode(b, "input", inline)
	return b, body, err
}

// encodeEnd returns the body of an ended event and its JSON. An output that is too long for it is
// stored in a file.
func encodeEnd(res dray.Result, blobs *blobStore) (b endBody, body []byte, err error) {
	inline, ref, err := inlineOrBlob(res.Output, blobs)
	if err != nil {
		return b, nil, fmt.Errorf("store the output: %w", err)
	}
	metadata, lists, err := storeLists(res.Metadata, blobs)
	if err != nil {
		return b, nil, fmt.Errorf("store the lists of files: %w", err)
	}
	var container []byte
	if c := metadata.Container; c != nil {
		if container, err = json.Marshal(c); err != nil {
			return b, nil, fmt.Errorf("encode the container's metadata: %w", err)
		}
	}
	b = endBody{
		Status: res.Status, Reason: res.Reason, ExitCode: res.ExitCode, Signal: res.Signal,
		Stdout: res.Stdout, Stderr: res.Stderr, Error: res.Error, Route: res.Route,
		Metadata: endMetadata{metadata, container}, EndedAt: res.EndedAt, Duration: &res.Duration,
		OutputFile: ref, ListsFile: lists,
	}
	body, err = encode(b, "output", inline)
	b.Output = inline
	return b, body, err
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
