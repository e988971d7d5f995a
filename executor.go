package dray

import "context"

// Executor runs one whole call. Audit, routing, policy and mapping are Executors around Executors;
// the innermost starts a process on an Environment and captures what it prints.
//
// A tool's non-zero exit is a Result. An error means that the call could not run and carries a
// Code; the Result beside it holds what is known all the same (route, partial output). Execute
// returns only when everything that it started is over.
type Executor interface {
	Execute(ctx context.Context, call Call, sink Sink) (Result, error)
}

// ExecutorFunc makes an Executor of a function.
type ExecutorFunc func(ctx context.Context, call Call, sink Sink) (Result, error)

// Execute calls f.
func (f ExecutorFunc) Execute(ctx context.Context, call Call, sink Sink) (Result, error) {
	return f(ctx, call, sink)
}

// Stream is one of a process's two outputs.
type Stream int

// The streams.
const (
	Stdout Stream = 1
	Stderr Stream = 2
)

// String gives "stdout" or "stderr".
func (s Stream) String() string {
	if s == Stderr {
		return "stderr"
	}
	return "stdout"
}

// Sink hears what happens while a call runs. Its methods may be called from several goroutines and
// keep no slice. They wait for no client, unless the caller asked that the tool wait for its own
// stream. None is called after Execute has returned.
type Sink interface {
	// Started says that the process was started.
	Started()
	// Progress tells of a long wait before that: phase is a word, message a sentence.
	Progress(phase, message string)
	// Output gives the bytes as the tool printed them, in order for each stream.
	Output(stream Stream, p []byte)
}

// Discard is a Sink that hears nothing.
var Discard Sink = discard{}

type discard struct{}

func (discard) Started()                  {}
func (discard) Progress(_, _ string)      {}
func (discard) Output(_ Stream, _ []byte) {}
