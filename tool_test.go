package dray_test

import (
	"encoding/json"
	"testing"

	"github.com/dray-dev/dray"
)

func TestRequirementMarshalJSON(t *testing.T) {
	for want, r := range map[string]dray.Requirement{
		`"auto"`:             {},
		`"host"`:             {Kind: dray.RequireHost},
		`"required"`:         {Kind: dray.RequireContainer},
		`"preferred"`:        {Kind: dray.PreferContainer},
		`{"specific":"api"}`: {Kind: dray.RequireSpecific, Container: "api"},
	} {
		if got, err := json.Marshal(r); err != nil || string(got) != want {
			t.Errorf("%+v is %s, %v; want %s", r, got, err, want)
		}
	}
}

func TestJSONPointer(t *testing.T) {
	if got := dray.JSONPointer("/input", "a/b~c", "0"); got != "/input/a~1b~0c/0" {
		t.Error(got)
	}
}

// Capabilities have the form of the configuration (RT-05).
func TestToolCapabilitiesJSON(t *testing.T) {
	for want, c := range map[string]dray.ToolCapabilities{
		`[]`:            {},
		`["read_only"]`: {ReadOnly: true},
		`["network","unsafe","human_approval_required",{"writes":["a/**"]}]`: {
			Network: true, Unsafe: true, HumanApprovalRequired: true, Writes: []string{"a/**"},
		},
	} {
		if got, err := json.Marshal(c); err != nil || string(got) != want {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
}
