package command

import (
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/config"
)

// Flags take times as people write them: without an offset they are local.
func TestParseTime(t *testing.T) {
	local := func(hour, minute, second int) time.Time {
		return time.Date(2026, 11, 22, hour, minute, second, 0, time.Local)
	}
	for text, want := range map[string]time.Time{
		"2026-11-22": local(0, 0, 0), "2026-11-22T09:08": local(9, 8, 0),
		"2026-11-22T09:08:07": local(9, 8, 7), "2026-11-22 09:08": local(9, 8, 0),
		"2026-11-22 09:08:07":       local(9, 8, 7),
		"2026-11-22T09:08:07+05:00": time.Date(2026, 11, 22, 4, 8, 7, 0, time.UTC),
		"2026-11-22T09:08Z":         time.Date(2026, 11, 22, 9, 8, 0, 0, time.UTC),
	} {
		if got, err := new(app).parseTime("since", text); err != nil || !got.Equal(want) {
			t.Errorf("%s is %s, want %s: %v", text, got, want.UTC(), err)
		}
	}
	for text, want := range map[string]time.Duration{
		"1d": 24 * time.Hour, "1d12h": 36 * time.Hour, "2w": 14 * 24 * time.Hour, "1w1d": 8 * 24 * time.Hour,
		"90m": 90 * time.Minute, "0s": 0,
	} {
		if got, ok := parseAgo(text); !ok || got != want {
			t.Errorf("%s is %v, want %v", text, got, want)
		}
	}
	for _, text := range []string{"", "d", "1", "-1h", "1d-1h", "1h1d", "1.5d", "tomorrow", "9:08", "99999999d"} {
		if got, err := new(app).parseTime("since", text); err == nil {
			t.Errorf("%q is %s", text, got)
		}
	}
}

// today and yesterday are calendar days, in the zone of the flags.
func TestParseTime_Days(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // it is midnight in UTC on 2000-01-01
		time.Sleep(90 * time.Minute)
		a := &app{utc: true}
		for text, want := range map[string]time.Time{
			"today":     time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC),
			"yesterday": time.Date(1999, 12, 31, 0, 0, 0, 0, time.UTC),
		} {
			if got, err := a.parseTime("since", text); err != nil || !got.Equal(want) {
				t.Errorf("%s is %s, want %s: %v", text, got, want, err)
			}
		}
	})
}

// Printed times have the local zone, and can be given to --since.
func TestTimesHaveTheirZone(t *testing.T) {
	at := time.Date(2026, 11, 22, 9, 8, 7, 5, time.FixedZone("", 3600))
	for _, text := range []string{localTime(at)} {
		got, err := time.Parse(time.RFC3339, text)
		_, offset := got.Zone()
		if _, want := at.Local().Zone(); err != nil || offset != want ||
			!got.Truncate(time.Second).Equal(at.Truncate(time.Second)) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// An interrupted call is shown as such, not by the code of its error, and what is unknown of it is
// said (AU-03).
func TestInterruptedCallIsShown(t *testing.T) {
	ended := time.Now()
	rec := dray.Record{
		Status: dray.StatusFailed, Reason: dray.ReasonInterrupted, EndedAt: &ended,
		Error: dray.Errorf(dray.CodeInternal, "the daemon ended while the call ran"),
	}
	if got := endOf(rec); got != "interrupted" {
		t.Errorf("the list shows %q", got)
	}
	text := callSection(rec, time.Local).String()
	if !strings.Contains(text, "unknown, before ") || !strings.Contains(text, "duration   unknown") &&
		!strings.Contains(text, "duration  unknown") {
		t.Errorf("the record shows %s", text)
	}
}

// The warning names what this command has.
func TestConfigSources(t *testing.T) {
	for want, given := range map[string][]string{
		"": {"", "PATH=/bin", "DRAY_STATE=/s", "DRAY_LIMITS_GRACE="}, "--config": {"a.yaml"},
		"DRAY_CONFIG":                 {"", "DRAY_CONFIG=b.yaml"},
		"DOCKER_HOST":                 {"", "DOCKER_HOST=tcp://b", "DOCKER_CONTEXT="},
		"--config, DRAY_LIMITS_GRACE": {"a.yaml", "DRAY_LIMITS_GRACE=1s"},
	} {
		if got := configSources(given[0], given[1:]); got != want {
			t.Errorf("%v: %q, want %q", given, got, want)
		}
	}
}

// A daemon that was started with another DOCKER_HOST uses another engine, unless the configuration
// selects one.
func TestConfigDigest(t *testing.T) {
	digest := func(cfg config.Config, host string) string {
		t.Setenv("DOCKER_HOST", host)
		return configDigest(&cfg)
	}
	own, file := config.Config{}, config.Config{Engine: config.Engine{Host: "unix:///s"}}
	if digest(own, "tcp://a") == digest(own, "tcp://b") {
		t.Error("the digest does not tell two engines apart")
	}
	if digest(file, "tcp://a") != digest(file, "tcp://b") {
		t.Error("the digest depends on a variable without effect")
	}
}

// A warning about a changed file does not blame the variables of the command, and one about
// variables does not send its reader to dray reload, which does not apply them (CF-01).
func TestCompareConfigs(t *testing.T) {
	file := ""
	digest := func(flag string, environ ...string) string {
		cfg, err := config.Load(config.Options{
			State: "/s", ConfigFile: flag, Environ: append(environ, "HOME=/home/me"),
			ReadFile: func(name string) ([]byte, error) {
				if file == "" || !strings.HasSuffix(name, ".yaml") {
					return nil, fs.ErrNotExist
				}
				return []byte(file), nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		return configDigest(cfg)
	}
	check := func(of, a, b string, differ, sources bool) {
		t.Helper()
		if gotDiffer, gotSources := compareConfigs(a, b); gotDiffer != differ ||
			differ && gotSources != sources {
			t.Errorf("%s: differ %v, by flags and variables %v", of, gotDiffer, gotSources)
		}
	}
	const grace = "DRAY_LIMITS_GRACE=7s"
	own := "/home/me/.config/dray/config.yaml"
	none := digest("", grace)
	file = "limits: {timeout: 90s}"
	first := digest("", grace)
	check("the first file", none, first, true, false)
	check("the same file by a flag", first, digest(own, grace), false, false)
	check("another file", first, digest("/b.yaml"), true, true)
	check("a variable", first, digest("", "DRAY_LIMITS_GRACE=8s"), true, true)
	check("a variable less", first, digest(""), true, true)
	file = "limits: {timeout: 91s}"
	check("a changed file", first, digest("", grace), true, false)
	check("both", first, digest(""), true, true)
}

// The list names the container of a call, or else what its route says.
func TestWhere(t *testing.T) {
	named := dray.Metadata{Container: &dray.ContainerMetadata{Name: "eager_boyd"}}
	app := dray.Route{Environment: dray.KindContainer, Workspace: "/home/me/app"}
	web := dray.Route{Environment: dray.KindContainer, Container: "web", Workspace: "/home/me/app"}
	host := dray.Route{Environment: dray.KindHost, Workspace: "/home/me/app"}
	for want, rec := range map[string]dray.Record{
		"eager_boyd": {Route: app, Metadata: named}, "/home/me/app": {Route: app},
		"web": {Route: web}, "host": {Route: host}, "": {},
	} {
		if got := where(rec); got != want {
			t.Errorf("%+v: %q, want %q", rec.Route, got, want)
		}
	}
}
