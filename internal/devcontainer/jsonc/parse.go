package jsonc

import (
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Limits of a document.
const (
	MaxBytes = 1 << 20
	MaxDepth = 200
	// maxFaults is the maximum number of reported errors.
	maxFaults = 16
)

// Document is a parsed document.
type Document struct {
	// Value has the types of encoding/json. A float64 may be infinite.
	Value map[string]any
	// Errors are the tolerated errors in the order of the text, at most 16. Comments and trailing
	// commas are not errors.
	Errors []SyntaxError
}

// SyntaxError is an error at a position. Line and column count from 1, columns in characters.
type SyntaxError struct {
	Line, Column int
	Message      string
}

func (f SyntaxError) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", f.Line, f.Column, f.Message)
}

// Parse parses one object. It fails with a SyntaxError if the document does not contain an object
// or exceeds the limits.
func Parse(src []byte) (Document, error) {
	p := parser{scanner: scanner{src: src}}
	if len(src) > MaxBytes {
		return Document{}, p.at(MaxBytes, fmt.Sprintf("the file is larger than %d bytes", MaxBytes))
	}
	p.nextToken()
	first := p.start
	value, ok := p.value(0)
	if p.tooDeep != nil {
		return Document{}, *p.tooDeep
	}
	object, isObject := value.(map[string]any)
	if !isObject {
		return Document{}, p.noObject(first, value, ok)
	}
	if p.kind != endOfFile {
		p.report("what follows the closing brace is ignored")
	}
	return Document{Value: object, Errors: p.faults}, nil
}

func (p *parser) noObject(first int, value any, found bool) SyntaxError {
	switch {
	case first >= len(p.src):
		return p.at(first, "the file holds no value, only blank space or comments")
	case !found:
		return p.at(first, "an object was expected here")
	}
	return p.at(first, fmt.Sprintf("the file must hold an object, not %s", nameOf(value)))
}

func nameOf(value any) string {
	switch value.(type) {
	case []any:
		return "an array"
	case string:
		return "a string"
	case float64:
		return "a number"
	case bool:
		return "a boolean"
	}
	return "null"
}

// parser parses values. After an error it skips to the next token that it can continue with.
type parser struct {
	scanner
	faults  []SyntaxError
	tooDeep *SyntaxError
}

// nextToken moves to the next token, over trivia and unknown words, which it reports.
func (p *parser) nextToken() {
	for {
		p.next()
		if p.fault != "" {
			p.report(p.fault)
		}
		switch p.kind {
		case unknown:
			p.report("this means nothing here")
		case trivia:
		default:
			return
		}
	}
}

// skipTo skips tokens up to one of the given kinds.
func (p *parser) skipTo(message string, until ...kind) {
	p.report(message)
	for p.kind != endOfFile && !slices.Contains(until, p.kind) {
		p.nextToken()
	}
}

// value parses a value. It returns false, and consumes nothing, if there is none.
func (p *parser) value(depth int) (any, bool) {
	var v any
	switch p.kind {
	case openBrace:
		return p.nested(depth, p.object), true
	case openBracket:
		return p.nested(depth, p.array), true
	case stringToken:
		v = p.text
	case numberToken:
		// Only the size can be wrong, and then the nearest value is what the reference takes, infinity
		// included.
		v, _ = strconv.ParseFloat(p.text, 64)
	case wordTrue, wordFalse:
		v = p.kind == wordTrue
	case wordNull:
	default:
		return nil, false
	}
	p.nextToken()
	return v, true
}

// nested guards the depth. Beyond it the document is refused, so the rest is not looked at.
func (p *parser) nested(depth int, read func(depth int) any) any {
	if depth >= MaxDepth {
		fault := p.at(p.start, fmt.Sprintf("the nesting is deeper than %d", MaxDepth))
		p.tooDeep = &fault
		p.pos, p.kind = len(p.src), endOfFile
		return nil
	}
	return read(depth + 1)
}

func (p *parser) object(depth int) any {
	object := map[string]any{}
	p.nextToken()
	for needsComma := false; p.kind != closeBrace && p.kind != endOfFile; needsComma = true {
		p.separator(needsComma)
		if p.kind == closeBrace && needsComma {
			break
		}
		p.member(object, depth)
	}
	p.closing(closeBrace, "the closing brace is missing")
	return object
}

func (p *parser) array(depth int) any {
	array := []any{}
	p.nextToken()
	for needsComma := false; p.kind != closeBracket && p.kind != endOfFile; needsComma = true {
		p.separator(needsComma)
		if p.kind == closeBracket && needsComma {
			break
		}
		v, ok := p.value(depth)
		if !ok {
			p.skipTo("a value was expected here", closeBracket, comma)
			continue
		}
		array = append(array, v)
	}
	p.closing(closeBracket, "the closing bracket is missing")
	return array
}

// separator consumes the comma between two elements and reports a missing or superfluous one.
func (p *parser) separator(needed bool) {
	switch {
	case p.kind == comma:
		if !needed {
			p.report("a value was expected before the comma")
		}
		p.nextToken()
	case needed:
		p.report("a comma was expected here")
	}
}

// closing consumes the closing token and reports a missing one.
func (p *parser) closing(want kind, message string) {
	if p.kind != want {
		p.report(message)
		return
	}
	p.nextToken()
}

// member parses `"name": value` into object.
func (p *parser) member(object map[string]any, depth int) {
	if p.kind != stringToken {
		p.skipTo("a quoted name was expected here", closeBrace, comma)
		return
	}
	name := p.text
	if p.nextToken(); p.kind != colon {
		p.skipTo("a colon was expected here", closeBrace, comma)
		return
	}
	p.nextToken()
	v, ok := p.value(depth)
	if !ok {
		p.skipTo("a value was expected here", closeBrace, comma)
	} else if name != "__proto__" {
		object[name] = v
	}
}

// report adds an error at the current token unless there is one at that position.
func (p *parser) report(message string) {
	if len(p.faults) == maxFaults {
		return
	}
	fault := p.at(p.start, message)
	if n := len(p.faults); n > 0 && p.faults[n-1].Line == fault.Line &&
		p.faults[n-1].Column == fault.Column {
		return
	}
	p.faults = append(p.faults, fault)
}

func (p *parser) at(offset int, message string) SyntaxError {
	before := p.src[:min(offset, len(p.src))]
	line, lineStart := 1, 0
	for i, c := range before {
		if c == '\n' || c == '\r' && (i+1 >= len(p.src) || p.src[i+1] != '\n') {
			line++
			lineStart = i + 1
		}
	}
	return SyntaxError{Line: line, Column: utf8.RuneCount(before[lineStart:]) + 1, Message: message}
}
