package docker

import (
	"strings"

	"github.com/moby/moby/client"

	"github.com/dray-dev/dray"
)

// dialects are the engines that speak Docker's API, with what differs between them. The first whose
// component the engine reports applies; the last has none and applies to any other engine.
var dialects = []struct {
	product   string // for metadata and messages
	component string // in the reply to a version request
}{
	{product: "podman", component: "Podman Engine"},
	{product: "docker"},
}

// productOf returns the product and the version of an engine.
func productOf(v client.ServerVersionResult) string {
	for _, d := range dialects {
		if d.component == "" {
			return d.product + " " + v.Version
		}
		for _, c := range v.Components {
			if c.Name == d.component {
				return d.product + " " + c.Version
			}
		}
	}
	return v.Version
}

// removalEvents are the events of a removed container: destroy with Docker, remove with Podman.
var removalEvents = []string{"destroy", "remove"}

// changeEvents are the events after which cached facts about containers may be wrong.
var changeEvents = append([]string{
	"create", "start", "die", "rename", "pause", "unpause", "update",
}, removalEvents...)

// notStartedCodes are the exit codes that an engine reports for an exec whose program could not be
// started: runc and crun use 126 and 127, Podman also 255.
var notStartedCodes = []int{126, 127, 255}

// startErrors map a part of the runtime's error text to a code. The first that matches applies.
var startErrors = []struct {
	text string
	code dray.Code
}{
	{"chdir", dray.CodeBadCwd},
	{"cwd", dray.CodeBadCwd},
	{"unable to find user", dray.CodeBadUser},
	{"unable to find group", dray.CodeBadUser},
	{"no such file", dray.CodeExecutableNotFound},
	{"not found in $PATH", dray.CodeExecutableNotFound},
}

func startErrorCode(text string) dray.Code {
	for _, e := range startErrors {
		if strings.Contains(text, e.text) {
			return e.code
		}
	}
	return dray.CodeNotExecutable
}

// detachKeys is a sequence that no user types. With the engine's default, a terminal would not
// receive Ctrl-P.
const detachKeys = "ctrl-_,ctrl-^,ctrl-],ctrl-_,ctrl-^,ctrl-]"
