package pep508

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// maxMarkerDepth bounds nested parentheses.
const maxMarkerDepth = 16

// markerVariables are those of the specification of dependency specifiers.
var markerVariables = []string{
	"python_version", "python_full_version", "os_name", "sys_platform", "platform_release",
	"platform_system", "platform_version", "platform_machine", "platform_python_implementation",
	"implementation_name", "implementation_version", "extra",
}

// markerOperators are those of versions, and those of strings.
var markerOperators = append([]string{"in", "not in"}, operators...)

// normalizeMarker returns a marker with single blanks between its tokens.
func normalizeMarker(text string) (string, error) {
	tokens, err := scanMarker(text)
	if err != nil {
		return "", err
	}
	p := markerParser{tokens: tokens}
	if err := p.or(0); err != nil {
		return "", err
	}
	if len(p.tokens) > 0 {
		return "", fmt.Errorf("unexpected %s in the marker", p.tokens[0])
	}
	return joinMarker(tokens), nil
}

func joinMarker(tokens []string) string {
	text := strings.Join(tokens, " ")
	return strings.ReplaceAll(strings.ReplaceAll(text, "( ", "("), " )", ")")
}

// scanMarker splits a marker into strings, words, operators and parentheses.
func scanMarker(text string) ([]string, error) {
	var tokens []string
	for text = strings.Trim(text, blanks); text != ""; text = strings.TrimLeft(text, blanks) {
		n := tokenLength(text)
		if n == 0 {
			return nil, fmt.Errorf("unexpected %q in the marker", text)
		}
		token := text[:n]
		text = text[n:]
		if last := len(tokens) - 1; token == "in" && last >= 0 && tokens[last] == "not" {
			tokens[last] = "not in"
			continue
		}
		tokens = append(tokens, token)
	}
	return tokens, nil
}

// tokenLength returns the length of the first token, or 0 if there is none.
func tokenLength(text string) int {
	switch first := text[0]; {
	case first == '(' || first == ')':
		return 1
	case first == '"' || first == '\'':
		end := strings.IndexByte(text[1:], first)
		if end < 0 || strings.ContainsAny(text[1:1+end], `()"'\`) {
			return 0
		}
		return end + 2
	case strings.IndexByte("=!<>~", first) >= 0:
		return len(text) - len(strings.TrimLeft(text, "=!<>~"))
	default:
		end := strings.IndexFunc(text, func(r rune) bool { return !isAlphanumeric(r) && r != '_' })
		if end < 0 {
			end = len(text)
		}
		return end
	}
}

// markerParser checks the order of tokens.
type markerParser struct{ tokens []string }

// take removes the next token if accept returns true for it.
func (p *markerParser) take(accept func(token string) bool) bool {
	if len(p.tokens) == 0 || !accept(p.tokens[0]) {
		return false
	}
	p.tokens = p.tokens[1:]
	return true
}

func isToken(want string) func(string) bool {
	return func(token string) bool { return token == want }
}

func (p *markerParser) or(depth int) error {
	for {
		if err := p.and(depth); err != nil {
			return err
		}
		if !p.take(isToken("or")) {
			return nil
		}
	}
}

func (p *markerParser) and(depth int) error {
	for {
		if err := p.condition(depth); err != nil {
			return err
		}
		if !p.take(isToken("and")) {
			return nil
		}
	}
}

func (p *markerParser) condition(depth int) error {
	if depth > maxMarkerDepth {
		return errors.New("the marker has too many parentheses")
	}
	if p.take(isToken("(")) {
		if err := p.or(depth + 1); err != nil {
			return err
		}
		if !p.take(isToken(")")) {
			return errors.New("the marker has an open parenthesis")
		}
		return nil
	}
	isOperator := func(token string) bool { return slices.Contains(markerOperators, token) }
	if !p.take(isOperand) || !p.take(isOperator) || !p.take(isOperand) {
		return errors.New(`the marker is not a condition such as python_version < "3.12"`)
	}
	return nil
}

func isOperand(token string) bool {
	return token[0] == '"' || token[0] == '\'' || slices.Contains(markerVariables, token)
}
