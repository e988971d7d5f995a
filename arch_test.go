package dray_test

import (
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/dray-dev/dray"

// The rules of doc.go. This test parses the sources itself: `go list` may return a cached result,
// and it omits the files of other systems.

// importRule forbids packages to import others. A pattern is a directory, "." for the root, or a
// directory and "/..." for all packages below it too.
type importRule struct {
	from   string
	to     []string
	except []string // may be imported
	but    []string // may import
	why    string
}

var importRules = []importRule{
	{
		from: ".", to: []string{"./..."},
		why: "package dray must not depend on the packages that use it",
	},
	{
		from: "config", to: []string{"./..."}, except: []string{"internal/lexical"},
		why: "every package may use a configuration, so it must not depend on any of them",
	},
	{from: "migrations", to: []string{"./..."}, why: "a schema must not change when code changes"},
	{
		from: "pathmapper/...", to: []string{"./..."}, except: []string{"."},
		why: "it is pure: its callers pass all that it needs",
	},
	{
		from: "internal/pack/...", to: []string{"./..."},
		why: "the agent links it, and it parses the data of a hostile peer",
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
		why:    "the agent links it, and all that it imports would run as root in every container",
	},
	{
		from: "internal/wire/...", to: []string{"./..."},
		except: []string{".", "internal/linux", "internal/pack"},
		why:    "the agent links it, and it parses the data of a hostile peer",
	},
	{
		from: "internal/shellprobe/...", to: []string{"./..."},
		why: "the agent links it, and it parses the output of a hostile shell",
	},
	{
		from: "executor/files/...", to: []string{"./..."},
		except: []string{".", "executor/files/...", "internal/linux", "internal/pack"},
		why:    "the agent links it",
	},
	{
		from: "audit/...", to: []string{"./..."}, except: []string{".", "migrations", "audit/proof"},
		why: "the audit log must be readable without the packages that write to it",
	},
	{
		from: "audit/proof/...", to: []string{"./..."},
		why: "another program can check a receipt with it, and with nothing else of dray",
	},
	{
		from: "executor/...", to: []string{
			"internal/api/...", "internal/call/...", "internal/mcp/...", "internal/policy/...",
			"internal/router/...", "internal/tool/...", "internal/workspace/...", "audit/...",
		},
		why: "an environment does not depend on callers, rules and tools, so every tool can use " +
			"every environment",
	},
	{
		from: "executor/agent/...", to: []string{"executor/docker/...", "executor/agentbin"},
		why: "the client of the agent works with every kind of container",
	},
	{
		from: "executor/docker/...", to: []string{"internal/wire/..."},
		why: "the protocol of the agent belongs to executor/agent, so that another engine does not " +
			"repeat it",
	},
	{
		from: "internal/workspace/...", to: []string{"executor/docker/...", "executor/host/..."},
		why: "it depends on the methods that it uses, so that another kind of environment does not " +
			"change it",
	},
	{
		from: "internal/devcontainer/...", to: []string{
			"executor/...", "internal/api/...", "internal/call/...",
			"internal/workspace/...",
		},
		why: "it gets files and labels from its callers, so it can be compared with the reference " +
			"without an engine",
	},
	{
		from: "internal/devcontainer/compose", to: []string{"./..."},
		except: []string{"internal/devcontainer/helper", "internal/lexical"},
		why: "it reads the files of a compose project that its caller gives it, and knows no " +
			"devcontainer.json",
	},
	{
		from: "internal/router/...", to: []string{"./..."},
		except: []string{".", "internal/lexical"},
		why:    "a route depends on the call and the rules, never on what runs",
	},
	{
		from: "internal/workspace/...", to: []string{
			"internal/router/...", "internal/tool/...", "internal/policy/...",
			"internal/api/...", "internal/call/...", "internal/mcp/...", "audit/...",
		},
		why: "it prepares the environment of a route and must not choose one",
	},
	{
		from: "internal/transfer/...", to: []string{"./..."},
		except: []string{".", "executor/files/...", "internal/lexical", "pathmapper"},
		why: "whether a file may be synced depends on files and names, never on the caller or the " +
			"tool",
	},
	{
		from: "internal/admission/...", to: []string{"./..."}, except: []string{".", "executor"},
		why: "it counts calls and must not depend on their contents",
	},
	{
		from: "internal/call/...", to: []string{"internal/api/...", "internal/mcp/..."},
		why: "MCP and HTTP both use it, so it must not depend on either",
	},
	{
		from: "internal/mcp", to: []string{
			"executor/agent/...", "executor/docker/...", "executor/host/...", "internal/api/...",
			"internal/python/...", "internal/router/...", "internal/tool/...", "internal/workspace/...",
		},
		why: "every tool call over MCP is a call of internal/call, so it has the checks, the limits " +
			"and the record of one over HTTP",
	},
	{
		from: "internal/mcp/upstream/...", to: []string{"./..."},
		except: []string{".", "internal/devcontainer/helper", "internal/lexical"},
		why: "it parses the data of a hostile server, which runs in an environment that its caller " +
			"gives it",
	},
	{
		from: "internal/policy", to: []string{"./..."},
		except: []string{".", "internal/lexical", "pathmapper"},
		why:    "a decision depends on the call and the policies, never on who asks or what runs",
	},
	{
		from: "internal/policy/approval/...", to: []string{"./..."},
		except: []string{
			".", "audit", "executor", "internal/call", "internal/lexical", "internal/policy",
			"internal/redact",
		},
		why: "an approval is the same over HTTP, MCP and the command line",
	},
	{
		from: "internal/textview/...", to: []string{"./..."},
		why: "models see an output in the same way over HTTP and over MCP",
	},
	{
		from: "internal/tool/...",
		to:   []string{"internal/api/...", "internal/call/...", "internal/mcp/..."},
		why:  "a tool must not depend on how it is called",
	},
	{
		from: "internal/python/...", to: []string{
			"internal/api/...", "internal/call/...", "internal/mcp/...", "internal/tool/...",
		},
		why: "sessions of Python run for the tool python and must not depend on it",
	},
	{
		from: "internal/validate/...", to: []string{"./..."}, except: []string{".", "internal/lexical"},
		why: "it checks values of requests and must not depend on the meaning of a request",
	},
	{
		from: "internal/strictjson/...", to: []string{"./..."},
		except: []string{".", "internal/lexical"},
		why:    "decoding must not depend on the meaning of a request",
	},
	{
		from: "internal/python/assets", to: []string{"./..."},
		except: []string{".", "internal/linux", "internal/python/pep508"},
		why:    "dray python fetch and dray doctor use it without a daemon and its environments",
	},
	{
		from: "internal/python/pep508/...", to: []string{"./..."},
		why: "it parses requirements and versions, and nothing else",
	},
	{
		from: "internal/redact/...", to: []string{"./..."}, except: []string{".", "internal/lexical"},
		why: "what is a secret must not depend on who records it",
	},
	{
		from: "internal/client/...", to: []string{"./..."}, except: []string{"."},
		why: "it is like any other client: the HTTP interface must have all that it needs",
	},
	{
		from: "./...", to: []string{"cmd/..."}, but: []string{"cmd/..."},
		why: "only cmd/dray/command wires the packages",
	},
	{
		from: "./...", to: devPackages, but: devPackages,
		why: "it is for developers of dray and not part of the product",
	},
	{
		from: "./...", to: []string{"internal/devcontainer/internal/reference"},
		why: "it starts the reference for comparison; only tests may import it",
	},
	{
		from: "./...", to: []string{"internal/devcontainer/internal/devtest"},
		why: "it makes workspaces for tests; only tests may import it",
	},
	{
		from: "./...", to: []string{"executor/process/processtest"},
		why: "it makes a test binary its own supervisor; only tests may import it",
	},
	{
		from: "./...", to: []string{"internal/python/pythontest"},
		why: "it is the suite of the Python runtimes; only tests may import it",
	},
	{
		from: "./...", to: []string{"internal/soakreport"},
		why: "it writes pages with the results of tests; only tests may import it",
	},
	{
		from: "./...", to: []string{"internal/enginetest"},
		why: "it starts engines as root for tests; only tests may import it",
	},
	{
		from: "./...", to: []string{"internal/python/assets/assetstest"},
		why: "it finds what the set-up made; only tests may import it",
	},
	{
		from: "./...", to: []string{"internal/fusetest"},
		why: "it mounts file systems that hang; only tests may import it",
	},
}

// devPackages are programs and suites for developers of dray. They may import anything; nothing may
// import them.
var devPackages = []string{"bench/...", "features/...", "scripts/..."}

// owner is a third-party module with the packages that may import it.
type owner struct {
	module   string
	packages []string
}

// processStarter is a package that may start processes in one way.
type processStarter struct{ pkg, name, why string }

// agentPackages are the packages of this module that the agent may link.
var agentPackages = []string{
	".", "executor/process", "executor/files", "executor/files/stage", "executor/files/tree",
	"internal/linux", "internal/pack", "internal/shellprobe", "internal/wire",
}

// agentModule is the only other module that the agent may link. It has no code that runs before
// main and no dependencies, and the linker keeps only the system calls that are used. Our own
// wrappers of these calls would need assembly for each architecture.
const agentModule = "golang.org/x/sys"

// largeStdPackages are packages of the standard library that would each be a tenth of the agent or
// more.
var largeStdPackages = []string{
	"crypto/rand", "encoding/json", "net", "net/http", "regexp",
	"text/template",
}

// owners has the packages that may import each third-party module, so that a module can be replaced
// in one place.
var owners = []owner{
	{"github.com/spf13/viper", []string{"config"}},
	// the configuration, and compose files
	{"go.yaml.in/yaml", []string{"cmd/dray/command", "config", "internal/devcontainer/compose"}},
	{"github.com/spf13/cobra", []string{"cmd/dray/command"}},
	{"github.com/cedar-policy/cedar-go", []string{"internal/policy"}},
	{"mvdan.cc/sh", []string{"internal/policy"}},
	{"github.com/mattn/go-sqlite3", []string{"audit"}},
	{"github.com/pressly/goose", []string{"audit"}},
	{"golang.org/x/mod", []string{"audit/..."}},
	{"github.com/moby/moby", []string{"executor/docker"}},
	{"github.com/docker/cli", []string{"executor/docker"}},
	{"github.com/containerd/errdefs", []string{"executor/docker"}},
	{"github.com/danielgtaylor/huma", []string{"internal/api"}},
	{"github.com/google/uuid", []string{"internal/api", "internal/call", "internal/policy/approval"}},
	{"github.com/santhosh-tekuri/jsonschema", []string{"internal/tool"}},
	{"github.com/bmatcuk/doublestar", []string{"internal/tool"}},
	{"github.com/bluekeyes/go-gitdiff", []string{"internal/tool"}},
	// the validator's messages; Unicode's normal forms
	{"golang.org/x/text", []string{"internal/tool", "pathmapper"}},
	{
		"github.com/go-json-experiment/json",
		[]string{"audit", "internal/...", "pathmapper", "cmd/dray/command"},
	},
	{"github.com/modelcontextprotocol/go-sdk", []string{"internal/mcp", "internal/mcp/upstream"}},
	{"go.uber.org/zap", []string{
		"audit", "executor/agent", "executor/docker", "internal/logging",
		"internal/api", "internal/call", "internal/python", "internal/workspace", "cmd/dray/command",
	}},
	{"golang.org/x/crypto", []string{"internal/enginetest"}},
	{"golang.org/x/sys", []string{"audit", "executor/...", "internal/...", "cmd/..."}},
}

// starters are the packages that may start processes. All others use executor/process.
var starters = []processStarter{
	{"executor/process", "os.StartProcess", "it starts supervisors"},
	{"executor/process", "syscall.ForkExec", "it starts tools"},
	{
		"executor/process", "unix.Exec",
		"the agent executes its own program again, with a high timer slack for the Go runtime",
	},
	{
		"internal/enginetest", "exec.Command",
		"the engine of a test is not a tool, and a supervisor would kill its containers with it",
	},
	{"internal/soakreport", "exec.Command", "git prints the commit of a test"},
	{"internal/enginetest", "exec.CommandContext", "the docker command, for tests"},
	{"internal/devcontainer/internal/devtest", "exec.CommandContext", "git and docker, for tests"},
	{
		"cmd/dray/command", "exec.Command",
		"a command starts the daemon, which outlives it; callers do not choose the program",
	},
	{
		"cmd/dray/command", "exec.CommandContext",
		"doctor asks the devcontainer CLI for its version, in a process of its own without a daemon",
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

// TestArchitectureIsWrittenDown requires that the documentation names each rule.
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
		if pkg := strings.TrimSuffix(b.from, "/..."); pkg != "." {
			places["doc.go"], places[page] = append(places["doc.go"], pkg), append(places[page], pkg)
		}
	}
	places[page] = append(places[page], agentPackages[1:]...)
	places[page] = append(places[page], productPackages(t)...)
	for name, words := range places {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range words {
			if !strings.Contains(string(text), word) {
				t.Errorf("%s does not name %s, which is in the rules of this test", name, word)
			}
		}
	}
}

// productPackages returns the packages that are neither for developers nor for tests.
func productPackages(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, s := range readSources(t, ".") {
		onlyTests := slices.ContainsFunc(importRules, func(r importRule) bool {
			return r.from == "./..." && matchesAny(r.to, s.pkgDir) && len(r.but) == 0
		})
		if s.test || s.pkgDir == "." || onlyTests || strings.HasSuffix(s.pkgDir, "test") ||
			matchesAny(devPackages, s.pkgDir) {
			continue
		}
		all = append(all, "`"+s.pkgDir+"`")
	}
	return slices.Compact(all)
}

// TestArchitectureCanFail checks that each violation is found.
func TestArchitectureCanFail(t *testing.T) {
	for _, tc := range []struct{ name, file, text, fault string }{
		{"a third party in the root", "x.go", `import "go.uber.org/zap"`, "only the standard library"},
		{"a package in the root", "x.go", `import "github.com/dray-dev/dray/config"`, "package dray must not depend"},
		{"a package in a pure package", "pathmapper/x.go", `import "github.com/dray-dev/dray/config"`, "it is pure"},
		{"the root in a pure package", "pathmapper/x.go", `import "github.com/dray-dev/dray"`, ""},
		{"a package below a forbidden one", "executor/host/x.go", `import "github.com/dray-dev/dray/internal/call"`, "does not depend on callers"},
		{"a neighbour with a longer name", "executor/host/x.go", `import "github.com/dray-dev/dray/internal/toolbox"`, ""},
		{"wiring elsewhere", "internal/api/x.go", `import "github.com/dray-dev/dray/cmd/dray/command"`, "only cmd/dray/command wires"},
		{"wiring where it belongs", "cmd/dray/main.go", `import "github.com/dray-dev/dray/cmd/dray/command"`, ""},
		{"a development tool in the product", "internal/api/x.go", `import "github.com/dray-dev/dray/bench"`, "not part of the product"},
		{"another's module", "internal/api/x.go", `import "github.com/spf13/viper"`, "belongs to config"},
		{"the owner's module, a package in it", "executor/docker/x.go", `import "github.com/moby/moby/client"`, ""},
		{"a module without an owner", "audit/x.go", `import "example.org/new"`, "has no owner"},
		{"a module whose name begins like an owned one", "config/x.go", `import "github.com/spf13/viperous"`, "has no owner"},
		{"a program started", "internal/tool/x.go", `import "os/exec"; var _ = exec.Command`, "only executor/process starts"},
		{"a program started under another name", "internal/tool/x.go", `import run "os/exec"; var _ run.Cmd`, "only executor/process starts"},
		{"a lookup of a program", "internal/tool/x.go", `import "os/exec"; var _ = exec.LookPath`, ""},
		{"a process started", "executor/host/x.go", `import "os"; var _ = os.StartProcess`, "only executor/process starts"},
		{"a fork", "executor/docker/x.go", `import "syscall"; var _ = syscall.ForkExec`, "only executor/process starts"},
		{"a third party in the agent", "cmd/dray-agent/x.go", `import "golang.org/x/text/unicode"`, "the agent links it"},
		{"system calls in the agent", "cmd/dray-agent/x.go", `import "golang.org/x/sys/unix"`, ""},
		{"a package in the agent", "cmd/dray-agent/x.go", `import "github.com/dray-dev/dray/pathmapper"`, "the agent links it"},
		{"a codec that is too large for the agent", "cmd/dray-agent/x.go", `import "encoding/json"`, "too large for the agent"},
		{"a long file", "audit/x.go", strings.Repeat("\n", maxFileLines), "split the file"},
		{"a long test", "audit/x_test.go", strings.Repeat("\n", maxFileLines), ""},
		{"a long main", "cmd/dray/main.go", strings.Repeat("\n", maxMainLines), "commands are in"},
		{"another's module in a test", "internal/api/x_test.go", `import "github.com/spf13/viper"`, ""},
	} {
		t.Run(tc.name, func(t *testing.T) { wantFault(t, tc.fault, made(t, tc.file, tc.text)) })
	}
}

// TestEveryImportRuleHolds violates each rule.
func TestEveryImportRuleHolds(t *testing.T) {
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

// TestAgentIsFollowed checks that indirect imports of the agent are found.
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
		t.Errorf("%s: got %q, want %q", sources[0].name, faults, want)
	}
}
