package trust

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/devcontainer"
	"github.com/dray-dev/dray/internal/devcontainer/helper"
	"github.com/dray-dev/dray/internal/devcontainer/internal/devtest"
	"github.com/dray-dev/dray/internal/devcontainer/internal/reference"
)

// composeStore gives a store that asks one version of compose, with further variables of the host.
func composeStore(t testing.TB, dockerConfig string, env ...string) *Store {
	t.Helper()
	all := slices.Concat(helper.Env(os.Environ()), []string{dockerConfig}, env)
	return NewStore(t.TempDir(), nil, devtest.Compose(t, all))
}

// composeProject makes a workspace with the service app of c.yml.
func composeProject(t testing.TB, files map[string]string) devcontainer.Location {
	t.Helper()
	loc := devtest.Workspace(t, `{"dockerComposeFile": "c.yml", "service": "app"}`)
	for name, content := range files {
		devtest.Write(t, loc.Workspace, filepath.Join(".devcontainer", name), content)
	}
	return loc
}

// eachCompose runs a test with both versions, or with compose 2 only.
func eachCompose(t *testing.T, only2 bool, run func(t *testing.T, dockerConfig string)) {
	t.Helper()
	if only2 {
		run(t, "DOCKER_CONFIG="+reference.Compose2(t))
		return
	}
	reference.Compose(t, run)
}

// A trust ends when a file changes that compose reads for its model (RT-09).
func TestTrust_ComposeInputs(t *testing.T) {
	for _, test := range []struct {
		name, config  string
		only2         bool
		files         map[string]string
		changes, free []string
	}{
		{
			name: "named", config: `{"dockerComposeFile": ["../compose/base.yml", "over.yml"], "service": "app"}`,
			files: map[string]string{
				"compose/base.yml": `
version: "3.4"
services:
  app: {build: {context: .., dockerfile: docker/App}, env_file: [a.env]}
  db: {build: ./db, env_file: db.env, image: x}
  web: {image: x}
configs: {c: {file: conf.txt}}
secrets: {s: {file: $$secret.txt}}
`,
				".devcontainer/over.yml": "version: '3.4'\nservices: {app: {volumes: ['..:/w']}}",
				"compose/a.env":          "", "compose/db.env": "", "docker/App": "FROM x", "compose/db/Dockerfile": "FROM x",
			},
			changes: []string{
				"compose/base.yml", ".devcontainer/over.yml", "docker/App", "compose/a.env", "compose/db/Dockerfile",
				"compose/db.env", "compose/.env", ".env",
			},
			free: []string{"compose/other.env", "compose/conf.txt"}, // these are mounted, and shown
		},
		{
			name: "named by compose 2", only2: true, config: `{"dockerComposeFile": "../compose/base.yml", "service": "app"}`,
			files: map[string]string{
				"compose/base.yml": `
include: [more/more.yml, {path: [listed.yml], env_file: listed.env, project_directory: ../other}]
services:
  app: {image: x, env_file: [{path: b.env, required: false}], label_file: l.env, extends: {file: ext.yml, service: e}}
  web: {image: x, extends: app}
`,
				"compose/ext.yml":       "services: {e: {env_file: ext.env, image: x}}",
				"compose/more/more.yml": "services: {m: {build: ctx}}",
				"compose/listed.yml":    "services: {l: {image: '${IMAGE:-x}', env_file: o.env}}",
				"compose/ext.env":       "", "compose/listed.env": "", "compose/l.env": "", "other/o.env": "",
			},
			changes: []string{
				"compose/ext.yml", "compose/ext.env", "compose/b.env", "compose/l.env", "compose/more/more.yml",
				"compose/more/.env", "compose/more/ctx/Dockerfile", "compose/listed.yml", "compose/listed.env",
				"other/.env", "other/o.env",
			},
		},
		{
			name: "default names", config: `{"dockerComposeFile": [], "service": "app"}`,
			files:   map[string]string{"docker-compose.yml": "version: '3'\nservices: {app: {image: x}}"},
			changes: []string{"docker-compose.yml", "docker-compose.override.yml", ".env"},
		},
		{
			name: "by .env", config: `{"dockerComposeFile": [], "service": "app"}`,
			files: map[string]string{
				".env":    "A=b\nCOMPOSE_FILE=one.yml:two.yml\n",
				"one.yml": "version: '3'\nservices: {app: {image: '$A'}}", "two.yml": "version: '3'\nservices: {}",
			},
			changes: []string{"one.yml", "two.yml"},
			free:    []string{"docker-compose.yml"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			eachCompose(t, test.only2, func(t *testing.T, dockerConfig string) {
				loc := devtest.Workspace(t, test.config)
				for name, content := range test.files {
					devtest.Write(t, loc.Workspace, name, content)
				}
				s := composeStore(t, dockerConfig)
				mustTrust(t, s, loc)
				wantBound(t, s, loc, test.free, test.changes)
				if _, err := s.Approve(t.Context(), loc); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// What a compose project gets of the host is shown before it is trusted, whatever leads to it
// (RT-09).
func TestSummary_ComposeAccess(t *testing.T) {
	const app = "services: {app: {image: x}}\n"
	for _, test := range []struct {
		name  string
		only2 bool
		files map[string]string
		want  []string // "name value", with WS for the workspace
		not   string
	}{
		{name: "mounts and privileges", files: map[string]string{
			"c.yml": "version: '3.4'\nservices: {app: {image: x, volumes: ['..:/w', '${HOME}/.ssh:/s'], privileged: true, pid: host, environment: {T: hidden}}, " +
				"db: {image: y, devices: [/dev/kvm:/dev/kvm], labels: {devcontainer.local_folder: /other}}}",
		}, want: []string{
			"service app: image x", "service app: privileged true", "service app: pid host", "service db: devices", "service db: labels {\"devcontainer.local_folder\":\"/other\"}",
			"service app: volumes", "WS", "${HOME}/.ssh",
		}, not: "hidden"},
		{name: "device of a volume", files: map[string]string{
			"c.yml": "version: '3'\nservices: {app: {image: x, volumes: ['vol:/v', 'other:/o']}}\nvolumes: {vol: {driver_opts: {type: none, o: bind, device: /etc}}, other: {external: true}}",
		}, want: []string{`volume vol: driver_opts {"device":"/etc","o":"bind","type":"none"}`, "volume other: external true"}},
		{name: "unknown to dray", files: map[string]string{
			"c.yml": "version: '2.4'\nservices: {app: {image: x, device_cgroup_rules: ['a *:* rwm'], runtime: other, group_add: [docker], sysctls: {a: b}}}",
		}, want: []string{"device_cgroup_rules a *:* rwm", "runtime other", "group_add docker", "sysctls"}},
		{name: "extends", files: map[string]string{
			"c.yml": "version: '2.4'\nservices: {app: {extends: {file: sub/e.yml, service: e}}}", "sub/e.yml": "version: '2.4'\nservices: {e: {image: x, volumes: ['..:/h'], cap_add: [ALL]}}",
		}, want: []string{"service app: volumes", "WS/.devcontainer", "service app: cap_add ALL"}},
		{name: "merge key and anchor", files: map[string]string{
			"c.yml": "version: '3.4'\nx-a: &a {privileged: true}\nservices: {app: {image: x, <<: *a}}",
		}, want: []string{"service app: privileged true"}},
		{name: "key that is an alias", files: map[string]string{
			"c.yml": "version: '3.4'\nx-k: &k privileged\nservices: {app: {image: x, *k : true}}",
		}, want: []string{"service app: privileged true"}},
		{name: "a value of .env", files: map[string]string{
			"c.yml": "version: '3'\nservices: {app: {image: x, privileged: '${P}'}}", ".env": "P=true\n",
		}, want: []string{"service app: privileged"}},
		{name: "include", only2: true, files: map[string]string{
			"c.yml": "include: [{path: sub/i.yml, project_directory: ..}]\n" + app, "sub/i.yml": "services: {i: {image: x, volumes: ['.:/h'], privileged: '${P}'}}", "../.env": "P=true",
		}, want: []string{"service i: volumes", `"source":"WS"`, "service i: privileged"}},
		{name: "second document", only2: true, files: map[string]string{
			"c.yml": app + "---\nservices: {app: {privileged: true}}",
		}, want: []string{"service app: privileged true"}},
		{name: "API socket", only2: true, files: map[string]string{
			"c.yml": "services: {app: {image: x, use_api_socket: true}}",
		}, want: []string{"service app: use_api_socket true"}},
		{name: "profile that .env activates", only2: true, files: map[string]string{
			"c.yml": "services: {app: {image: x}, p: {image: x, profiles: [q], privileged: true}}", ".env": "COMPOSE_PROFILES=q\n",
		}, want: []string{"service p: privileged true"}},
		{name: "volume and network of another project", only2: true, files: map[string]string{
			"c.yml": "services: {app: {image: x, volumes: ['vol:/v', 'own:/w'], networks: [n]}}\nvolumes: {vol: {name: other_data}, own: {}}\nnetworks: {n: {name: other_default}}",
		}, want: []string{"volume vol: name other_data", "network n: name other_default"}, not: "app_devcontainer_own"},
		{name: "UTF-16", files: map[string]string{
			"c.yml": utf16("version: '3'\nservices: {app: {image: x, privileged: true}}"),
		}, want: []string{"service app: privileged true"}},
		{name: "override removed by a tag", only2: true, files: map[string]string{
			"c.yml": app + "---\nservices: {app: {privileged: true}}\n---\nservices: {app: {cap_add: !override [ALL]}}",
		}, want: []string{"privileged true", "cap_add ALL"}},
		{name: "variable of the host in a secret", only2: true, files: map[string]string{
			"c.yml": "services: {app: {image: x, secrets: [s]}}\nsecrets: {s: {environment: HOME}}",
		}, want: []string{"secret s: environment HOME"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			eachCompose(t, test.only2, func(t *testing.T, dockerConfig string) {
				loc := composeProject(t, test.files)
				s, err := composeStore(t, dockerConfig).Review(t.Context(), loc)
				if err != nil {
					t.Fatal(err)
				}
				var shown strings.Builder
				for _, line := range s.Access {
					shown.WriteString(line.Name + " " + line.Value + "\n")
				}
				for _, want := range test.want {
					want = strings.ReplaceAll(want, "WS", loc.Workspace)
					if !strings.Contains(shown.String(), want) {
						t.Errorf("missing %q in\n%s", want, shown.String())
					}
				}
				if test.not != "" && strings.Contains(shown.String(), test.not) {
					t.Errorf("shown: %q in\n%s", test.not, shown.String())
				}
			})
		})
	}
}

// utf16 encodes ASCII text as UTF-16 with a byte order mark, which YAML allows.
func utf16(text string) string {
	out := "\xff\xfe"
	for _, b := range []byte(text) {
		out += string([]byte{b, 0})
	}
	return out
}

// What cannot be known, or is not dray's to allow, is refused before anything is opened or run
// (RT-09).
func TestTrust_ComposeRefused(t *testing.T) {
	service := func(properties string) map[string]string {
		return map[string]string{"c.yml": "version: '3.4'\nservices: {app: {image: x, " + properties + "}}"}
	}
	include := func(path string) map[string]string {
		return map[string]string{
			"c.yml": "include: ['" + path + "']\nservices: {app: {image: x}}",
			".env":  "COMPOSE_EXPERIMENTAL_GIT_REMOTE=true\nCOMPOSE_EXPERIMENTAL_OCI_REMOTE=true\n",
		}
	}
	for _, test := range []struct {
		name  string
		only2 bool
		files map[string]string
		want  string
	}{
		{name: "provider", only2: true, files: service("provider: {type: ./evil}"), want: "has a provider"},
		{name: "provider by a merge key", only2: true, want: "has a provider", files: map[string]string{
			"c.yml": "x-p: &p {provider: {type: evil}}\nservices: {app: {image: x}, q: {<<: *p}}",
		}},
		{name: "provider in a second document", only2: true, want: "has a provider", files: map[string]string{
			"c.yml": "services: {app: {image: x}}\n---\nservices: {q: {provider: {type: evil}}}",
		}},
		{name: "provider behind a profile", only2: true, want: "has a provider", files: map[string]string{
			"c.yml": "services: {app: {image: x}, q: {profiles: [p], provider: {type: evil}}}",
		}},
		{name: "device", files: service("env_file: /dev/zero"), want: "is not relative"},
		{name: "device by many dots", files: service("env_file: ../../../../../../../../../../../../../../dev/zero"), want: "leads above the root"},
		{name: "file of the user", files: service("env_file: ~/.netrc"), want: "is not relative"},
		{name: "name with a variable", files: service("env_file: '${D:-/dev}/zero'"), want: "depends on a variable"},
		{name: "key of bytes", files: service("!!binary ZW52X2ZpbGU= : /dev/zero"), want: "!!binary is not supported"},
		{name: "alias as a name", files: map[string]string{"c.yml": "version: '3.4'\nx-d: &d /dev/zero\nservices: {app: {image: x, env_file: *d}}"}, want: "is not relative"},
		{name: "alias as a key", files: map[string]string{"c.yml": "version: '3.4'\nx-k: &k env_file\nservices: {app: {image: x, *k : /dev/zero}}"}, want: "is not relative"},
		{name: "endless alias", files: map[string]string{"c.yml": "x-a: &a [*a]\nservices: {app: {image: x}}"}, want: "values"},
		{name: "git", only2: true, files: include("git@github.com:a/b.git"), want: "not covered"},
		{name: "git by https", only2: true, files: include("https://github.com/a/b.git"), want: "not covered"},
		{name: "git by a short name", only2: true, files: include("github.com/a/b"), want: "not covered"},
		{name: "git with a protocol of its own", only2: true, files: include("ext::sh -c evil.git"), want: "refuses the project"},
		{name: "artifact", only2: true, files: include("oci://localhost/a"), want: "not covered"},
		{name: "label file", only2: true, files: service("label_file: /proc/kmsg"), want: "is not relative"},
		{name: "extends", files: service("extends: {file: /proc/kmsg, service: x}"), want: "is not relative"},
		{name: "seccomp profile", files: service("security_opt: ['seccomp=/dev/zero']"), want: "seccomp profile"},
		{name: "seccomp profile by a variable", files: service("security_opt: ['${A:-seccomp=/dev/zero}']"), want: "seccomp profile"},
		{name: "host variable in a name", only2: true, files: service("labels: ['${SSH_AUTH_SOCK}=x']"), want: "variable of the host in a name"},
	} {
		t.Run(test.name, func(t *testing.T) {
			eachCompose(t, test.only2, func(t *testing.T, dockerConfig string) {
				loc := composeProject(t, test.files)
				s := composeStore(t, dockerConfig, "SSH_AUTH_SOCK=/tmp/agent")
				_, err := trustPresent(t, s, loc)
				if dray.CodeOf(err) != dray.CodeWorkspaceUntrusted ||
					!strings.Contains(err.Error(), test.want) {
					t.Errorf("got %v (%s), want %q", err, dray.CodeOf(err), test.want)
				}
			})
		})
	}
}

// A special file is refused, and one that appears after the check is not opened: compose reads a
// copy.
func TestTrust_ComposeSpecialFiles(t *testing.T) {
	eachCompose(t, false, func(t *testing.T, dockerConfig string) {
		loc := composeProject(t, map[string]string{
			"c.yml": "version: '3'\nservices: {app: {image: x, env_file: a.env}}", "a.env": "A=1\n",
		})
		path := filepath.Join(loc.Workspace, ".devcontainer", "a.env")
		s := composeStore(t, dockerConfig)
		review, err := s.Review(t.Context(), loc)
		if err != nil {
			t.Fatal(err)
		}
		run := s.compose.Run
		s.compose.Run = func(ctx context.Context, cmd helper.Command) (string, error) {
			if err := os.RemoveAll(path); err != nil {
				t.Error(err)
			}
			devtest.Mkfifo(t, path)
			return run(ctx, cmd)
		}
		summary, err := s.Trust(t.Context(), loc, review.Hash)
		if err != nil {
			t.Fatal(err)
		}
		wantUntrusted(t, s, loc, "not a regular file")
		if !slices.Contains(summary.Files, path) {
			t.Errorf("files %v", summary.Files)
		}
		if left, _ := filepath.Glob(s.compose.State + "/run/*"); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

// A changed value of a variable does not end the trust, is not shown and is not stored. Whether the
// variable is set can decide what is mounted, so that ends it (EX-06, RT-09).
func TestTrust_ComposeHostVariables(t *testing.T) {
	eachCompose(t, false, func(t *testing.T, dockerConfig string) {
		loc := composeProject(t, map[string]string{
			"c.yml": "version: '3.4'\nservices: {app: {image: 'x:${TAG}', environment: {T: '${TOKEN}', E: 'a$$b'}, volumes: ['${SSH_AUTH_SOCK:-/none}:/agent', '~/x:/x'], ports: ['${PORT}:80']}}",
		})
		vars := []string{"SSH_AUTH_SOCK=/tmp/one", "TOKEN=secret-one", "TAG=1.0", "PORT=8080", "HOME=/home/one"}
		s := composeStore(t, dockerConfig, vars...)
		summary := mustTrust(t, s, loc)
		approval, err := s.Approve(t.Context(), loc)
		if err != nil {
			t.Fatal(err)
		}
		text := approval.project.Text
		for _, want := range []string{"${SSH_AUTH_SOCK}", "${TOKEN}", "a$$b", "${HOME}/x", "1.0"} {
			if !strings.Contains(text, want) {
				t.Errorf("missing %q in\n%s", want, text)
			}
		}
		for _, not := range []string{"secret-one", "/tmp/one", "/home/one"} {
			if strings.Contains(text, not) {
				t.Errorf("%q in\n%s", not, text)
			}
		}
		if want := []string{"HOME", "SSH_AUTH_SOCK", "TOKEN"}; !slices.Equal(summary.LocalEnv, want) {
			t.Errorf("variables %v, want %v", summary.LocalEnv, want)
		}
		s.compose = devtest.Compose(t, append(s.compose.Env(""), "SSH_AUTH_SOCK=/tmp/two", "TOKEN=secret-two"))
		if _, err := s.Approve(t.Context(), loc); err != nil {
			t.Errorf("with other values: %v", err)
		}
		s.compose = devtest.Compose(t, append(s.compose.Env(""), "SSH_AUTH_SOCK="))
		if _, err := s.Approve(t.Context(), loc); dray.CodeOf(err) != dray.CodeWorkspaceUntrusted {
			t.Errorf("without a variable: %v", err)
		}
	})
}

// What a local feature declares is shown, that of a feature that it depends on too, and a change
// ends the trust (RT-09).
func TestSummary_LocalFeature(t *testing.T) {
	loc := devtest.Workspace(t, `{"image": "x", "build": {"options": ["--output=/"]}, "features": {"./a": {}}, "unknown": 1}`)
	devtest.Write(t, loc.Workspace, ".devcontainer/a/devcontainer-feature.json",
		`{"id": "a", "mounts": ["source=${localEnv:HOME},target=/h,type=bind"], "dependsOn": {"../b": {}}}`)
	other := devtest.Write(t, loc.Workspace, "b/devcontainer-feature.json",
		`{"id": "b", "capAdd": ["ALL"], "privileged": true, "securityOpt": ["x"], "entrypoint": "/e"}`)
	s := trustStore(t)
	summary := mustTrust(t, s, loc)
	a, b := "feature "+loc.Workspace+"/.devcontainer/a: ", "feature "+loc.Workspace+"/b: "
	for _, want := range []SummaryLine{
		{a + "mounts", "source=${localEnv:HOME},target=/h,type=bind"},
		{a + "dependsOn", `{"../b":{}}`},
		{b + "capAdd", "ALL"},
		{b + "privileged", "true"},
		{b + "securityOpt", "x"},
		{b + "entrypoint", "/e"},
		{"build: options", "--output=/"},
		{"unknown", "1"},
	} {
		if !slices.Contains(summary.Access, want) {
			t.Errorf("missing %v in %v", want, summary.Access)
		}
	}
	if !slices.Equal(summary.LocalEnv, []string{"HOME"}) {
		t.Errorf("variables %v", summary.LocalEnv)
	}
	changeAndBack(t, other, func() { wantUntrusted(t, s, loc, "has changed since") })
}
