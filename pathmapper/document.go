package pathmapper

import (
	"bytes"
	"errors"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray"
)

// maxDepth is how many containers may stand inside one another below the top of a document.
const maxDepth = 64

// Options say how the paths of one document are found. The zero Options guess and do not believe in white space.
type Options struct {
	// Mode is the call's or tool's choice; MapDefault is MapSchema if Marks mark anything, else MapHeuristic.
	Mode dray.MappingMode
	// Marks are those of the tool's input or output schema; nil marks nothing.
	Marks *Marks
	// HostExists says whether the host has something at an absolute host path. It is asked only where the heuristic meets a string with
	// white space whose host path lies under a root; nil means that nothing exists.
	HostExists func(hostPath string) bool
	// CheckHostPath says why Output must not hand on the name that a path has on the host, where name is that name and root the host root of its
	// mapping: the path stays raw then, and the error is listed. Nil accepts all.
	CheckHostPath func(root, name string) error
	// Pointer stands before each JSON pointer of the report, for instance "/input".
	Pointer string
}

// Input maps the paths of a tool's input to the container. An error refuses the input as a whole, with a detail for each bad path:
// path_invalid, path_too_deep for more than 64 containers below the top, invalid_input for what is no JSON, invalid_request for an
// unknown mode.
//
// Raw is never changed; where nothing is rewritten, Mode is MapNone, or raw is empty, the result is raw itself. Duplicate keys and strings that are
// not Unicode are the decoder's matter and are copied as they are.
func (m *Mapper) Input(raw jsontext.Value, opts Options) (jsontext.Value, dray.MappingReport, error) {
	out, rep, err := m.mapDocument(ToContainer, raw, opts)
	if err == nil {
		err = rep.faults.asError(dray.CodePathInvalid)
	}
	if err != nil {
		return nil, rep.result(opts.Pointer), err
	}
	return out, rep.result(opts.Pointer), nil
}

// Output maps the paths of a tool's structured output to the host. A path that Input would refuse stays raw and is listed in Errors;
// for an error of the whole document, as Input has them, the result is raw itself and the error the only entry.
func (m *Mapper) Output(raw jsontext.Value, opts Options) (jsontext.Value, dray.MappingReport) {
	out, rep, err := m.mapDocument(ToHost, raw, opts)
	if err == nil {
		return out, rep.result(opts.Pointer)
	}
	rep = &report{}
	e := dray.AsError(err)
	if len(e.Details) == 0 {
		e.Details = []dray.Detail{{Pointer: opts.Pointer, Message: e.Message}}
	}
	rep.faults.details = e.Details
	return raw, rep.result(opts.Pointer)
}

func (m *Mapper) mapDocument(dir Direction, raw jsontext.Value, opts Options) (jsontext.Value, *report, error) {
	w := &documentWalker{mapper: m, dir: dir, opts: opts, src: raw}
	marks, err := opts.marks()
	switch {
	case err != nil:
		return nil, &w.report, err
	case opts.Mode == dray.MapNone, len(raw) == 0:
		return raw, &w.report, nil
	}
	out, ok := w.run(marks)
	if !ok {
		return nil, &report{}, syntaxError(raw, opts.Pointer)
	}
	return out, &w.report, nil
}

// marks gives the marks to go by; nil stands for the heuristic.
func (o Options) marks() (*Marks, error) {
	switch o.Mode {
	case dray.MapHeuristic, dray.MapNone:
		return nil, nil
	case dray.MapSchema:
		if o.Marks == nil {
			return &Marks{}, nil
		}
		return o.Marks, nil
	case dray.MapDefault:
		if o.Marks.Any() {
			return o.Marks, nil
		}
		return nil, nil
	}
	return nil, dray.Errorf(dray.CodeInvalidRequest, "mapping mode %s is unknown", quote(string(o.Mode))).
		WithHint("use %s, %s or %s", dray.MapSchema, dray.MapHeuristic, dray.MapNone)
}

// syntaxError says why the walk could not go through a document: it is no JSON, with the place, or it is too deep.
func syntaxError(raw jsontext.Value, prefix string) error {
	// What the walk copies as it stands, the decoder may accept or not: repeated keys, and strings that are not UTF-8.
	d := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	_, err := d.ReadValue()
	if err == nil {
		_, err = d.ReadToken()
		switch {
		case errors.Is(err, io.EOF):
			return tooDeep(prefix) // for it is JSON
		case err == nil:
			err = errors.New("something follows it")
		}
	}
	var syntax *jsontext.SyntacticError
	if errors.As(err, &syntax) && strings.Count(string(syntax.JSONPointer), "/") > maxDepth {
		return tooDeep(prefix)
	}
	return dray.Errorf(dray.CodeInvalidInput, "read the JSON value: %w", err).WithHint("send one JSON value")
}

// tooDeep points at the document, since the place itself has a pointer of 65 steps.
func tooDeep(prefix string) error {
	err := dray.Errorf(dray.CodePathTooDeep, "more than %d arrays and objects stand inside one another", maxDepth).
		WithHint("nest the value less deeply, or set the mapping to none if it holds no paths")
	err.Details = []dray.Detail{{Pointer: prefix, Message: err.Message}}
	return err
}
