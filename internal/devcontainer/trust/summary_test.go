package trust

import (
	"slices"
	"strings"
	"testing"

	"github.com/dray-dev/dray/internal/devcontainer/internal/devtest"
)

func summaryOf(t *testing.T, config string, files map[string]string) Summary {
	t.Helper()
	loc := devtest.Workspace(t, config)
	for name, content := range files {
		devtest.Write(t, loc.Workspace, name, content)
	}
	review, err := trustStore(t).Review(t.Context(), loc)
	if err != nil {
		t.Fatal(err)
	}
	return review.Summary
}

// The summary shows what `up` would do (EX-06, RT-09).
func TestSummary(t *testing.T) {
	s := summaryOf(t, `{"image": "x", "privileged": true, "initializeCommand": "./init.sh", "onCreateCommand": ["a", "b"], "postStartCommand": {"x": "y"},
		"mounts": ["type=bind,source=${localEnv:HOME}/.ssh,target=/s", {"type": "volume", "source": "v", "target": "/v"}], "runArgs": ["--net=host"],
		"features": {"ghcr.io/b": {}, "ghcr.io/a": {}}, "containerEnv": {"T": "${env:TOKEN}"}, "capAdd": ["SYS_ADMIN"], "remoteUser": "u" "name": 5}`,
		map[string]string{"init.sh": ""})
	lines := slices.Concat(s.Commands, s.Access)
	for _, want := range []SummaryLine{
		{"initializeCommand", "./init.sh"},
		{"onCreateCommand", `["a","b"]`},
		{"postStartCommand", `{"x":"y"}`},
		{"workspaceMount", "the directory " + s.Workspace},
		{"mounts", "type=bind,source=${localEnv:HOME}/.ssh,target=/s"},
		{"mounts", `{"source":"v","target":"/v","type":"volume"}`},
		{"runArgs", "--net=host"},
		{"privileged", "true"},
		{"capAdd", "SYS_ADMIN"},
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("missing %v in %v", want, lines)
		}
	}
	if s.Source != "image x" || !slices.Equal(s.Features, []string{"ghcr.io/a", "ghcr.io/b"}) ||
		!slices.Equal(s.LocalEnv, []string{"HOME", "TOKEN"}) {
		t.Errorf("got %+v", s)
	}
	if want := []string{s.Config, s.Workspace + "/init.sh"}; !slices.Equal(s.Files, want) {
		t.Errorf("files %v, want %v", s.Files, want)
	}
	if len(s.Notes) != 2 || !strings.Contains(s.Notes[0], "a comma was expected here") ||
		!strings.Contains(s.Notes[1], "runs on this machine") {
		t.Errorf("notes %q", s.Notes)
	}
}

func TestSummarySources(t *testing.T) {
	for config, want := range map[string]string{
		`{"dockerFile": "D", "context": ".."}`:                       "Dockerfile D, build context ..",
		`{"build": {"dockerfile": "D"}}`:                             "Dockerfile D",
		`{"image": "x", "build": {"dockerfile": "D", "context": 1}}`: "Dockerfile D, build context 1",
		`{"dockerComposeFile": ["a.yml", "b.yml"], "service": "s"}`:  `compose ["a.yml","b.yml"], service s`,
		`{}`: "none: the configuration has no image, Dockerfile or compose file",
	} {
		files := map[string]string{
			".devcontainer/a.yml": "version: '3'\nservices: {s: {image: x}}", ".devcontainer/b.yml": "version: '3'",
		}
		if s := summaryOf(t, config, files); s.Source != want {
			t.Errorf("%s: %q, want %q", config, s.Source, want)
		}
	}
}

// Control characters in a configuration are escaped.
func TestSummaryShowsControlCharacters(t *testing.T) {
	s := summaryOf(t, `{"image": "x", "initializeCommand": "evil\u001b[2K\r\u202e\u200bgood", "features": {"a\nhash  fake": {}}}`, nil)
	var out strings.Builder
	if err := s.Write(&out); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	if strings.ContainsAny(text, "\x1b\r\u202e\u200b") || strings.Contains(text, "\nhash  fake") {
		t.Errorf("the terminal gets %q", text)
	}
	for _, want := range []string{`evil\u001b[2K\u000d\u202e\u200bgood`, `a\u000ahash`, "hash                   " + s.Hash, "configuration          " + s.Config} {
		if !strings.Contains(text, want) {
			t.Errorf("missing %q in\n%s", want, text)
		}
	}
}
