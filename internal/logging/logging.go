// Package logging creates the daemon's log: one JSON object per line and event.
//
//	{"level":"info","time":"2026-03-01T12:00:00.123456789Z","event":"ready","socket":"/run/dray.sock"}
//
// The event is a short, fixed phrase; variable parts are fields. No field contains possible
// secrets: inputs, outputs, values of variables, tokens. Their names, ids or sizes are logged
// instead. [Redacted] replaces those that an error contains.
package logging

import (
	"io"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// New returns a logger that writes events of the level and above to w, each with one Write. It is
// safe for concurrent use. Errors of w are ignored: a failed log must not fail a call.
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

// encodeTime writes UTC, so that logs of several machines can be compared.
func encodeTime(t time.Time, enc zapcore.PrimitiveArrayEncoder) {
	enc.AppendString(t.UTC().Format(time.RFC3339Nano))
}
