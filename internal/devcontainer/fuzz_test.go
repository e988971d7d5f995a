package devcontainer

import (
	"io"
	"os"
	"strings"
	"testing"
)

// FuzzConfig parses any text as devcontainer.json and as a compose file.
func FuzzConfig(f *testing.F) {
	for _, c := range resolveCases {
		f.Add([]byte(c.config), []byte("services: {}"))
	}
	for _, c := range trustCases {
		f.Add([]byte(c.config), []byte(c.files["compose/base.yml"]))
	}
	dir := tempDir(f)
	write(f, dir, ".devcontainer/devcontainer.json", "{}")
	write(f, dir, ".devcontainer/c.yml", "")
	loc := locate(f, dir)
	f.Fuzz(func(t *testing.T, config, compose []byte) {
		if err := os.WriteFile(loc.Config, config, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir+"/.devcontainer/c.yml", compose, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := Resolve(t.Context(), Input{Location: loc, Container: ContainerInfo{Env: containerEnv}})
		if err == nil && r.User == "" {
			t.Error("no user")
		}
		fp, err := collectTrustInputs(t.Context(), loc)
		if err != nil {
			return
		}
		if err := fp.summary().Write(io.Discard); err != nil {
			t.Error(err)
		}
		c := newComposeInputs(fp)
		c.addComposeFile(dir+"/.devcontainer/c.yml", map[string]bool{dir: true}) // not always a compose file
		q := composeQuery{composeInputs: c, copy: dir}
		q.setEnv()
		if m, err := q.parse(string(compose)); err == nil {
			m.access()
		}
	})
}

// FuzzLog parses any text as the CLI's log, which contains output of programs in the container.
func FuzzLog(f *testing.F) {
	f.Add(`{"type":"raw","level":3,"text":"a\nb"}` + "\n" + `{"type":"start","text":"Run: docker run x"}` + "\nplain\n")
	f.Add(`{"type":"progress","name":"Running onCreateCommand...","stepDetail":"x"}`)
	f.Fuzz(func(t *testing.T, text string) {
		l := upLog{phase: "up", progress: func(phase, message string) {
			if phase == "" || len(message) > maxMessage+len("...") ||
				strings.ContainsAny(message, "\n\r\x1b") {
				t.Errorf("progress %q %q", phase, message)
			}
		}}
		if err := l.read(strings.NewReader(text)); err != nil || len(l.tail) > maxLogTail {
			t.Errorf("%d lines, %v", len(l.tail), err)
		}
	})
}

func TestTrust_ComposeAliasBomb(t *testing.T) {
	var bomb strings.Builder
	bomb.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 10; i++ {
		level := string(rune('0' + i))
		before := string(rune('0' + i - 1))
		bomb.WriteString("a" + level + ": &a" + level + " [" + strings.Repeat("*a"+before+", ", 9) +
			"*a" + before + "]\n")
	}
	loc := workspace(t, `{"dockerComposeFile": "c.yml"}`)
	write(t, loc.Workspace, ".devcontainer/c.yml", bomb.String())
	wantUntrusted(t, trustStore(t), loc, "more than 200000 values")
}
