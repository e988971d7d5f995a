package jsonc

import (
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Limits of a document. The largest real configuration is far below both.
const (
	MaxBytes = 1 << 20
	MaxDepth = 200
	// maxFaults bounds what a broken document says about itself.
	maxFaults = 16
)

// Document is an object that was read.
type Document struct {
	// Value holds map[string]any, []any, string, float64 (which may be infinite), bool and nil, as
	// encoding/json would give them.
	Value map[string]any
	// Errors are what was stepped over, in the order of the text, at most sixteen. Comments and
	// trailing commas are none.
	Errors []SyntaxError
}

// SyntaxError is something wrong at one place. Line and column count from 1; a column is a
// character.
type SyntaxError struct {
	Line, Column int
	Message      string
}

// Error gives place and message, as editors print them.
func (f SyntaxError) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", f.Line, f.Column, f.Message)
}

// Parse reads one object. The only errors are a document that holds no object at all and one beyond
// the limits; both are a Fault.
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

// noObject says what stands there instead of an object.
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

// parser reads values and recovers from what it does not expect: it reports, skips to where reading
// makes sense again, and goes on.
type parser struct {
	scanner
	faults  []SyntaxError
	tooDeep *SyntaxError
}

// nextToken moves to the next token that means something. Unknown words are reported and stepped
// over wherever they stand.
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

// value reads the value at hand; false means that none stands there, and nothing was consumed.
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
		if !p.member(object, depth) {
			p.skipTo("a value was expected here", closeBrace, comma)
		}
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

// separator takes the comma between two elements, or says that it is missing or one too many.
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

// closing takes the closing token. Where the file ended before it, everything that is open is
// closed.
func (p *parser) closing(want kind, message string) {
	if p.kind != want {
		p.report(message)
		return
	}
	p.nextToken()
}

// member reads `"name": value` into object.
func (p *parser) member(object map[string]any, depth int) bool {
	if p.kind != stringToken {
		p.skipTo("a quoted name was expected here", closeBrace, comma)
		return false
	}
	name := p.text
	p.nextToken()
	if p.kind != colon {
		p.skipTo("a colon was expected here", closeBrace, comma)
		return true
	}
	p.nextToken()
	v, ok := p.value(depth)
	if !ok {
		p.skipTo("a value was expected here", closeBrace, comma)
		return true
	}
	if name != "__proto__" {
		object[name] = v
	}
	return true
}

// report notes a fault at the token at hand; a second one at the same place adds nothing.
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
