// Package logging makes the daemon's log: one JSON object per line and event, for machines first.
//
//	{"level":"info","time":"2026-03-01T12:00:00.123456789Z","event":"ready","socket":"/run/dray.sock"}
//
// The event is a short, fixed phrase that can be searched for; what varies stands in fields of its
// own. No field holds what may be a secret: inputs, outputs, values of variables, tokens. Such
// things are told by name, id or size.
package logging

import (
	"io"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// New makes a logger that writes events of the level and above to w, each with one Write, whole,
// from any number of goroutines. Errors of w go nowhere: a log that cannot be written is no reason
// to end a call.
func New(w io.Writer, level zapcore.Level) *zap.Logger {
	encoder := zapcore.NewJSONEncoder(zapcore.EncoderConfig{
		LevelKey:       "level",
		TimeKey:        "time",
		MessageKey:     "event",
		NameKey:        "component",
		StacktraceKey:  "stack",
		LineEnding:     zapcore.DefaultLineEnding,
		EncodeLevel:    zapcore.LowercaseLevelEncoder,
		EncodeTime:     encodeTime,
		EncodeDuration: zapcore.StringDurationEncoder,
		EncodeName:     zapcore.FullNameEncoder,
	})
	out := zapcore.Lock(zapcore.AddSync(w))
	return zap.New(zapcore.NewCore(encoder, out, level), zap.ErrorOutput(zapcore.AddSync(io.Discard)))
}

// encodeTime writes UTC whatever the machine's zone is, so that logs of several machines can be
// laid side by side.
func encodeTime(t time.Time, enc zapcore.PrimitiveArrayEncoder) {
	enc.AppendString(t.UTC().Format(time.RFC3339Nano))
}
