package logging

import (
	"fmt"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Redacted returns a logger that passes the texts in its fields through redact (AU-07).
func Redacted(log *zap.Logger, redact func(string) string) *zap.Logger {
	return log.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return redactingCore{core, redact}
	}))
}

type redactingCore struct {
	zapcore.Core

	redact func(string) string
}

// With implements zapcore.Core.
func (c redactingCore) With(fields []zapcore.Field) zapcore.Core {
	return redactingCore{c.Core.With(c.redacted(fields)), c.redact}
}

// Check implements zapcore.Core.
func (c redactingCore) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return checked.AddCore(e, c)
	}
	return checked
}

// Write implements zapcore.Core.
func (c redactingCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	return c.Core.Write(e, c.redacted(fields))
}

func (c redactingCore) redacted(fields []zapcore.Field) []zapcore.Field {
	all := make([]zapcore.Field, len(fields))
	for i, f := range fields {
		all[i] = c.field(f)
	}
	return all
}

// field returns a field whose texts are redacted: strings, bytes, errors and lists of them.
func (c redactingCore) field(f zapcore.Field) zapcore.Field {
	switch f.Type {
	case zapcore.StringType:
		f.String = c.redact(f.String)
		return f
	case zapcore.ByteStringType, zapcore.StringerType, zapcore.ErrorType, zapcore.ArrayMarshalerType:
	default:
		return f
	}
	encoder := zapcore.NewMapObjectEncoder()
	f.AddTo(encoder)
	switch value := encoder.Fields[f.Key].(type) {
	case string:
		return zap.String(f.Key, c.redact(value))
	case []any:
		texts := make([]string, len(value))
		for i, element := range value {
			texts[i] = c.redact(fmt.Sprint(element))
		}
		return zap.Strings(f.Key, texts)
	default:
		return f
	}
}
