//go:build mcpfixtures

package mcp

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// fixtureTasks has the tasks of fixtures, which are no calls, beside those of another store.
type fixtureTasks struct {
	taskStore

	mu    sync.Mutex
	tasks map[string]*fixtureTask
}

type fixtureTask struct {
	task     task
	cancel   context.CancelFunc
	answered chan struct{} // closed when no question is left
}

// fixtureJob is what a task of a fixture does. answered is closed when all questions are answered.
type fixtureJob func(ctx context.Context, answered <-chan struct{}) (*sdk.CallToolResult, error)

// create answers a tool call with a new task. It fails for a client without the extension.
func (s *fixtureTasks) create(ctx context.Context, questions sdk.InputRequestMap, run fixtureJob,
) (*sdk.CallToolResult, error) {
	req := taskRequestOf(ctx)
	if req == nil {
		return nil, errNeedsTasks()
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	now := time.Now()
	t := &fixtureTask{
		task: task{
			ResultType: "complete", ID: rand.Text(), Status: taskWorking, CreatedAt: now, UpdatedAt: now,
			PollMS: 100, InputRequests: questions,
		},
		cancel: cancel, answered: make(chan struct{}),
	}
	created := t.task
	created.ResultType, created.InputRequests = "task", nil
	req.created = &created
	if len(questions) > 0 {
		t.task.Status = taskInputRequired
	}
	s.mu.Lock()
	s.tasks[t.task.ID] = t
	s.mu.Unlock()
	go func() {
		defer cancel()
		res, err := run(ctx, t.answered)
		s.mu.Lock()
		defer s.mu.Unlock()
		t.end(ctx, res, err)
	}()
	return texts(""), nil
}

func (t *fixtureTask) end(ctx context.Context, res *sdk.CallToolResult, err error) {
	t.task.UpdatedAt, t.task.InputRequests = time.Now(), nil
	switch {
	case ctx.Err() != nil:
		t.task.Status = taskCancelled
	case err != nil:
		t.task.Status = taskFailed
		t.task.Error = &jsonrpc.Error{Code: codeInternal, Message: err.Error()}
	default:
		t.task.Status, t.task.Result = taskCompleted, res
	}
}

func (s *fixtureTasks) find(id string) *fixtureTask {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tasks[id]
}

func (s *fixtureTasks) getTask(ctx context.Context, principal, id string) (*task, error) {
	t := s.find(id)
	if t == nil {
		return s.taskStore.getTask(ctx, principal, id)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found := t.task
	found.InputRequests = sdk.InputRequestMap{}
	for key, question := range t.task.InputRequests {
		found.InputRequests[key] = question
	}
	return &found, nil
}

func (s *fixtureTasks) updateTask(ctx context.Context, principal, id string,
	answers map[string]json.RawMessage,
) error {
	t := s.find(id)
	if t == nil {
		return s.taskStore.updateTask(ctx, principal, id, answers)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range answers {
		delete(t.task.InputRequests, key)
	}
	if t.task.Status == taskInputRequired && len(t.task.InputRequests) == 0 {
		t.task.Status = taskWorking
		close(t.answered)
	}
	return nil
}

func (s *fixtureTasks) cancelTask(ctx context.Context, principal, id string) error {
	t := s.find(id)
	if t == nil {
		return s.taskStore.cancelTask(ctx, principal, id)
	}
	t.cancel()
	return nil
}

// after returns a job that takes a time.
func after(d time.Duration, res *sdk.CallToolResult, err error) fixtureJob {
	return func(ctx context.Context, _ <-chan struct{}) (*sdk.CallToolResult, error) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
		return res, err
	}
}

// whenAnswered is a job that ends when all questions are answered.
func whenAnswered(ctx context.Context, answered <-chan struct{}) (*sdk.CallToolResult, error) {
	select {
	case <-answered:
	case <-ctx.Done():
	}
	return texts("answered"), nil
}

func (f fixtures) addTasks(s *fixtureTasks) {
	f.tool("greet", anyObject, func(_ context.Context, req *sdk.CallToolRequest,
	) (*sdk.CallToolResult, error) {
		var args struct {
			Name string `json:"name"`
		}
		_ = json.Unmarshal(req.Params.Arguments, &args)
		return texts("Hello, %s!", args.Name), nil
	})
	f.tool("slow_compute", anyObject, func(ctx context.Context, req *sdk.CallToolRequest,
	) (*sdk.CallToolResult, error) {
		var args struct {
			Seconds float64 `json:"seconds"`
			Label   string  `json:"label"`
		}
		_ = json.Unmarshal(req.Params.Arguments, &args)
		job := after(time.Duration(args.Seconds*float64(time.Second)), texts("computed %s", args.Label), nil)
		if taskRequestOf(ctx) == nil || args.Seconds == 0 {
			return job(ctx, nil)
		}
		return s.create(ctx, nil, job)
	})
	failed := texts("the job failed")
	failed.IsError = true
	for name, job := range map[string]fixtureJob{
		"failing_job":        after(time.Second, failed, nil),
		"protocol_error_job": after(0, nil, fmt.Errorf("the job is broken")),
	} {
		f.tool(name, anyObject, func(ctx context.Context, _ *sdk.CallToolRequest,
		) (*sdk.CallToolResult, error) {
			return s.create(ctx, nil, job)
		})
	}
	for name, keys := range map[string][]string{
		"confirm_delete": {"confirm"}, "multi_input": {"first", "second"},
	} {
		f.tool(name, anyObject, func(ctx context.Context, _ *sdk.CallToolRequest,
		) (*sdk.CallToolResult, error) {
			questions := sdk.InputRequestMap{}
			for _, key := range keys {
				questions[key] = askConfirm
			}
			return s.create(ctx, questions, whenAnswered)
		})
	}
	f.tool("test_tool_with_task", anyObject, func(ctx context.Context, req *sdk.CallToolRequest,
	) (*sdk.CallToolResult, error) {
		name, _ := answer(req.Params.InputResponses, "user_name")["name"].(string)
		if name == "" {
			return ask("", sdk.InputRequestMap{"user_name": askName}), nil
		}
		return s.create(ctx, nil, after(0, texts("Hello, %s!", name), nil))
	})
}
