package tool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/python"
)

// pythonOutput is the output of the tool python.
type pythonOutput struct {
	OK             bool                       `json:"ok"`
	Code           int                        `json:"code"`
	Value          json.RawMessage            `json:"value"`
	Globals        map[string]json.RawMessage `json:"globals"`
	Missing        []string                   `json:"missing,omitempty"`
	Stdout         string                     `json:"stdout"`
	Stderr         string                     `json:"stderr"`
	Error          *pythonError               `json:"error"`
	Files          *python.FileChanges        `json:"files"`
	Session        string                     `json:"session"`
	Runtime        string                     `json:"runtime"`
	Generation     uint32                     `json:"generation"`
	Restarted      bool                       `json:"restarted"`
	DiscardedState bool                       `json:"discarded_state"`
	Usage          python.Usage               `json:"usage"`

	Changed       *bool                  `json:"changed,omitzero"`
	Python        *python.PreparedPython `json:"python,omitzero"`
	Packages      *[]string              `json:"packages,omitzero"`
	PythonVersion string                 `json:"python_version,omitempty"`
	Installed     *[]string              `json:"installed,omitzero"`
	Removed       *[]string              `json:"removed,omitzero"`

	Interrupted  *bool                          `json:"interrupted,omitzero"`
	Sessions     *[]sessionStatus               `json:"sessions,omitzero"`
	Capabilities map[string]python.Capabilities `json:"capabilities,omitzero"`
}

type pythonError struct {
	Code      string `json:"code"`
	Message   string `json:"message"`
	Traceback string `json:"traceback"`
}

// sessionStatus is a session as operation status lists it.
type sessionStatus struct {
	Session    string              `json:"session"`
	Runtime    string              `json:"runtime"`
	State      python.SessionState `json:"state"`
	Generation uint32              `json:"generation"`
	Python     string              `json:"python,omitempty"`
	Executable string              `json:"executable,omitempty"`
	HasState   bool                `json:"has_state"`
	StateLost  bool                `json:"state_lost"`
	Waiting    int                 `json:"waiting"`
	// Permissions are nil if they are those of the environment, or not fixed yet.
	Permissions *python.Permissions `json:"permissions,omitempty"`
	LastUsed    time.Time           `json:"last_used,omitzero"`
}

func (c *pythonCall) newOutput() pythonOutput {
	return pythonOutput{
		Value: orNull(nil), Globals: map[string]json.RawMessage{}, Session: c.key.Name,
		Runtime: c.key.Runtime,
	}
}

func (o *pythonOutput) fail(code int, message string) {
	o.OK, o.Code, o.Error = false, code, &pythonError{Message: message}
}

func orNull(value json.RawMessage) json.RawMessage {
	if len(value) == 0 {
		return json.RawMessage("null")
	}
	return value
}

// withOutput adds the output to a result. Its streams are the bounded views of the result.
func (c *pythonCall) withOutput(res dray.Result, out pythonOutput, cause error,
) (dray.Result, error) {
	out.Stdout, out.Stderr = res.Stdout.Text, res.Stderr.Text
	b, err := json.Marshal(out)
	if err != nil {
		return res, fmt.Errorf("encode the output: %w", err)
	}
	res.Output = b
	return res, cause
}

// operate runs an operation that starts no code.
func (c *pythonCall) operate(sink dray.Sink, do func(*pythonOutput) error) (dray.Result, error) {
	sink.Started()
	out := c.newOutput()
	out.OK = true
	if err := do(&out); err != nil {
		res := dray.Result{}
		switch {
		case dray.CodeOf(err) == dray.CodeNotFound:
			res.Reason = dray.ReasonInvalid
		case errors.Is(err, python.ErrReset):
			res.Reason = dray.ReasonCancelled
		}
		return res, err
	}
	return successResult(dray.Result{}, out)
}

// prepare changes the packages or the interpreter of the session (PY-14).
func (c *pythonCall) prepare(ctx context.Context, policy python.PreparePolicy, sink dray.Sink,
	out *pythonOutput,
) error {
	req, err := c.in.prepare().Parse(policy)
	if err != nil {
		return err
	}
	reply, err := c.sessions.Prepare(ctx, c.key, c.Environment, python.CallSpec{
		Permissions: c.in.Permissions,
	}, req, policy, sink)
	if err != nil {
		return err
	}
	out.Changed, out.Restarted, out.DiscardedState = &reply.Changed, reply.Restarted, reply.Restarted
	out.Python, out.Packages, out.PythonVersion = &reply.Python, &reply.Packages, reply.PythonVersion
	out.Installed, out.Removed = &reply.Installed, &reply.Removed
	if st, err := c.sessions.Status(c.key); err == nil {
		out.Generation = st.Generation
	}
	return nil
}

// status lists the session that the input names, else all that the caller has in the environment
// of the call. If the input names no runtime either, those of the runtime pyodide in the same
// workspace are listed too, although their environment is the host.
func (c *pythonCall) status(out *pythonOutput) error {
	environments := []string{c.key.Environment}
	if c.in.Runtime == "" {
		environments = append(environments, sessionEnvironmentID(c.Call, python.RuntimePyodide))
	}
	list := c.sessions.List(c.key.Principal, environments...)
	if c.in.named {
		one, err := c.sessions.Status(c.key)
		if err != nil {
			return err
		}
		list = []python.Status{one}
	}
	sessions := make([]sessionStatus, len(list))
	for i, s := range list {
		sessions[i] = sessionStatus{
			Session: s.Name, Runtime: s.Runtime, State: s.State, Generation: s.Generation,
			Executable: s.Executable, HasState: s.HasState, StateLost: s.StateLost, Waiting: s.Waiting,
			LastUsed: s.LastUsed, Permissions: s.Permissions,
		}
		if s.Hello != nil {
			sessions[i].Python = s.Hello.Python
			sessions[i].Executable = cmp.Or(s.Hello.Executable, s.Executable)
		}
	}
	out.Sessions, out.Capabilities = &sessions, c.sessions.Runtimes()
	return nil
}
