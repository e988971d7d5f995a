package tool

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/lexical"
	"github.com/dray-dev/dray/pathmapper"
)

const draft2020 = "https://json-schema.org/draft/2020-12/schema"

// schema is a compiled JSON Schema of an object, and the paths and secrets that it marks.
type schema struct {
	compiled *jsonschema.Schema
	paths    *pathmapper.Marks
	// hasSecrets reports whether the schema marks any value as secret.
	hasSecrets bool
	// costly reports whether the steps of each validation must be counted before it.
	costly bool
}

// compileSchema compiles a draft 2020-12 schema of an object and the marks of paths in it, and
// compacts its text. It refuses references to anything outside the schema.
func compileSchema(text *json.RawMessage) (*schema, error) {
	doc, invalid := decode(*text)
	if invalid != nil {
		return nil, fmt.Errorf("parse the schema: %w", invalid)
	}
	if err := cmp.Or(describesObject(doc), checkSecretContent(doc)); err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(noLoader{})
	c.RegisterVocabulary(secretKeyword)
	c.AssertVocabs()
	// the address is never fetched: it is the base of relative references
	const base = "https://dray.invalid/schema"
	if err := c.AddResource(base, doc); err != nil {
		return nil, fmt.Errorf("add the schema: %w", err)
	}
	compiled, err := c.Compile(base)
	if err != nil {
		return nil, fmt.Errorf("compile the schema: %w", err)
	}
	compact := jsontext.Value(bytes.Clone(*text))
	if err := compact.Compact(); err != nil {
		return nil, fmt.Errorf("compact the schema: %w", err)
	}
	*text = json.RawMessage(compact)
	marks, err := pathmapper.CompileMarks(*text)
	if err != nil {
		return nil, fmt.Errorf("find the marked paths: %w", err)
	}
	return &schema{compiled, marks, marksSecrets(compiled), isCostly(compiled)}, nil
}

// describesObject refuses schemas that inputs and outputs cannot satisfy, since both are objects,
// and other drafts, whose keywords have other meanings.
func describesObject(doc any) error {
	top, ok := doc.(map[string]any)
	if !ok {
		return errors.New("the schema is not an object")
	}
	if draft, ok := top["$schema"]; ok && draft != draft2020 {
		return fmt.Errorf("$schema %v is unsupported: use %s", draft, draft2020)
	}
	if typ, ok := top["type"]; ok && typ != "object" {
		return fmt.Errorf(`its type is %v: use "type": "object", which every input and output is`, typ)
	}
	return sameDraft(doc)
}

// sameDraft refuses other drafts in schemas below, which only those with an $id can have.
func sameDraft(doc any) (err error) {
	eachSchemaText(doc, "", func(pointer string, object map[string]any) {
		draft, ok := object["$schema"].(string)
		if _, has := object["$id"].(string); ok && has && draft != draft2020 {
			err = fmt.Errorf("$schema %s at %q is unsupported: use %s", draft, pointer, draft2020)
		}
	})
	return err
}

// noLoader refuses references to other documents: the result of a validation must not depend on a
// server or a file.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s is outside the schema and is not fetched: move it to $defs", url)
}

// violations returns the violations of a document in its own order, or nil. prefix is the pointer
// from the caller's JSON to the document.
func (s *schema) violations(doc json.RawMessage, prefix string) []dray.Detail {
	v, malformed := decode(doc)
	if malformed != nil {
		return violation(prefix+malformed.pointer, malformed.Error())
	}
	if s.exceeds(v) {
		return violation(prefix, "is too large for this schema: its check would take too many steps")
	}
	var invalid *jsonschema.ValidationError
	switch err := s.compiled.Validate(v); {
	case err == nil:
		return nil
	case !errors.As(err, &invalid):
		return violation(prefix, err.Error())
	}
	found := violationList{prefix: prefix, printer: message.NewPrinter(language.English)}
	found.add(invalid)
	slices.SortStableFunc(found.details,
		func(a, b dray.Detail) int { return strings.Compare(a.Pointer, b.Pointer) })
	return found.details
}

const (
	// maxViolations bounds the list, for instance for an array of a million invalid items.
	maxViolations = 50
	// maxMessage bounds one message in bytes, since some repeat the invalid value.
	maxMessage = 300
)

// violationList collects the leaves of the validator's tree of errors.
type violationList struct {
	prefix  string
	printer *message.Printer
	details []dray.Detail
}

func (l *violationList) add(e *jsonschema.ValidationError) {
	if len(l.details) == maxViolations {
		return
	}
	for _, cause := range e.Causes {
		l.add(cause)
	}
	if len(e.Causes) > 0 {
		return
	}
	at := dray.JSONPointer(l.prefix, e.InstanceLocation...)
	if extra, ok := e.ErrorKind.(*kind.AdditionalProperties); ok {
		for _, name := range extra.Properties[:min(len(extra.Properties), maxViolations)] {
			l.note(dray.JSONPointer(at, name), "is not allowed here")
		}
		return
	}
	l.note(at, e.ErrorKind.LocalizedString(l.printer))
}

func (l *violationList) note(at, what string) {
	if len(l.details) < maxViolations {
		l.details = append(l.details, violation(at, what)...)
	}
}

// violation returns one violation. It truncates the message.
func violation(pointer, message string) []dray.Detail {
	return []dray.Detail{{Pointer: pointer, Message: lexical.Truncate(message, maxMessage)}}
}
