package dray_test

import (
	"os"
	"path"
	"strings"
	"testing"
)

const module = "github.com/dray-dev/dray"

// The rules of doc.go. They are read from the sources themselves, in this process: `go list` may
// answer from a cache, and it leaves out the files of other systems.

// importRule keeps the packages of one place away from those of others. A pattern is a folder, "."
// for the root, or a folder and "/..." for all in it too.
type importRule struct {
	from   string
	to     []string
	except []string // may be imported all the same
	but    []string // may import all the same
	why    string
}

var importRules = []importRule{
	{from: ".", to: []string{"./..."}, why: "the nouns must not depend on what is made of them"},
	{
		from: "config", to: []string{"./..."}, except: []string{"internal/lexical"},
		why: "a configuration is a value that every room can be given; one that knew rooms could not be",
	},
	{from: "migrations", to: []string{"./..."}, why: "a schema must not change because code did"},
	{
		from: "pathmapper/...", to: []string{"./..."}, except: []string{"."},
		why: "it is pure: what it needs to know it is told",
	},
	{
		from: "internal/pack/...", to: []string{"./..."},
		why: "the agent links it, and it reads what a hostile peer wrote",
	},
	{
		from: "internal/linux/...", to: []string{"./..."},
		why: "it is below every package that uses the kernel, and the agent links it",
	},
	{
		from: "internal/lexical/...", to: []string{"./..."},
		why: "every package may import it",
	},
	{
		from: "executor/process/...", to: []string{"./..."},
		except: []string{".", "internal/linux", "internal/pack"},
		why:    "the agent links it, and whatever it linked would run as root in every container",
	},
	{
		from: "internal/wire/...", to: []string{"./..."},
		except: []string{".", "internal/linux", "internal/pack"},
		why:    "the agent links it, and it reads what a hostile peer wrote",
	},
	{
		from: "internal/shellprobe/...", to: []string{"./..."},
		why: "the agent links it, and it reads what a hostile shell printed",
	},
	{
		from: "executor/files/...", to: []string{"./..."},
		except: []string{".", "executor/files/...", "internal/linux", "internal/pack"},
		why:    "the agent links it",
	},
	{
		from: "audit/...", to: []string{"./..."}, except: []string{".", "migrations"},
		why: "the trail must be readable and right whatever becomes of the rooms that write to it",
	},
	{
		from: "executor/...", to: []string{
			"internal/api/...", "internal/call/...", "internal/router/...",
			"internal/tool/...", "internal/workspace/...", "audit/...",
		},
		why: "a place where processes run knows nothing of callers, rules and tools, so that every tool can use every place",
	},
	{
		from: "executor/agent/...", to: []string{"executor/docker/...", "executor/agentbin"},
		why: "the client of the agent works with every kind of container",
	},
	{
		from: "executor/docker/...", to: []string{"internal/wire/..."},
		why: "the protocol of the agent belongs to executor/agent, so that another engine does not repeat it",
	},
	{
		from: "internal/workspace/...", to: []string{"executor/docker/...", "executor/host/..."},
		why: "it depends on the methods that it uses, so that another kind of environment does not change it",
	},
	{
		from: "internal/devcontainer/...", to: []string{
			"executor/...", "internal/api/...", "internal/call/...",
			"internal/workspace/...",
		},
		why: "it knows files and labels, and is told what the engine says, so that it can be held against the reference without one",
	},
	{
		from: "internal/router/...", to: []string{"./..."},
		except: []string{".", "internal/lexical"},
		why:    "a decision depends on the call and the rules, never on what runs",
	},
	{
		from: "internal/workspace/...", to: []string{
			"internal/router/...", "internal/tool/...",
			"internal/api/...", "internal/call/...", "audit/...",
		},
		why: "it carries out a route; one that chose would be a second router",
	},
	{
		from: "internal/transfer/...", to: []string{"./..."},
		except: []string{".", "executor/files/...", "internal/lexical", "pathmapper"},
		why:    "what may be moved depends on the two sides' files and names, never on who asks or by which tool",
	},
	{
		from: "internal/admission/...", to: []string{"./..."}, except: []string{".", "executor"},
		why: "it counts calls, and must not depend on what they are",
	},
	{
		from: "internal/call/...", to: []string{"internal/api/..."},
		why: "MCP stands on it beside HTTP, so it must need nothing of HTTP",
	},
	{
		from: "internal/validate/...", to: []string{"./..."}, except: []string{".", "internal/lexical"},
		why: "it checks values of requests, and must not depend on what is requested",
	},
	{
		from: "internal/strictjson/...", to: []string{"./..."},
		except: []string{".", "internal/lexical"},
		why:    "what decodes a request must not depend on what the request means",
	},
	{
		from: "internal/client/...", to: []string{"./..."}, except: []string{"."},
		why: "it stands for any client: what it needs has to be in the HTTP interface",
	},
	{
		from: "./...", to: []string{"cmd/..."}, but: []string{"cmd/..."},
		why: "only cmd/dray/command wires the rooms",
	},
	{
		from: "./...", to: devPackages, but: devPackages,
		why: "it is for those who work on dray, and no part of what they make",
	},
	{
		from: "./...", to: []string{"internal/devcontainer/internal/reference"},
		why: "it starts the reference for tests to compare with, and only tests may import it",
	},
	{
		from: "./...", to: []string{"executor/process/processtest"},
		why: "it makes a test binary its own supervisor, and only tests may import it",
	},
	{
		from: "./...", to: []string{"internal/soakreport"},
		why: "it writes pages of what tests found, and only tests may import it",
	},
	{
		from: "./...", to: []string{"internal/enginetest"},
		why: "it starts engines as root for tests to break, and only tests may import it",
	},
}

// devPackages are programs and suites for those who work on dray. They may use what they like;
// nothing may use them.
var devPackages = []string{"bench/...", "features/...", "scripts/..."}

// owner is a third-party module with the rooms that may import it.
type owner struct {
	module   string
	packages []string
}

// processStarter is a room that may start processes in one way.
type processStarter struct{ room, name, why string }

// agentPackages are the packages of this module that the agent may link.
var agentPackages = []string{
	".", "executor/process", "executor/files", "executor/files/stage", "executor/files/tree",
	"internal/linux", "internal/pack", "internal/shellprobe", "internal/wire",
}

// agentModule is the only other module that the agent may link. It has no code that runs before
// main and no dependencies, and the linker keeps only the system calls that are used. Own wrappers
// of these calls would be assembled by hand for each architecture.
const agentModule = "golang.org/x/sys"

// largeStdPackages are packages of the standard library of which one alone would be a tenth of the
// agent or more.
var largeStdPackages = []string{
	"crypto/rand", "encoding/json", "net", "net/http", "regexp",
	"text/template",
}

// owners has the one room of each third-party module, so that replacing a module means to change
// one room.
var owners = []owner{
	{"github.com/spf13/viper", []string{"config"}},
	// the configuration, and compose files
	{"go.yaml.in/yaml", []string{"config", "internal/devcontainer"}},
	{"github.com/spf13/cobra", []string{"cmd/dray/command"}},
	{"github.com/mattn/go-sqlite3", []string{"audit"}},
	{"github.com/pressly/goose", []string{"audit"}},
	{"golang.org/x/mod", []string{"audit"}},
	{"github.com/moby/moby", []string{"executor/docker"}},
	{"github.com/docker/cli", []string{"executor/docker"}},
	{"github.com/containerd/errdefs", []string{"executor/docker"}},
	{"github.com/danielgtaylor/huma", []string{"internal/api"}},
	{"github.com/google/uuid", []string{"internal/api", "internal/call"}},
	{"github.com/santhosh-tekuri/jsonschema", []string{"internal/tool"}},
	{"github.com/bmatcuk/doublestar", []string{"internal/tool"}},
	{"github.com/bluekeyes/go-gitdiff", []string{"internal/tool"}},
	// the validator's messages; Unicode's normal forms
	{"golang.org/x/text", []string{"internal/tool", "pathmapper"}},
	{
		"github.com/go-json-experiment/json",
		[]string{"audit", "internal/...", "pathmapper", "cmd/dray/command"},
	},
	{"go.uber.org/zap", []string{
		"audit", "executor/agent", "executor/docker", "internal/logging",
		"internal/api", "internal/call", "internal/workspace", "cmd/dray/command",
	}},
	{"golang.org/x/sys", []string{"audit", "executor/...", "internal/...", "cmd/..."}},
}

// starters may use what starts a process, by import or by call; everybody else asks
// executor/process.
var starters = []processStarter{
	{"executor/process", "os.StartProcess", "it is the room that starts processes: supervisors"},
	{"executor/process", "syscall.ForkExec", "it is the room that starts processes: tools"},
	{
		"executor/process", "unix.Exec",
		"the agent executes its own program again, with a high timer slack for the Go runtime",
	},
	{
		"internal/enginetest", "exec.Command",
		"an engine of a test's own is no tool, and a supervisor would end its containers with it",
	},
	{"internal/soakreport", "exec.Command", "git names the commit that a test ran at"},
	{"internal/enginetest", "exec.CommandContext", "the docker command, for tests"},
	{
		"cmd/dray/command", "exec.Command",
		"a command starts the daemon, which outlives it; nothing that a caller names",
	},
}

// starts are the ways to start a process.
var starts = []string{
	"exec.Command", "exec.CommandContext", "exec.Cmd", "os.StartProcess", "syscall.ForkExec", "syscall.StartProcess", "syscall.Exec", "unix.Exec",
}

const (
	maxMainLines = 30
	maxFileLines = 600
)

func TestArchitecture(t *testing.T) {
	sources := readSources(t, ".")
	for _, fault := range append(check(sources), unusedRules(sources)...) {
		t.Error(fault)
	}
}

// TestArchitectureIsWrittenDown: who changes a rule changes what people read about it.
func TestArchitectureIsWrittenDown(t *testing.T) {
	places := map[string][]string{
		"doc.go":          {"executor/...", "cmd/dray/command"},
		"CONTRIBUTING.md": {},
	}
	for _, o := range owners {
		places["CONTRIBUTING.md"] = append(places["CONTRIBUTING.md"], o.module)
	}
	const page = "docs/explanation/architecture.md"
	for _, b := range importRules {
		if room := strings.TrimSuffix(b.from, "/..."); room != "." {
			places["doc.go"], places[page] = append(places["doc.go"], room), append(places[page], room)
		}
	}
	places[page] = append(places[page], agentPackages[1:]...)
	for name, words := range places {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range words {
			if !strings.Contains(string(text), word) {
				t.Errorf("%s does not name %s, and the rules of this test do", name, word)
			}
		}
	}
}

// TestArchitectureCanFail: a check that finds nothing in what is made to be wrong would find
// nothing anywhere.
func TestArchitectureCanFail(t *testing.T) {
	for _, tc := range []struct{ name, file, text, fault string }{
		{"a third party in the root", "x.go", `import "go.uber.org/zap"`, "standard library alone"},
		{"a room in the root", "x.go", `import "github.com/dray-dev/dray/config"`, "the nouns must not depend"},
		{"a room in a room that is pure", "pathmapper/x.go", `import "github.com/dray-dev/dray/config"`, "it is pure"},
		{"the root in a room that is pure", "pathmapper/x.go", `import "github.com/dray-dev/dray"`, ""},
		{"a room below a banned one", "executor/host/x.go", `import "github.com/dray-dev/dray/internal/call"`, "knows nothing of callers"},
		{"a neighbour with a longer name", "executor/host/x.go", `import "github.com/dray-dev/dray/internal/toolbox"`, ""},
		{"wiring elsewhere", "internal/api/x.go", `import "github.com/dray-dev/dray/cmd/dray/command"`, "only cmd/dray/command wires"},
		{"wiring where it belongs", "cmd/dray/main.go", `import "github.com/dray-dev/dray/cmd/dray/command"`, ""},
		{"a tool of ours in the product", "internal/api/x.go", `import "github.com/dray-dev/dray/bench"`, "no part of what they make"},
		{"another's module", "internal/api/x.go", `import "github.com/spf13/viper"`, "belongs to config"},
		{"the owner's module, a package in it", "executor/docker/x.go", `import "github.com/moby/moby/client"`, ""},
		{"a module that nobody owns", "audit/x.go", `import "example.org/new"`, "has no owner"},
		{"a module whose name begins like an owned one", "config/x.go", `import "github.com/spf13/viperous"`, "has no owner"},
		{"a program started", "internal/tool/x.go", `import "os/exec"; var _ = exec.Command`, "only executor/process starts"},
		{"a program started under another name", "internal/tool/x.go", `import run "os/exec"; var _ run.Cmd`, "only executor/process starts"},
		{"a program looked for", "internal/tool/x.go", `import "os/exec"; var _ = exec.LookPath`, ""},
		{"a process started", "executor/host/x.go", `import "os"; var _ = os.StartProcess`, "only executor/process starts"},
		{"a fork", "executor/docker/x.go", `import "syscall"; var _ = syscall.ForkExec`, "only executor/process starts"},
		{"a third party in the agent", "cmd/dray-agent/x.go", `import "golang.org/x/text/unicode"`, "the agent links it"},
		{"system calls in the agent", "cmd/dray-agent/x.go", `import "golang.org/x/sys/unix"`, ""},
		{"a room in the agent", "cmd/dray-agent/x.go", `import "github.com/dray-dev/dray/pathmapper"`, "the agent links it"},
		{"a codec that is too much for the agent", "cmd/dray-agent/x.go", `import "encoding/json"`, "too much for the agent"},
		{"a long file", "audit/x.go", strings.Repeat("\n", maxFileLines), "more than one idea"},
		{"a long test", "audit/x_test.go", strings.Repeat("\n", maxFileLines), ""},
		{"a long main", "cmd/dray/main.go", strings.Repeat("\n", maxMainLines), "commands are in"},
		{"another's module in a test", "internal/api/x_test.go", `import "github.com/spf13/viper"`, ""},
	} {
		t.Run(tc.name, func(t *testing.T) { wantFault(t, tc.fault, made(t, tc.file, tc.text)) })
	}
}

// TestEveryBanHolds makes what each ban forbids.
func TestEveryBanHolds(t *testing.T) {
	for _, b := range importRules {
		for _, to := range b.to {
			from, to := strings.TrimSuffix(b.from, "/..."), strings.TrimSuffix(to, "/...")
			if from == "." && strings.HasSuffix(b.from, "/...") {
				from = "internal/logging" // for all: one of them
			}
			if to == "." {
				to = "internal/other"
			}
			wantFault(t, b.why, made(t, from+"/x.go", `import "`+module+"/"+to+`"`))
		}
	}
}

// TestAgentIsFollowed: what the agent imports by way of a room that it may have is found too.
func TestAgentIsFollowed(t *testing.T) {
	wantFault(t, "the agent links it",
		made(t, "cmd/dray-agent/x.go", `import "github.com/dray-dev/dray/executor/files"`),
		made(t, "executor/files/x.go", `import "github.com/dray-dev/dray/executor/process"`),
		made(t, "executor/process/x.go", `import "golang.org/x/text/unicode"`))
}

func made(t *testing.T, file, text string) source {
	t.Helper()
	s, err := parse(path.Clean(file), []byte("package x\n"+text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func wantFault(t *testing.T, want string, sources ...source) {
	t.Helper()
	faults := strings.Join(check(sources), "\n")
	if want == "" && faults != "" || !strings.Contains(faults, want) {
		t.Errorf("the check of %s found %q, and %q was expected", sources[0].name, faults, want)
	}
}
