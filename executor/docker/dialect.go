package docker

import (
	"slices"
	"strings"

	"github.com/moby/moby/client"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/agent"
	"github.com/dray-dev/dray/internal/devcontainer"
)

// dialect is what differs between the engines that speak Docker's API.
type dialect struct {
	product   string // for metadata and messages
	component string // in the reply to a version request; empty matches any engine
	// addsHome: it adds the HOME of the container's user to the variables of the container. In an exec
	// of another user it replaces that HOME, unless the image or the user of the engine has set it.
	addsHome bool
	// execLacks are variables of the container that an exec does not get.
	execLacks []string
	// detachKeys are the detach keys of a terminal; empty means the default of the engine.
	detachKeys string
	startError startError
}

// startError is how an engine reports an exec whose program could not be started: by an exit code
// without a pid, and the runtime's error text, with a prefix, at the beginning of a stream.
type startError struct {
	codes  []int
	stream byte
	prefix string
}

// dialects are the known ones. The first that matches applies.
var dialects = []dialect{
	// Podman returns the detach keys of an exec as text. The client takes them for base64, so that it
	// cannot inspect an exec with such keys. With Podman's own, ctrl-p arrives with the key after it.
	//
	// An exec that has ended has no pid: only the text distinguishes the exit code 127 of a tool from
	// that of an absent tool.
	{
		product: "podman", component: "Podman Engine", addsHome: true, execLacks: []string{"HOSTNAME"},
		startError: startError{codes: []int{125, 126, 127, 255}, stream: engineStderr, prefix: "Error: "},
	},
	{
		product: "docker", detachKeys: neverTyped,
		startError: startError{codes: []int{126, 127, 255}, stream: engineStdout},
	},
}

// neverTyped are detach keys that no user types. With the engine's default, a terminal would not
// receive Ctrl-P.
const neverTyped = "ctrl-_,ctrl-^,ctrl-],ctrl-_,ctrl-^,ctrl-]"

// dialectOf returns the dialect of an engine, and the engine's version.
func dialectOf(v client.ServerVersionResult) (d dialect, version string) {
	for _, d = range dialects {
		for _, c := range v.Components {
			if d.component != "" && c.Name == d.component {
				return d, c.Version
			}
		}
	}
	return d, v.Version // the last matches any engine
}

// ownEnv returns the variables of a container without those that the engine added. A HOME that is
// set to the home directory of the container's user looks like one that Podman added.
func (d dialect) ownEnv(c devcontainer.ContainerInfo, image image) []string {
	if !d.addsHome || agent.Lookup(image.env, "HOME") != "" {
		return c.Env
	}
	user, _, _ := strings.Cut(c.User, ":")
	added := []string{"HOME=/root", "HOME=/", "HOME=/home/" + user}
	return slices.DeleteFunc(slices.Clone(c.Env), func(v string) bool {
		return slices.Contains(added, v)
	})
}

// missingInExec returns the variables of a container that an exec has to be given.
func (d dialect) missingInExec(env []string) []string {
	var missing []string
	for _, name := range d.execLacks {
		if value := agent.Lookup(env, name); value != "" {
			missing = append(missing, name+"="+value)
		}
	}
	return missing
}

// removalEvents are the events of a removed container: destroy with Docker, remove with Podman.
var removalEvents = []string{"destroy", "remove"}

// changeEvents are the events after which cached facts about containers may be wrong.
var changeEvents = append([]string{
	"create", "start", "die", "rename", "pause", "unpause", "update",
}, removalEvents...)

// withoutProcesses are the states in which a container has no process and gets none without an
// event. An engine may refuse to filter by a state that it does not know.
var withoutProcesses = []string{"created", "exited", "stopped", "dead"}

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
