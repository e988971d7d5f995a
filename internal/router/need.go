package router

import (
	"encoding/json"
	"fmt"
)

// NeedKind is the word that a tool's environment is declared with.
type NeedKind string

// The kinds of need. The empty kind is NeedAuto.
const (
	NeedAuto      NeedKind = "auto"
	NeedHost      NeedKind = "host"
	NeedRequired  NeedKind = "required"
	NeedPreferred NeedKind = "preferred"
	NeedSpecific  NeedKind = "specific"
)

// Need is a tool's own environment. Name is the configured container of NeedSpecific, and empty for every other kind.
type Need struct {
	Kind NeedKind
	Name string
}

// ParseNeed reads the two configured forms: a word, or the name behind the key "specific". Exactly one of them may be given;
// neither is auto, and "container" says the same as "required".
func ParseNeed(word, specific string) (Need, error) {
	switch {
	case specific != "" && word != "":
		return Need{}, fmt.Errorf("an environment is a word or {specific: NAME}, not both")
	case specific != "" && !ValidContainer(specific):
		return Need{}, fmt.Errorf("%q is no container's name", specific)
	case specific != "":
		return Need{Kind: NeedSpecific, Name: specific}, nil
	}
	switch NeedKind(word) {
	case "", NeedAuto:
		return Need{Kind: NeedAuto}, nil
	case NeedHost, NeedRequired, NeedPreferred:
		return Need{Kind: NeedKind(word)}, nil
	case "container":
		return Need{Kind: NeedRequired}, nil
	default:
		return Need{}, fmt.Errorf("environment %q is none of auto, host, required, container, preferred, {specific: NAME}", word)
	}
}

// MarshalJSON writes the form of the configuration: a word, or {"specific": NAME}.
func (n Need) MarshalJSON() ([]byte, error) {
	switch n.Kind {
	case NeedSpecific:
		return json.Marshal(map[string]string{"specific": n.Name})
	case "":
		return json.Marshal(NeedAuto)
	default:
		return json.Marshal(n.Kind)
	}
}

// String gives the need as a phrase, for reasons and errors.
func (n Need) String() string {
	switch n.Kind {
	case NeedHost:
		return "the host"
	case NeedRequired:
		return "a container"
	case NeedSpecific:
		return fmt.Sprintf("container %q", n.Name)
	default:
		return "no environment"
	}
}
