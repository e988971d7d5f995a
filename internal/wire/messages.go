package wire

import (
	"encoding/json"
	"time"

	"github.com/dray-dev/dray"
)

// Start is the first message of a stream: run a process. Names and values are bytes, since neither argv nor an environment need be text.
type Start struct {
	Argv [][]byte `json:"argv,omitempty"`
	// Helper runs the agent's own program with these arguments instead of Argv.
	Helper []string `json:"helper,omitempty"`
	// User is as the engine takes it: name, uid, name:group, uid:gid. Empty is uid 0.
	User string `json:"user,omitempty"`
	// Groups are the container's further groups (--group-add), names or numbers, whoever the user is.
	Groups []string `json:"groups,omitempty"`
	// Dir is absolute; empty is the user's home folder.
	Dir []byte `json:"dir,omitempty"`
	// Env is what the engine gives every exec, Probe what the user's shell makes of it; Call and then Remote are laid over.
	Env    [][]byte      `json:"env,omitempty"`
	Probe  Probe         `json:"probe"`
	Call   [][]byte      `json:"call,omitempty"`
	Remote [][]byte      `json:"remote,omitempty"`
	Grace  time.Duration `json:"grace,omitempty"`
	// Keep leaves what the process leaves running when it ends by itself (protocol 2).
	Keep bool `json:"keep,omitempty"`
	// Terminal gives the process a terminal of that size. The agent keeps the master: channel 0 is what is typed, channel 1 what is shown
	// (protocol 2).
	Terminal *dray.TerminalSize `json:"terminal,omitempty"`
	// Ends says that the process's ends of stdin, stdout and stderr came with the message as descriptors, so that no channel is used (protocol 2,
	// on a socket).
	Ends bool `json:"ends,omitempty"`
}

// Probe says how the user's shell is asked for its environment.
type Probe struct {
	// Kind is a devcontainer userEnvProbe: none, loginShell, interactiveShell, loginInteractiveShell. Empty is none.
	Kind string `json:"kind,omitempty"`
	// Shell is asked; empty means the user's own, else /bin/sh.
	Shell string `json:"shell,omitempty"`
	// Dir is where; empty is the root folder.
	Dir []byte `json:"dir,omitempty"`
}

// Request is a later message of the daemon. One member is set.
type Request struct {
	Signal int `json:"signal,omitempty"`
	// Stop ends the process and all that descends from it.
	Stop *Stop `json:"stop,omitempty"`
	// Resize changes the size of the process's terminal (protocol 2).
	Resize *dray.TerminalSize `json:"resize,omitempty"`
}

// Stop is TERM, the grace, KILL.
type Stop struct {
	Grace time.Duration `json:"grace"`
}

// Reply is a message of the agent. The first is Started or Failed; after Started comes Exited, unless the agent is lost.
type Reply struct {
	Started *Started `json:"started,omitempty"`
	Failed  *Failed  `json:"failed,omitempty"`
	Exited  *Exited  `json:"exited,omitempty"`
}

// Started says that the kernel accepted the program.
type Started struct {
	PID      int      `json:"pid"`
	Warnings []string `json:"warnings,omitempty"`
}

// Failed says that nothing was started. Code is one of dray's, Path what it is about.
type Failed struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Exited says how the process ended.
type Exited struct {
	Code     int `json:"code"`
	Signal   int `json:"signal,omitempty"`
	Leftover int `json:"leftover,omitempty"`
	// Lost says that the supervisor was killed: neither code nor signal is known.
	Lost bool `json:"lost,omitempty"`
	// Proven says that Survivors are all there are.
	Proven    bool  `json:"proven"`
	Survivors []int `json:"survivors,omitempty"`
	// Kept are the descendants that Start.Keep left running; Leftover counts them (protocol 2).
	Kept []int `json:"kept,omitempty"`
	// OOM says whether the kernel killed it because memory ran out (protocol 2).
	OOM dray.OOM `json:"oom,omitempty"`
}

// Decode reads a message of the peer; what does not parse is a breach of the protocol.
func Decode(b []byte, into any) error {
	if err := json.Unmarshal(b, into); err != nil {
		return violation("message: %v", err)
	}
	return nil
}
