package router

import (
	"encoding/json"
	"fmt"
)

// RequirementKind is the word that a tool's environment is declared with.
type RequirementKind string

// The kinds of need. The empty kind is NeedAuto.
const (
	NeedAuto      RequirementKind = "auto"
	NeedHost      RequirementKind = "host"
	NeedRequired  RequirementKind = "required"
	NeedPreferred RequirementKind = "preferred"
	NeedSpecific  RequirementKind = "specific"
)

// Requirement is a tool's own environment. Name is the configured container of NeedSpecific, and empty for every other kind.
type Requirement struct {
	Kind RequirementKind
	Name string
}

// ParseRequirement reads the two configured forms: a word, or the name behind the key "specific". Exactly one of them may be given;
// neither is auto, and "container" says the same as "required".
func ParseRequirement(word, specific string) (Requirement, error) {
	switch {
	case specific != "" && word != "":
		return Requirement{}, fmt.Errorf("an environment is a word or {specific: NAME}, not both")
	case specific != "" && !ValidContainer(specific):
		return Requirement{}, fmt.Errorf("%q is no container's name", specific)
	case specific != "":
		return Requirement{Kind: NeedSpecific, Name: specific}, nil
	}
	switch RequirementKind(word) {
	case "", NeedAuto:
		return Requirement{Kind: NeedAuto}, nil
	case NeedHost, NeedRequired, NeedPreferred:
		return Requirement{Kind: RequirementKind(word)}, nil
	case "container":
		return Requirement{Kind: NeedRequired}, nil
	default:
		return Requirement{}, fmt.Errorf("environment %q is none of auto, host, required, container, preferred, {specific: NAME}", word)
	}
}

// MarshalJSON writes the form of the configuration: a word, or {"specific": NAME}.
func (n Requirement) MarshalJSON() ([]byte, error) {
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
func (n Requirement) String() string {
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
