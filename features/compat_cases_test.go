package features

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// places are the workspaces of the comparison, created and not yet started.
func places(t *testing.T) []*referenceEnv {
	all := []*referenceEnv{
		{
			name: "image", workspace: "app", config: "app/.devcontainer/devcontainer.json",
			settings: slicesOf(userSettings(), probeSettings(), variableSettings(), programSettings(),
				folderSettings()),
		},
		{
			name: "Dockerfile", workspace: "app", config: "app/.devcontainer/devcontainer.json",
			files: map[string]string{"app/.devcontainer/Dockerfile": strings.ReplaceAll(dockerfile,
				"LABELLED", labelled(t))},
			settings: labelSettings(),
		},
		{
			name: "git subfolder", workspace: "repo/services/api", config: "repo/services/api/.devcontainer.json", git: true,
			settings: []referenceCase{
				{name: "nearest work tree", config: `{"image": "BUSYBOX", "userEnvProbe": "none"}`, examples: []example{{name: "inspect", argv: inspect}}},
				{
					name:   "variables",
					config: `{"image": "BUSYBOX", "remoteEnv": {"L": "${localWorkspaceFolderBasename}", "C": "${containerWorkspaceFolder}", "B": "${containerWorkspaceFolderBasename}"}}`,
					examples: []example{
						{name: "inspect", argv: inspect},
						{name: "files", argv: []string{"ls", "-a"}},
					},
				},
			},
		},
		{
			name: "mount", workspace: "app", config: "app/.devcontainer.json",
			files: map[string]string{"app/deep/file": "text\n"},
			settings: []referenceCase{
				{
					name: "workspaceMount",
					config: `{"image": "BUSYBOX", "workspaceMount": "type=bind,source=${localWorkspaceFolder},target=/src/code", "workspaceFolder": "/src/code/deep",
						"remoteEnv": {"W": "${containerWorkspaceFolder}"}, "containerUser": "dev", "runArgs": ["--hostname", "named"],}`,
					examples: []example{
						{name: "inspect", argv: inspect},
						{name: "file", argv: []string{"cat", "file"}},
					},
				},
				{
					name:     "containerUser below remoteUser",
					config:   `{"image": "BUSYBOX", "workspaceFolder": "/src", "containerUser": "dev", "remoteUser": "other"}`,
					examples: []example{{name: "inspect", argv: inspect}},
				},
			},
		},
		{
			name: "compose", workspace: "app", config: "app/.devcontainer/devcontainer.json",
			files: map[string]string{"app/.devcontainer/docker-compose.yml": composeFile},
			settings: []referenceCase{
				{
					name:     "no folder",
					config:   `{"dockerComposeFile": "docker-compose.yml", "service": "tools"}`,
					examples: []example{{name: "inspect", argv: inspect}},
				},
				{
					name:   "folder and user",
					config: `{"dockerComposeFile": ["docker-compose.yml"], "service": "tools", "workspaceFolder": "/work", "remoteUser": "dev", "remoteEnv": {"P": "${containerEnv:FROM_COMPOSE}"}}`,
					examples: []example{
						{name: "inspect", argv: inspect},
						{
							name: "write", argv: []string{"sh", "-c", "cat >/tmp/x && wc -c </tmp/x"},
							stdin: []byte("abc"),
						},
					},
				},
			},
		},
	}
	for _, p := range all {
		p.make(t)
	}
	return all
}

func slicesOf(lists ...[]referenceCase) []referenceCase {
	var all []referenceCase
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// dockerfile is based on an image with a label, because the reference reads the labels of the base
// image, not of the Dockerfile.
const dockerfile = `FROM LABELLED
ENV FROM_IMAGE=image SHELL=/bin/ash EMPTY=
RUN mkdir -p /srv/start && printf 'export FROM_RC=$FROM_IMAGE-$(pwd)\nunset EMPTY\n' >>/etc/profile
WORKDIR /srv/start
USER other:builders
`

const metadataLabel = `devcontainer.metadata=[
	{"remoteUser": "dev", "remoteEnv": {"BOTH": "label", "LABEL": "${containerEnv:FROM_IMAGE}/label", "SECRET": "${localEnv:COMPAT_LOCAL}",
		"DEFAULT": "${localEnv:COMPAT_NOT_SET:label default}"}},
	{"userEnvProbe": "loginShell", "remoteEnv": {"SECOND": "2"}}
]`

// labelled builds an image with a label and returns its name.
func labelled(t *testing.T) string {
	t.Helper()
	name := "dray-test/labelled:" + filepath.Base(newDir(t)) + strconv.Itoa(os.Getpid())
	id, err := docker(t.Context(), "create", "--label", metadataLabel, busybox)
	if err == nil {
		_, err = docker(t.Context(), "commit", id, name)
	}
	if err == nil {
		_, err = docker(t.Context(), "rm", id)
	}
	if err != nil {
		t.Fatal(err)
	}
	// only the tag, if the image is used elsewhere
	t.Cleanup(func() { _, _ = docker(context.WithoutCancel(t.Context()), "rmi", name) })
	return name
}

const composeFile = `version: "3.7"
services:
  tools:
    image: BUSYBOX
    command: sleep 1000000
    init: true
    user: other
    working_dir: /tmp
    hostname: composed
    environment:
      FROM_COMPOSE: "yes"
    volumes:
      - ..:/work
  beside:
    image: BUSYBOX
    command: sleep 1000000
    init: true
`

// onImage is a configuration of the first workspace.
func onImage(rest string) string {
	return `{"image": "DEBIAN", "updateRemoteUserUID": false, "containerEnv": {"FROM_CONTAINER": "a=b", "EMPTY": "", "NUMBER": "7"}, "runArgs": ["--init"]` + rest + `}`
}

func inspected(name, rest string) referenceCase {
	return referenceCase{
		name: name, config: onImage(rest),
		examples: []example{{name: "inspect", argv: inspect}},
	}
}

func userSettings() []referenceCase {
	badUser := example{
		name: "true", argv: []string{"true"}, row: "start-failure",
		reference: expectation{code: 1, noStdout: true}, dray: expectation{
			code:   125,
			stderr: "(bad_user)", noStdout: true,
		},
	}
	return []referenceCase{
		inspected("no user", ``),
		inspected("name", `, "remoteUser": "vscode"`),
		inspected("name with another shell", `, "remoteUser": "other"`),
		inspected("number", `, "remoteUser": "1000"`),
		inspected("number unknown", `, "remoteUser": "4242"`),
		inspected("name and group", `, "remoteUser": "vscode:builders"`),
		inspected("name and group's number", `, "remoteUser": "vscode:2000"`),
		inspected("name and unknown number", `, "remoteUser": "vscode:4711"`),
		inspected("numbers", `, "remoteUser": "1000:0"`),
		inspected("unknown numbers", `, "remoteUser": "4242:4343"`),
		inspected("containerUser", `, "containerUser": "other"`),
		inspected("empty user", `, "remoteUser": "", "containerUser": ""`),
		{name: "unknown name", config: onImage(`, "remoteUser": "nobody-knows"`), examples: []example{badUser}},
		{name: "unknown group", config: onImage(`, "remoteUser": "vscode:nobody-knows"`), examples: []example{badUser}},
	}
}

func probeSettings() []referenceCase {
	probe := func(kind string) string { return `, "remoteUser": "vscode", "userEnvProbe": "` + kind + `"` }
	banner := inspected("banner", probe("loginInteractiveShell"))
	banner.prepare = `cat >>/home/vscode/.bashrc <<'END'
echo "Welcome: KEY=value"
echo no newline >&2
export LINES_OF_TEXT="one
two=2
 three" QUOTED='"$HOME"' PWD=/nowhere UMLAUT=äöü
export EMPTY_IN_RC=
unset HOSTNAME NUMBER
cd /usr
umask 077
printf 'OPEN=1'
END`
	failing := inspected("rc file that fails", probe("interactiveShell"))
	failing.prepare = `printf 'export LAST=1\nfalse\nset -u\n' >>/home/vscode/.bashrc`
	leaving := inspected("rc file that leaves", `, "remoteUser": "other", "userEnvProbe": "loginShell"`)
	leaving.prepare = `mkdir -p /home/other && printf 'export NEVER=1\nexit 3\n' >/home/other/.profile && chown other /home/other/.profile`
	mended := inspected("rc file mended", `, "remoteUser": "other", "userEnvProbe": "loginShell", "remoteEnv": {"AGAIN": "1"}`)
	mended.prepare = `printf 'export MENDED=1\n' >/home/other/.profile`
	return []referenceCase{
		inspected("none", probe("none")),
		inspected("loginShell", probe("loginShell")),
		inspected("interactiveShell", probe("interactiveShell")),
		inspected("loginInteractiveShell", probe("loginInteractiveShell")),
		{
			name: "unknown probe", config: onImage(probe("someShell")),
			examples: []example{{
				name: "variable", argv: []string{"sh", "-c", "echo shlvl=$SHLVL"}, row: "unknown-probe",
				reference: expectation{stdout: "shlvl=1"}, dray: expectation{stdout: "shlvl="},
			}},
		},
		banner, failing, leaving, mended,
	}
}

func variableSettings() []referenceCase {
	env := func(vars string) string { return `, "remoteUser": "vscode", "remoteEnv": {` + vars + `}` }
	return []referenceCase{
		inspected("values", env(`"TEXT": "t", "NULL": null, "INT": 42, "FLOAT": 1.50, "BIG": 1e21, "TRUE": true, "FALSE": false, "EMPTY_TEXT": "",
			"LIST": [1, "a", null], "LINES": "a\nb\n", "EQUALS": "=a=b=", "ÜMLAUT": "ä", "dot.and-dash": "x", "NEGATIVE": -0.0`)),
		inspected("localEnv", env(`"SET": "${localEnv:COMPAT_LOCAL}", "OLD": "${env:COMPAT_LOCAL}", "UNSET": "[${localEnv:COMPAT_NOT_SET}]",
			"DEFAULT": "${localEnv:COMPAT_NOT_SET:a:b}", "EMPTY_DEFAULT": "[${localEnv:COMPAT_NOT_SET:}]", "SET_WITH_DEFAULT": "${localEnv:COMPAT_LOCAL:no}"`)),
		{
			name: "localEnv without a name", config: onImage(env(`"NO_NAME": "${localEnv}"`)),
			examples: []example{{
				name: "true", argv: []string{"true"}, row: "unusable-configuration",
				reference: expectation{
					code: 1, noStdout: true,
					stderr: "Error: '${localEnv}'",
				}, dray: expectation{code: 125, noStdout: true, stderr: "(container_failed)"},
			}},
		},
		{
			name: "object", config: onImage(env(`"OBJECT": {"a": 1}`)),
			examples: []example{{
				name: "variable", argv: []string{"sh", "-c", `echo "$OBJECT"`}, row: "object-value",
				reference: expectation{
					code: 1, noStdout: true,
					stderr: "TypeError",
				}, dray: expectation{stdout: "[object Object]\n"},
			}},
		},
		inspected("containerEnv", env(`"PATH": "/first:${containerEnv:PATH}", "HOME": "/elsewhere", "C": "${containerEnv:FROM_CONTAINER}", "N": "${containerEnv:NOT_THERE}",
			"D": "${containerEnv:NOT_THERE:default}", "RC": "${containerEnv:DRAY_TEST_PROFILE}", "NUMBER": "${containerEnv:NUMBER}8"`)),
		inspected("folders", env(`"L": "${localWorkspaceFolderBasename}:${localWorkspaceFolder}", "C": "${containerWorkspaceFolder}", "B": "${containerWorkspaceFolderBasename}",
			"UNKNOWN": "${unknown:thing} ${} $HOME ${HOME}", "TWICE": "${localEnv:COMPAT_LOCAL}${localEnv:COMPAT_LOCAL}"`)),
		{
			name: "over the call's", config: onImage(env(`"OURS": "config", "PATH": "/only:${containerEnv:PATH}"`)),
			examples: []example{
				{
					name: "call's variables", argv: inspect,
					env: []string{
						"OURS=call", "THEIRS=call", "EMPTY_OF_CALL=", "HOME=/call",
						"DRAY_TEST_PROFILE=call", "A=b=c",
					},
				},
				{name: "program found in its PATH", argv: []string{"id"}, env: []string{"PATH=/call"}},
			},
		},
		{
			name: "devcontainerId", config: onImage(env(`"ID": "${devcontainerId}"`)),
			examples: []example{{
				name: "variable", argv: []string{"sh", "-c", `echo "$ID" | grep -c '^[0-9a-v]\{52\}$'; true`}, row: "devcontainer-id",
				reference: expectation{stdout: "0\n"}, dray: expectation{stdout: "1\n"},
			}},
		},
	}
}

func programSettings() []referenceCase {
	binary := bytes.Repeat([]byte{0, 1, 0xff, '\n', 0xfe, 0, '\r', 0x1b, '[', 'm', 4, 3, 26}, 20000)
	sh := func(script string) []string { return []string{"sh", "-c", script} }
	failed := func(argv []string, text string, code int, stderr string) example {
		return example{
			name: argv[0], argv: argv, row: "start-failure",
			reference: expectation{code: 126, stdout: text}, dray: expectation{
				code: code, noStdout: true,
				stderr: stderr,
			},
		}
	}
	s := referenceCase{
		name:    "programs",
		config:  onImage(`, "remoteUser": "vscode", "userEnvProbe": "none"`),
		prepare: `printf '#!/nowhere/sh\n' >/tmp/no-interpreter; printf 'echo text without a first line\n' >/tmp/no-first-line; chmod 755 /tmp/no-*; chmod 700 /root`,
		examples: []example{
			{name: "exit 0", argv: sh("exit 0")},
			{name: "exit 1", argv: sh("exit 1")},
			{name: "exit 2", argv: sh("echo out; echo err >&2; exit 2")},
			{name: "exit 124", argv: sh("exit 124")},
			{name: "exit 125", argv: sh("exit 125")},
			{name: "exit 126", argv: sh("exit 126")},
			{name: "exit 127", argv: sh("exit 127")},
			{name: "exit 130", argv: sh("exit 130")},
			{name: "exit 255", argv: sh("exit 255")},
			{name: "TERM", argv: sh("kill -TERM $$")},
			{name: "KILL", argv: sh("echo before; kill -KILL $$")},
			{name: "SEGV", argv: sh("kill -SEGV $$")},
			{name: "PIPE", argv: sh("kill -PIPE $$")},
			{name: "child of a shell is killed", argv: sh("sh -c 'kill -TERM $$'; echo $?")},
			{name: "binary stdin", argv: []string{"cat"}, stdin: binary, long: binary},
			{name: "no stdin", argv: sh("wc -c; readlink /proc/self/fd/0 | sed 's/[0-9]*//g'")},
			{name: "large stdin", argv: []string{"sha256sum"}, stdin: bytes.Repeat(binary, 20)},
			{
				name: "large output",
				argv: sh("head -c 6000000 /dev/zero | tr '\\0' 'x'; head -c 3000000 /dev/zero >&2"), long: bytes.Repeat([]byte("x"), 6000000),
				longErr: make([]byte, 3000000),
			},
			{name: "no newline at the end", argv: []string{"printf", "a\\nb"}},
			{name: "half a character", argv: []string{"printf", `\303`}},
			{name: "terminal codes", argv: []string{"printf", `\033[31mred\033[0m\r\n\007`}},
			{name: "arguments", argv: []string{"printf", "[%s]\n", "", " ", "a b", "new\nline", `"`, `'`, `\`, "$HOME", "*", "~", ";", "&&", "ä\u2028€😀", "--", "-x", "--workspace-folder"}},
			{name: "options of ours", argv: []string{
				"printf", "%s\n", "--help", "--version", "-w", "--json",
				"--env", "A=B",
			}},
			{name: "arguments like ids", argv: []string{
				"printf", "[%s]\n", "007", "+1", "1_000", "true",
				"null", "12345678901234567890x",
			}},
			{
				name: "arguments like numbers", argv: []string{
					"printf", "[%s]", "1.0", "1e3",
					"0x10",
				}, row: "argv-bytes",
				reference: expectation{stdout: "[1][1000][16]"}, dray: expectation{stdout: "[1.0][1e3][0x10]"},
			},
			{name: "name of the program", argv: []string{"/bin/sh", "-c", `echo "$0"; tr '\0' ' ' </proc/$$/cmdline`}},
			{name: "relative to the folder", argv: []string{"./tool.sh", "x"}},
			failed([]string{"nobody-has-this"}, "executable file not found in $PATH", 127,
				"(executable_not_found)"),
			failed([]string{"/nobody/has/this"}, "no such file or directory", 127, "(executable_not_found)"),
			failed([]string{"/etc/passwd"}, "permission denied", 126, "(not_executable)"),
			failed([]string{"/root/x"}, "no such file or directory", 126, "(not_executable)"),
			failed([]string{"/tmp"}, "", 126, "(not_executable)"),
			{
				name: "no interpreter", argv: []string{"/tmp/no-interpreter"}, row: "start-failure",
				reference: expectation{code: 1, stderr: ""}, dray: expectation{
					code: 127, noStdout: true,
					stderr: "(executable_not_found)",
				},
			},
			{
				name: "no first line", argv: []string{"/tmp/no-first-line"}, row: "start-failure",
				reference: expectation{code: 1, stderr: "exec format error"}, dray: expectation{
					code:     126,
					noStdout: true, stderr: "(not_executable)",
				},
			},
			{
				name: "unread stdin", argv: []string{"true"}, stdin: bytes.Repeat([]byte("x"),
					4<<20), row: "unread-stdin",
				reference: expectation{anyCode: true, stderr: "EPIPE"}, dray: expectation{
					code:     0,
					noStdout: true,
				},
			},
		},
	}
	leftover := referenceCase{
		name: "leftovers", config: onImage(`, "remoteUser": "vscode", "userEnvProbe": "none", "remoteEnv": {"L": "1"}`),
		examples: []example{{
			name: "background process", argv: sh("sleep 987 >/dev/null 2>&1 &"), then: sh("ps -e -o args= | grep -c '[s]leep 987'; true"), row: "leftovers",
			reference: expectation{stdout: "1\n"}, dray: expectation{stdout: "0\n"},
		}},
	}
	return []referenceCase{s, leftover}
}

func folderSettings() []referenceCase {
	return []referenceCase{
		inspected("folder of the container", `, "remoteUser": "vscode", "workspaceFolder": "/var/tmp"`),
		{
			name: "folder that is not there", config: onImage(`, "remoteUser": "vscode", "workspaceFolder": "/nowhere"`),
			examples: []example{{
				name: "pwd", argv: []string{"pwd"}, row: "start-failure",
				reference: expectation{
					code:   126,
					stdout: "no such file or directory",
				}, dray: expectation{code: 125, noStdout: true, stderr: "(bad_cwd)"},
			}},
		},
		{
			name: "link to the workspace", config: onImage(`, "remoteUser": "vscode"`),
			examples: []example{
				{name: "directly", argv: []string{"pwd"}},
				{
					name: "through the link", argv: []string{"pwd"}, folder: "link", row: "linked-workspace",
					reference: expectation{code: 1}, dray: expectation{stdout: "/workspaces/"},
				},
			},
		},
	}
}

func labelSettings() []referenceCase {
	build := `"build": {"dockerfile": "Dockerfile"}, "updateRemoteUserUID": false`
	return []referenceCase{
		{
			name: "label alone", config: `{` + build + `}`,
			examples: []example{
				{
					name: "variable that the workspace does not ask for", argv: []string{"sh", "-c", `echo "[$SECRET]"`}, row: "label-local-env",
					reference: expectation{stdout: "[value of the caller"}, dray: expectation{stdout: "[]\n"},
				},
				{name: "others", argv: []string{"sh", "-c", `id; pwd; echo "$BOTH $LABEL $SECOND $DEFAULT $DRAY_TEST_PROFILE $FROM_RC ${EMPTY-unset}"`}},
			},
		},
		{
			name:   "configuration over the label",
			config: `{` + build + `, "remoteEnv": {"BOTH": "config", "SECRET": "${localEnv:COMPAT_LOCAL}"}, "remoteUser": "root"}`,
			examples: []example{
				{
					name: "own links in /proc", argv: []string{
						"sh", "-c",
						"readlink /proc/$$/cwd || echo closed",
					}, row: "dumpable",
					reference: expectation{stdout: "closed\n"}, dray: expectation{stdout: "/workspaces/app\n"},
				},
				{name: "others", argv: []string{"sh", "-c", `id; pwd; umask; grep Cap /proc/$$/status; env | sort`}},
			},
		},
		{
			name:     "user of the image",
			config:   `{` + build + `, "remoteUser": "other:builders", "userEnvProbe": "interactiveShell", "remoteEnv": {"SECRET": "mine"}}`,
			examples: []example{{name: "inspect", argv: inspect}},
		},
		{
			name: "tolerated mistakes",
			config: "\uFEFF// comment\n{" + build + `,, "remoteUser": "dev" /* no comma */ "remoteEnv": {"A": "1", "A": "2", "SECRET": "x"` + "\t" + `,}, "userEnvProbe": "none",
				"RemoteUser": "root", } trailing /* open`,
			examples: []example{{name: "inspect", argv: inspect}},
		},
	}
}

// make writes the files of the workspace.
func (p *referenceEnv) make(t *testing.T) {
	p.root = newDir(t)
	files := map[string]string{p.config: withImages(p.settings[0].config), p.workspace +
		"/tool.sh": "#!/bin/sh\necho \"tool $1\"\n"}
	for name, content := range p.files {
		files[name] = withImages(content)
	}
	writeFiles(t, p.root, files)
	makeExecutable(t, p.path(p.workspace+"/tool.sh"))
	makeLink(t, p.path(p.workspace), p.path("link"))
	if p.git {
		gitInit(t, p.path(strings.SplitN(p.workspace, "/", 2)[0]))
	}
}
