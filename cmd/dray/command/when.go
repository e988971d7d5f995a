package command

import (
	"time"
)

// parseTime reads a time from a flag: RFC 3339, a day, or how long ago it is. The daemon gets RFC 3339.
func parseTime(flag, s string) (string, error) {
	if ago, err := time.ParseDuration(s); err == nil && ago >= 0 {
		return time.Now().Add(-ago).UTC().Format(time.RFC3339Nano), nil
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t.UTC().Format(time.RFC3339Nano), nil
	}
	if t, err := time.ParseInLocation(time.DateOnly, s, time.Local); err == nil {
		return t.UTC().Format(time.RFC3339Nano), nil
	}
	return "", usagef("--%s %q is no time", flag, s).
		WithHint("write 2006-01-02T15:04:05Z, 2006-01-02, or how long ago it is, for instance 90m")
}

// localTime shows a time to people where they are, to the second.
func localTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(time.DateTime)
}
