package dray

import "context"

// Executor runs one whole call. Admission, audit, limits and workspaces are Executors around
// Executors; the innermost one runs the tool in an Environment.
//
// A tool's non-zero exit is a Result. An error means that the call could not run and has a Code;
// the Result returned with it has what is known (route, partial output). Execute returns when
// everything that it started has ended.
type Executor interface {
	Execute(ctx context.Context, call Call, sink Sink) (Result, error)
}

// ExecutorFunc is a function as an Executor.
type ExecutorFunc func(ctx context.Context, call Call, sink Sink) (Result, error)

// Execute calls f.
func (f ExecutorFunc) Execute(ctx context.Context, call Call, sink Sink) (Result, error) {
	return f(ctx, call, sink)
}

// Stream is an output stream of a process.
type Stream int

// The streams.
const (
	Stdout Stream = 1
	Stderr Stream = 2
)

// String returns "stdout" or "stderr".
func (s Stream) String() string {
	if s == Stderr {
		return "stderr"
	}
	return "stdout"
}

// Sink receives the events of a running call. It is safe for concurrent use and keeps no slice. Its
// methods block for a client only if the caller asked for that. None is called after Execute has
// returned.
type Sink interface {
	// Started reports that the process was started.
	Started()
	// Progress reports a step of the preparation: phase is a word, message a sentence.
	Progress(phase, message string)
	// Output reports raw output, in order for each stream.
	Output(stream Stream, p []byte)
}

// Discard is a Sink that ignores all events.
var Discard Sink = discard{}

type discard struct{}

func (discard) Started()                  {}
func (discard) Progress(_, _ string)      {}
func (discard) Output(_ Stream, _ []byte) {}
