package command

import (
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// filterFlag is a flag of a command that queries the audit log, and the query parameter that it
// sets. parse turns the flag's value into the parameter's; nil leaves it as it is.
type filterFlag struct {
	flag, parameter, usage string
	parse                  func(a *app, flag, value string) (string, error)
}

var (
	sinceFlag = filterFlag{
		"since", "since", "only from this `time` on: a duration such as 2h or 1d, today, " +
			"yesterday, or YYYY-MM-DD[THH:MM:SS], in local time or with an offset", (*app).parseTimeFilter,
	}
	untilFlag = filterFlag{
		"until", "until", "only before this `time`, as for --since", (*app).parseTimeFilter,
	}
)

// callFilters are the filters of all commands that select calls.
var callFilters = []filterFlag{
	{"tool", "tool", "only calls of this `tool`", nil},
	{"status", "status", "only calls with this `status`: queued, running, succeeded, failed", nil},
	{"reason", "reason", "only calls that ended for this `reason`: exited, timeout, ...", nil},
	{"code", "code", "only calls whose error has this `code`", nil},
	{"environment", "environment", "only calls that ran in this `kind`: host or container", nil},
	{"container", "container", "only calls in this `container`, by name or full id", nil},
	{"image", "image", "only calls in containers of this `image`", nil},
	{"workspace", "workspace", "only calls of this workspace `folder`", parseFolder},
	{"plan", "plan_id", "only calls of this plan `id`", nil},
	{"session", "session_id", "only calls of this session `id`", nil},
	{"label", "label", "only calls with the label `K=V`", parseLabelFilter},
	{"principal", "principal", "only calls of this `principal`, such as uid:1000", nil},
	sinceFlag, untilFlag,
	{"min-duration", "min_duration_ms", "only calls that took at least this `time`", parseMillis},
	{"argv", "argv", "only calls with this `text` in their command line", nil},
	{"q", "q", "only calls whose input, labels, output or error contain this `text`", nil},
}

// filterFlags adds flags to a command, and returns a function that turns them into query
// parameters.
func (a *app) filterFlags(cmd *cobra.Command, flags []filterFlag) func() (url.Values, error) {
	for _, f := range flags {
		cmd.Flags().String(f.flag, "", f.usage)
	}
	return func() (url.Values, error) {
		query := url.Values{}
		for _, f := range flags {
			if !cmd.Flags().Changed(f.flag) {
				continue
			}
			value, err := cmd.Flags().Lookup(f.flag).Value.String(), error(nil)
			if f.parse != nil {
				value, err = f.parse(a, f.flag, value)
			}
			if err != nil {
				return nil, err
			}
			query.Set(f.parameter, value)
		}
		return query, nil
	}
}

// parseTimeFilter returns the time of a flag in the form of a query parameter.
func (a *app) parseTimeFilter(flag, value string) (string, error) {
	t, err := a.parseTime(flag, value)
	return t.UTC().Format(time.RFC3339Nano), err
}

func parseFolder(_ *app, flag, value string) (string, error) {
	folder, err := filepath.Abs(value)
	if err != nil || value == "" {
		return "", usagef("invalid value %q for --%s", value, flag)
	}
	return folder, nil
}

func parseLabelFilter(_ *app, flag, value string) (string, error) {
	name, text, ok := strings.Cut(value, "=")
	if !ok || name == "" {
		return "", usagef("invalid value %q for --%s", value, flag).WithHint("use the form K=V")
	}
	return name + ":" + text, nil
}

func parseMillis(_ *app, flag, value string) (string, error) {
	d, err := time.ParseDuration(value)
	if err != nil || d < 0 {
		return "", usagef("invalid duration %q for --%s", value, flag).
			WithHint("use a number and a unit, such as 1500ms, 90s or 5m")
	}
	return strconv.FormatInt(d.Milliseconds(), 10), nil
}
