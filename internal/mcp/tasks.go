package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/internal/call"
)

const (
	// tasksExtension is the extension of long calls (SEP-2663). A client declares it in each request.
	tasksExtension = "io.modelcontextprotocol/tasks"
	// taskDelay is how long a call runs before its client gets a task in place of its result, unless
	// the call sets wait_ms. pollInterval is how often clients should ask for it.
	taskDelay    = 5 * time.Second
	pollInterval = time.Second
)

// Methods of the extension.
const (
	methodGet    = "tasks/get"
	methodUpdate = "tasks/update"
	methodCancel = "tasks/cancel"
)

// taskStatus is the state of a task.
type taskStatus string

// The states of a task. A call that waits for an approval requires input of clients that can ask
// their user.
const (
	taskWorking       taskStatus = "working"
	taskInputRequired taskStatus = "input_required"
	taskCompleted     taskStatus = "completed"
	taskFailed        taskStatus = "failed"
	taskCancelled     taskStatus = "cancelled"
)

// task is a task as its client gets it: when it is created, with the result type task and without
// result, error and questions; later, with them.
type task struct {
	sdk.ResultBase
	ResultType string     `json:"resultType"`
	ID         string     `json:"taskId"`
	Status     taskStatus `json:"status"`
	Message    string     `json:"statusMessage,omitempty"`
	CreatedAt  time.Time  `json:"createdAt"`
	UpdatedAt  time.Time  `json:"lastUpdatedAt"`
	// TTL is always null: the audit log has no limit of a single record.
	TTL           *int64              `json:"ttlMs"`
	PollMS        int64               `json:"pollIntervalMs"`
	InputRequests sdk.InputRequestMap `json:"inputRequests,omitempty"`
	Result        *sdk.CallToolResult `json:"result,omitempty"`
	Error         *jsonrpc.Error      `json:"error,omitempty"`
}

// taskParams are the parameters of all methods of the extension.
type taskParams struct {
	sdk.ParamsBase
	ID             string                     `json:"taskId"`
	InputResponses map[string]json.RawMessage `json:"inputResponses,omitempty"`
}

// taskAck is the result of a change to a task.
type taskAck struct {
	sdk.ResultBase
	ResultType string `json:"resultType"`
}

// taskStore finds and changes the tasks of a principal. Its methods fail with not_found for those
// of another one. It is an interface for the fixtures of the conformance suite, which have tasks
// beside those of calls.
type taskStore interface {
	getTask(ctx context.Context, principal, id string) (*task, error)
	// updateTask passes on the answers to the questions of a task. Others are ignored.
	updateTask(ctx context.Context, principal, id string, answers map[string]json.RawMessage) error
	// cancelTask does not change a task that has ended.
	cancelTask(ctx context.Context, principal, id string) error
}

// addTasks adds the extension to the SDK's server.
func (s *Server) addTasks(store taskStore) {
	s.server.AddReceivingMiddleware(s.serveTasks)
	type handler func(context.Context, *taskRequest, *taskParams) (sdk.Result, error)
	add := func(method string, run handler) {
		err := sdk.AddReceivingCustomMethod(s.server, method,
			func(ctx context.Context, _ *sdk.ServerSession, p *taskParams) (sdk.Result, error) {
				res, err := run(ctx, taskRequestOf(ctx), p)
				if err != nil {
					return nil, rpcError(err)
				}
				return res, nil
			})
		if err != nil {
			panic(err) // the SDK has a method of this name
		}
	}
	ack := &taskAck{ResultType: "complete"}
	add(methodGet, func(ctx context.Context, req *taskRequest, p *taskParams) (sdk.Result, error) {
		return store.getTask(ctx, req.user.Principal, p.ID)
	})
	add(methodUpdate, func(ctx context.Context, req *taskRequest, p *taskParams) (sdk.Result, error) {
		return copyOf(ack), store.updateTask(ctx, req.user.Principal, p.ID, p.InputResponses)
	})
	add(methodCancel, func(ctx context.Context, req *taskRequest, p *taskParams) (sdk.Result, error) {
		return copyOf(ack), store.cancelTask(ctx, req.user.Principal, p.ID)
	})
}

// copyOf returns a copy, because the SDK adds to a result.
func copyOf(ack *taskAck) *taskAck {
	c := *ack
	return &c
}

// taskRequest is a request of a client that has declared the extension.
type taskRequest struct {
	user    call.Decider // the user of the client
	elicits bool         // the client can ask its user
	created *task        // in place of the result of the tool call
}

type taskKey struct{}

// taskRequestOf returns the request of a client that can get a task, or nil.
func taskRequestOf(ctx context.Context) *taskRequest {
	req, _ := ctx.Value(taskKey{}).(*taskRequest)
	return req
}

// serveTasks returns a handler of all methods that adds a taskRequest to those that need one.
func (s *Server) serveTasks(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		switch method {
		case "tools/call":
			if !declaresTasks(req) {
				return next(ctx, method, req)
			}
		case methodGet, methodUpdate, methodCancel:
			if err := checkTaskRequest(req); err != nil {
				return nil, err
			}
		default:
			return next(ctx, method, req)
		}
		session, _ := req.GetSession().(*sdk.ServerSession)
		tr := &taskRequest{user: deciderOf(req), elicits: canElicit(session)}
		res, err := next(context.WithValue(ctx, taskKey{}, tr), method, req)
		if err == nil && tr.created != nil {
			return tr.created, nil
		}
		return res, err
	}
}

// declaresTasks reports whether a request has the extension among the client's capabilities. A
// session does not count: the client could not use its tasks after the session has ended.
func declaresTasks(req sdk.Request) bool {
	if p, ok := req.GetParams().(*taskParams); ok && p == nil {
		return false
	}
	caps, _ := req.GetParams().GetMeta()[sdk.MetaKeyClientCapabilities].(map[string]any)
	extensions, _ := caps["extensions"].(map[string]any)
	_, ok := extensions[tasksExtension]
	return ok
}

// checkTaskRequest fails if a client did not declare the extension, or if the header with the id of
// the task is missing or another one.
func checkTaskRequest(req sdk.Request) error {
	if !declaresTasks(req) {
		return errNeedsTasks()
	}
	header := req.GetExtra().Header
	params, ok := req.GetParams().(*taskParams)
	if !ok || header.Get(versionHeader) < statelessRevision {
		return nil // earlier revisions do not have the header
	}
	if name := header.Get(nameHeader); name != params.ID {
		return &jsonrpc.Error{
			Code:    sdk.CodeHeaderMismatch,
			Message: fmt.Sprintf("the header %s is %q, and the task is %q", nameHeader, name, params.ID),
		}
	}
	return nil
}

// errNeedsTasks returns the error of a request that needs the extension.
func errNeedsTasks() error {
	return &jsonrpc.Error{
		Code: sdk.CodeMissingRequiredClientCapabilities,
		Message: "the client did not declare the extension " + tasksExtension +
			" in the _meta of the request",
		Data: json.RawMessage(`{"requiredCapabilities":{"extensions":{"` + tasksExtension + `":{}}}}`),
	}
}

// rpcError returns an error as JSON-RPC has it.
func rpcError(err error) *jsonrpc.Error {
	e := dray.AsError(err)
	code := int64(codeInternal)
	switch e.Code {
	case dray.CodeNotFound, dray.CodeInvalidRequest, dray.CodeInvalidInput:
		code = jsonrpc.CodeInvalidParams
	}
	text := e.Message
	if e.Hint != "" {
		text += ": " + e.Hint
	}
	return &jsonrpc.Error{Code: code, Message: text}
}

// callTasks is the taskStore of calls. It has no state: a task is a call of the registry, or its
// record in the audit log.
type callTasks struct{ *Server }

// findTask returns the record of a call of a principal, and the call if it is in memory.
func (s callTasks) findTask(ctx context.Context, principal, id string,
) (rec dray.Record, c *call.Call, err error) {
	if c, ok := s.cfg.Calls.Find(id, principal); ok {
		rec, err := c.FullRecord()
		return rec, c, err
	}
	rec, err = s.cfg.Outputs.Record(ctx, principal, id)
	return rec, nil, err
}

func (s callTasks) getTask(ctx context.Context, principal, id string) (*task, error) {
	rec, _, err := s.findTask(ctx, principal, id)
	if err != nil {
		return nil, err
	}
	t := newTask(rec, s.cfg.Current().View)
	if rec.Approval != "" && taskRequestOf(ctx).elicits {
		a, err := s.cfg.Approvals.Get(ctx, principal, rec.Approval)
		if err != nil {
			return nil, err
		}
		if question := approvalQuestion(a); question != nil {
			t.Status = taskInputRequired
			t.InputRequests = sdk.InputRequestMap{taskQuestion(a.ID): question}
		}
	}
	return t, nil
}

// taskQuestion returns the key of the question about an approval. A task asks about another
// approval if what its call depends on has changed, and an answer is to one question only.
func taskQuestion(approvalID string) string { return approvalKey + "-" + approvalID }

func (s callTasks) updateTask(ctx context.Context, principal, id string,
	answers map[string]json.RawMessage,
) error {
	rec, _, err := s.findTask(ctx, principal, id)
	if err != nil || rec.Approval == "" {
		return err
	}
	var answer sdk.ElicitResult
	if text, ok := answers[taskQuestion(rec.Approval)]; ok {
		if err := json.Unmarshal(text, &answer); err != nil {
			return dray.Errorf(dray.CodeInvalidRequest, "decode the answer: %w", err).
				WithHint("answer with the result of an elicitation")
		}
	}
	_, err = s.decide(ctx, taskRequestOf(ctx).user, rec.Approval, &answer)
	return err
}

func (s callTasks) cancelTask(ctx context.Context, principal, id string) error {
	_, c, err := s.findTask(ctx, principal, id)
	if c != nil {
		c.Cancel(executor.ErrCancelled)
	}
	return err
}

// createdTask returns the task of a call that still runs, for the response to its request.
func createdTask(rec dray.Record) *task {
	t := newTask(rec, 0)
	t.ResultType = "task"
	t.Result, t.Error = nil, nil // it may just have ended; its client asks for them
	return t
}

// newTask returns the task of a call. A tool that failed has completed its task, with a result that
// is an error; only a call that the daemon itself failed has none.
func newTask(rec dray.Record, view int) *task {
	t := &task{
		ResultType: "complete", ID: rec.ID, Status: taskWorking, Message: string(rec.Status),
		CreatedAt: rec.StartedAt, UpdatedAt: rec.StartedAt, PollMS: pollInterval.Milliseconds(),
	}
	if rec.Approval != "" {
		t.Message = approvalMessage(rec.Approval)
	}
	if rec.Reason == "" {
		return t
	}
	if rec.EndedAt != nil {
		t.UpdatedAt = *rec.EndedAt
	}
	r := newCallResult(rec, view)
	t.Message = r.outcome()
	switch {
	case rec.Reason == dray.ReasonCancelled:
		t.Status = taskCancelled
	case rec.Reason == dray.ReasonInterrupted,
		rec.Error != nil && rec.Error.Code == dray.CodeInternal:
		t.Status = taskFailed
		t.Error = rpcError(failureOf(rec))
		t.Error.Code = codeInternal // not one of the request for the task
	default:
		t.Status = taskCompleted
		t.Result = r.result(isError(rec))
	}
	return t
}

// failureOf returns the error of a call that the daemon failed or lost.
func failureOf(rec dray.Record) error {
	if rec.Error != nil && rec.Error.Message != "" {
		return rec.Error
	}
	return dray.Errorf(dray.CodeInternal, "the call was interrupted").
		WithHint("check what it did before you repeat it; read_output has its output")
}
