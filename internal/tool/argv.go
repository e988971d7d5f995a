package tool

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray"
)

// argvTemplate is the argv of a command tool. Its elements take values of the input by
// ${input.NAME}. A value stays data (RT-14): it never ends an argument or begins another, no shell
// reads it, and it does not become an option unless the input schema says so.
type argvTemplate struct {
	elements []argElement
	// options are the members whose values may begin with "-".
	options map[string]bool
}

// argElement is one element of the argv: texts and members of the input, in order.
type argElement []argPart

// argPart is a text, or the value of a member of the input.
type argPart struct {
	text, member string
}

var memberRef = regexp.MustCompile(`\$\{input\.([A-Za-z0-9_-]+)\}`)

// parseArgv returns the template of an argv, and what is invalid in it.
func parseArgv(argv []string, inputSchema json.RawMessage) (argvTemplate, []Violation) {
	inputs := describeInputs(inputSchema)
	t := argvTemplate{elements: make([]argElement, len(argv)), options: inputs.options}
	var found []Violation
	for i, text := range argv {
		e := parseElement(text)
		t.elements[i] = e
		if problem, fix := inputs.check(e, i == 0); problem != "" {
			found = append(found, Violation{fmt.Sprintf("argv[%d]", i), problem, fix})
		}
	}
	return t, found
}

func parseElement(text string) argElement {
	e := argElement{}
	for {
		at := memberRef.FindStringSubmatchIndex(text)
		if at == nil {
			return append(e, argPart{text: text})
		}
		if at[0] > 0 {
			e = append(e, argPart{text: text[:at[0]]})
		}
		e = append(e, argPart{member: text[at[2]:at[3]]})
		if text = text[at[1]:]; text == "" {
			return e
		}
	}
}

// members returns the names of the members that the element takes.
func (e argElement) members() []string {
	var names []string
	for _, p := range e {
		if p.member != "" {
			names = append(names, p.member)
		}
	}
	return names
}

// members returns the names of the members that any element takes.
func (t *argvTemplate) members() []string {
	var names []string
	for _, e := range t.elements {
		names = append(names, e.members()...)
	}
	return names
}

// takesInput reports whether any element takes a value of the input.
func (t *argvTemplate) takesInput() bool {
	return len(t.members()) > 0
}

// inputMembers is what an input schema says about the members of an input.
type inputMembers struct {
	declared []string
	closed   bool // only declared members are allowed
	options  map[string]bool
}

// describeInputs reads the properties of an input schema. An invalid schema has none: compileSchema
// reports it.
func describeInputs(schema json.RawMessage) inputMembers {
	type option struct {
		Option bool `json:"x-option"`
	}
	var s struct {
		option

		Properties map[string]struct {
			option

			Items option `json:"items"`
		} `json:"properties"`
		Additional json.RawMessage `json:"additionalProperties"`
	}
	_ = json.Unmarshal(schema, &s)
	m := inputMembers{options: map[string]bool{}, closed: string(s.Additional) == "false"}
	for name, p := range s.Properties {
		m.declared = append(m.declared, name)
		m.options[name] = s.Option || p.Option || p.Items.Option
	}
	return m
}

// check returns what is invalid in an element, and the fix.
func (m inputMembers) check(e argElement, isProgram bool) (problem, fix string) {
	names := e.members()
	unknown := slices.IndexFunc(names, func(n string) bool { return !slices.Contains(m.declared, n) })
	switch {
	case slices.ContainsFunc(e, func(p argPart) bool { return strings.Contains(p.text, "${input.") }):
		return "contains an invalid placeholder",
			"write ${input.NAME}, with letters, digits, _ and - in the name of a member of the input"
	case isProgram && len(names) > 0:
		return "lets the input choose the program", "write the program, or use the tool exec"
	case m.closed && unknown >= 0:
		return fmt.Sprintf("takes %s, which input_schema does not allow", names[unknown]),
			"declare it in the properties of input_schema"
	case len(e) > 1 && strings.Trim(e[0].text, "-") == "" && e[0].text != "" && !m.options[names[0]]:
		return "lets the input choose the option",
			"write the option's name, or set x-option: true for the member in input_schema"
	default:
		return "", ""
	}
}

// expand returns the argv for an input, or how its values do not fit.
func (t *argvTemplate) expand(input json.RawMessage) ([]string, []dray.Detail) {
	var members map[string]json.RawMessage
	if t.takesInput() {
		if err := json.Unmarshal(input, &members); err != nil {
			return nil, violation("/input", err.Error())
		}
	}
	x := expansion{argvTemplate: t, members: members}
	for _, e := range t.elements {
		x.add(e)
	}
	return x.argv, x.details
}

// expansion is the argv of one input while it is built.
type expansion struct {
	*argvTemplate

	members map[string]json.RawMessage
	argv    []string
	details []dray.Detail
}

// add appends the arguments of an element: none if a member is absent or null, one for each item if
// the element is one member with an array, else one.
func (x *expansion) add(e argElement) {
	for _, name := range e.members() {
		if v := jsontext.Value(x.members[name]); len(v) == 0 || v.Kind() == jsontext.KindNull {
			return
		}
	}
	value := jsontext.Value(x.members[e[0].member])
	if len(e) > 1 || value.Kind() != jsontext.KindBeginArray {
		x.addJoined(e)
		return
	}
	var items []json.RawMessage
	_ = json.Unmarshal(value, &items) // it is valid: the input was parsed
	for i, item := range items {
		pointer := dray.JSONPointer("/input", e[0].member, fmt.Sprint(i))
		if text, ok := x.text(pointer, item, x.options[e[0].member]); ok {
			x.argv = append(x.argv, text)
		}
	}
}

// addJoined appends an element as one argument.
func (x *expansion) addJoined(e argElement) {
	var b strings.Builder
	for _, p := range e {
		text := p.text
		if p.member != "" {
			var ok bool
			pointer := dray.JSONPointer("/input", p.member)
			// only the beginning of an argument makes it an option
			anyStart := b.Len() > 0 || x.options[p.member]
			if text, ok = x.text(pointer, x.members[p.member], anyStart); !ok {
				return
			}
		}
		b.WriteString(text)
	}
	x.argv = append(x.argv, b.String())
}

// text returns a value as text: numbers have the digits of the input. anyStart allows a "-" at its
// beginning.
func (x *expansion) text(pointer string, raw json.RawMessage, anyStart bool) (string, bool) {
	text := string(raw)
	problem := ""
	switch jsontext.Value(raw).Kind() {
	case jsontext.KindString:
		b, err := jsontext.AppendUnquote(nil, raw)
		if text = string(b); err != nil {
			problem = err.Error()
		}
	case jsontext.KindBeginArray, jsontext.KindBeginObject, jsontext.KindNull:
		problem = "cannot be a part of an argument: pass a string, a number or a boolean"
	}
	switch {
	case problem != "":
	case strings.ContainsRune(text, 0):
		problem = "contains a NUL character, which an argument cannot contain"
	case strings.HasPrefix(text, "-") && !anyStart:
		problem = `begins with "-", so the program could take it for an option (x-option in the ` +
			"input_schema allows it)"
	default:
		return text, true
	}
	x.details = append(x.details, violation(pointer, problem)...)
	return "", false
}
