package features

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// TestReference runs each example through the reference's `devcontainer exec` and through `dray
// exec`, in the same container, and compares stdout, stderr, exit code, user, groups, capabilities,
// working directory, umask, limits and environment. Differences are listed in
// docs/reference/devcontainer-compat.md with their reasons. The test also fails for a listed
// difference that does not occur. So it checks internal/devcontainer, executor/docker and the agent
// (EX-07, CF-05).
func TestReference(t *testing.T) {
	needsEngine(t)
	t.Setenv("COMPAT_LOCAL", "value of the caller = with signs; ä")
	seen := &rows{seen: map[string]bool{}}
	places := places(t)
	d := startDaemon(t, "trust: {workspaces: ["+strings.Join(folders(places), ", ")+"]}\n")
	t.Run("examples", func(t *testing.T) {
		for _, p := range places {
			t.Run(p.name, func(t *testing.T) {
				t.Parallel()
				p.compare(t, d, seen)
			})
		}
	})
	seen.against(t, tableRows(t, "Shown by the comparison"))
}

// referenceEnv is a workspace and its container. The reference reads user, probe, remoteEnv and
// folder of the configuration for each command, so one container is used for many configurations.
type referenceEnv struct {
	name string
	// files are written below root.
	files map[string]string
	// workspace is the directory that both get, config its devcontainer.json; relative to root.
	workspace, config string
	git               bool
	settings          []referenceCase

	root string
	// engineIgnores are the signals that the engine was started with as ignored, as a mask like that
	// of /proc/PID/status.
	engineIgnores uint64
}

// referenceCase is a devcontainer.json with the commands that run with it.
type referenceCase struct {
	name string
	// config is JSON; the first one creates the container.
	config string
	// prepare is a shell script that root runs first in the container.
	prepare  string
	examples []example
}

// example is one command.
type example struct {
	name string
	argv []string
	// env has variables K=V that are added to the environment.
	env   []string
	stdin []byte
	// long and longErr are a long stdout and stderr, byte for byte; the reference may lose the end of
	// them (row lost-end).
	long, longErr []byte
	// then is a command that runs afterwards, whose output is compared.
	then []string
	// folder is used instead of the workspace, relative to root.
	folder string
	// row is the id in the table if the two differ; then each must match its expectation.
	row             string
	reference, dray expectation
}

// expectation is one side of a known difference. The texts are parts of the output.
type expectation struct {
	code              int
	stdout, stderr    string
	noStdout, anyCode bool
}

func folders(places []*referenceEnv) []string {
	var all []string
	for _, p := range places {
		all = append(all, filepath.Join(p.root, p.workspace), filepath.Join(p.root, "link"))
	}
	return all
}

func (p *referenceEnv) path(name string) string { return filepath.Join(p.root, name) }

func (p *referenceEnv) compare(t *testing.T, d *daemon, seen *rows) {
	p.bringUp(t)
	for i, s := range p.settings {
		if i > 0 {
			if err := writeFile(p.path(p.config), withImages(s.config)); err != nil {
				t.Fatal(err)
			}
		}
		if s.prepare != "" {
			p.asRoot(t, "sh", "-ec", s.prepare)
		}
		t.Run(s.name, func(t *testing.T) {
			for _, e := range s.examples {
				t.Run(e.name, func(t *testing.T) {
					t.Parallel() // with the others of this setting
					p.run(t, d, e, seen)
				})
			}
		})
	}
}

// bringUp starts the container with the reference, so that it is not one that dray started.
func (p *referenceEnv) bringUp(t *testing.T) {
	t.Helper()
	t.Cleanup(func() { removeContainers(t, p.path(p.workspace)) })
	args := []string{
		"up", "--buildkit", "never", "--skip-post-create", "--workspace-folder",
		p.path(p.workspace),
	}
	if r := reference(t, nil, args...); r.code != 0 {
		t.Fatalf("devcontainer up: %d\n%s\n%s", r.code, r.stdout, r.stderr)
	}
	// without a shell, because bash ignores SIGQUIT
	handed := strings.TrimSpace(strings.TrimPrefix(p.asRoot(t, "grep", "SigIgn", "/proc/self/status"),
		"SigIgn:"))
	mask, err := strconv.ParseUint(handed, 16, 64)
	if err != nil {
		t.Fatalf("ignored signals of the engine: %q: %v", handed, err)
	}
	p.engineIgnores = mask
}

func (p *referenceEnv) asRoot(t *testing.T, argv ...string) string {
	t.Helper()
	ids, err := containersOf(t.Context(), p.path(p.workspace))
	if err == nil && len(ids) != 1 {
		err = fmt.Errorf("%d containers", len(ids))
	}
	var out string
	if err == nil {
		out, err = docker(t.Context(), append([]string{"exec", "--user", "0", ids[0]}, argv...)...)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// agentCgroup is the cgroup below the container's that the daemon, if it is root, makes for the
// agent and its tools.
var agentCgroup = regexp.MustCompile(`/dray-[a-z0-9]+/home$`)

// callVariables are the variables that the reference does not set (EX-23).
var callVariables = regexp.MustCompile(`DRAY_(?:CALL_ID|RESULTS)=[^\n\x00]*[\n\x00]`)

func (p *referenceEnv) run(t *testing.T, d *daemon, e example, seen *rows) {
	folder := p.path(p.workspace)
	if e.folder != "" {
		folder = p.path(e.folder)
	}
	args := []string{"exec", "--workspace-folder", folder}
	ours := []string{"exec", "--workspace", folder}
	for _, kv := range e.env {
		args = append(args, "--remote-env", kv)
		ours = append(ours, "--env", kv)
	}
	ours = append(ours, "--")
	got := d.dray(t.Context(), bytes.NewReader(e.stdin), append(slices.Clone(ours), e.argv...)...)
	if e.then != nil {
		got = d.dray(t.Context(), bytes.NewReader(nil), append(slices.Clone(ours), e.then...)...)
	}
	got.stdout = callVariables.ReplaceAll(got.stdout, nil)
	want := reference(t, e.stdin, append(slices.Clone(args), e.argv...)...)
	if e.then != nil {
		want = reference(t, nil, append(slices.Clone(args), e.then...)...)
	}
	if e.long != nil {
		want.stdout = completed(t, got.stdout, want.stdout, e.long)
	}
	if e.longErr != nil {
		want.stderr = completed(t, got.stderr, want.stderr, e.longErr)
	}
	if e.row == "" {
		p.compareRuns(t, got, want)
		return
	}
	seen.add(e.row)
	e.reference.check(t, "the reference", want)
	e.dray.check(t, "dray", got)
}

// completed compares our output with the printed text. If the reference lost the end of it, a
// prefix counts as complete.
func completed(t *testing.T, got, want, printed []byte) []byte {
	t.Helper()
	if !bytes.Equal(got, printed) {
		t.Errorf("output of %d bytes is not the %d bytes that were printed", len(got), len(printed))
	}
	if len(want) > 0 && bytes.HasPrefix(printed, want) {
		return got
	}
	return want
}

// limit bounds the number of concurrent reference programs: each starts nine docker commands.
var limit = make(chan struct{}, 3)

func reference(t *testing.T, stdin []byte, args ...string) ran {
	t.Helper()
	limit <- struct{}{}
	defer func() { <-limit }()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), devcontainerCLI(t), args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, io.ErrClosedPipe) {
		if cmd.ProcessState == nil || context.Cause(t.Context()) != nil {
			t.Fatalf("devcontainer %s: %v", args[0], err)
		}
	}
	return ran{cmd.ProcessState.ExitCode(), stdout.Bytes(), stderr.Bytes()}
}

// compareRuns compares the output, that of an inspection aspect by aspect.
func (p *referenceEnv) compareRuns(t *testing.T, got, want ran) {
	t.Helper()
	if got.code != want.code {
		t.Errorf("exit code %d, the reference's is %d\nstderr %.300s\nthe reference's %.300s", got.code,
			want.code, got.stderr, want.stderr)
	}
	if !bytes.Equal(got.stderr, want.stderr) {
		t.Errorf("stderr %.300q, the reference's is %.300q", got.stderr, want.stderr)
	}
	if bytes.Equal(got.stdout, want.stdout) {
		return
	}
	if !bytes.HasPrefix(want.stdout, []byte(inspectionMark)) ||
		!bytes.HasPrefix(got.stdout, []byte(inspectionMark)) {
		t.Errorf("stdout of %d bytes %.300q, the reference's of %d bytes is %.300q", len(got.stdout),
			got.stdout, len(want.stdout), want.stdout)
		return
	}
	ours, theirs := comparedAspects(got.stdout), comparedAspects(want.stdout)
	ours["cgroup.0"] = agentCgroup.ReplaceAllString(ours["cgroup.0"], "")
	theirs["status.SigIgn"] = p.freshSignals(t, theirs["status.SigIgn"])
	for _, name := range slices.Sorted(maps.Keys(theirs)) {
		if ours[name] != theirs[name] {
			t.Errorf("%s is %q, the reference's is %q", name, ours[name], theirs[name])
		}
		delete(ours, name)
	}
	for _, name := range slices.Sorted(maps.Keys(ours)) {
		t.Errorf("%s is %q, the reference has none", name, ours[name])
	}
}

// freshSignals removes the signals that the engine ignores from those that the reference's process
// ignores (row inherited-signals).
func (p *referenceEnv) freshSignals(t *testing.T, ignored string) string {
	t.Helper()
	mask, err := strconv.ParseUint(ignored, 16, 64)
	if err != nil {
		t.Errorf("the reference's ignored signals are %q: %v", ignored, err)
	}
	return fmt.Sprintf("%016x", mask&^p.engineIgnores)
}

// check compares one side of a known difference with its expectation.
func (x expectation) check(t *testing.T, who string, r ran) {
	t.Helper()
	ok := (x.anyCode || r.code == x.code) && bytes.Contains(r.stdout, []byte(x.stdout)) &&
		bytes.Contains(r.stderr, []byte(x.stderr))
	if !ok || x.noStdout && len(r.stdout) > 0 {
		t.Errorf("%s: exit code %d, stdout %.300q, stderr %.300q; want %+v", who,
			r.code, r.stdout, r.stderr, x)
	}
}

// inspect prints the aspects of a process, one on each line, then its environment as in /proc. The
// shell reads its own /proc files, because some shells block signals while they start a program.
var inspect = []string{"sh", "-c", `printf '` + inspectionMark + `\n'
echo "cwd: $(readlink /proc/$$/cwd)"
echo "umask: $(umask)"
while read -r name value; do
	case $name in Uid:|Gid:|Groups:|Cap*|NoNewPrivs:|Seccomp:|SigBlk:|SigIgn:) echo "status.$name $value";; esac
done </proc/$$/status
while read -r line; do echo "limit.${line%%  *}: ${line#*  }"; done </proc/$$/limits
read -r line </proc/$$/oom_score_adj; echo "oom: $line"
while read -r line; do echo "cgroup.$line"; done </proc/$$/cgroup
for fd in 0 1 2; do echo "descriptor $fd: $(readlink /proc/$$/fd/$fd | sed 's/[0-9]*//g')"; done
read -r line </proc/$$/stat
set -- ${line##*) }
test "$3" = "$$" && echo 'own group: yes'
test "$4" = "$$" && echo 'own session: yes'
echo "terminal: $5"
echo "nice: ${17}"
echo "id: $(id)"
cd /proc/$$/fd && echo "descriptors:" *
printf 'ENVIRONMENT\n'
cat /proc/$$/environ
exit 0`} // the last program of a script may take the shell's place, and then $$ is that program

const inspectionMark = "INSPECTION"

// comparedAspects parses an inspection. The order of the variables is not compared; a duplicate
// name counts as two aspects.
func comparedAspects(out []byte) map[string]string {
	all := map[string]string{}
	lines, environ, _ := strings.Cut(string(out), "\nENVIRONMENT\n")
	for line := range strings.SplitSeq(lines, "\n") {
		name, value, _ := strings.Cut(line, ":")
		all[name] = strings.TrimSpace(value)
	}
	for kv := range strings.SplitSeq(environ, "\x00") {
		name, value, _ := strings.Cut(kv, "=")
		if before, twice := all["env."+name]; twice {
			value = before + "\x00" + value
		}
		all["env."+name] = value
	}
	return all
}

// rows collects the rows of the table that occurred.
type rows struct {
	mu   sync.Mutex
	seen map[string]bool
}

func (r *rows) add(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen[id] = true
}

// against compares with the table.
func (r *rows) against(t *testing.T, table []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range table {
		if !r.seen[id] {
			t.Errorf("the table lists %s, which no example shows", id)
		}
		delete(r.seen, id)
	}
	for id := range r.seen {
		t.Errorf("an example differs by %s, which the table does not list", id)
	}
}

// tableRows reads the ids of the table under a heading of docs/reference/devcontainer-compat.md.
func tableRows(t *testing.T, heading string) []string {
	t.Helper()
	page, err := os.ReadFile("../docs/reference/devcontainer-compat.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("the page has no section %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var ids []string
	for line := range strings.Lines(section) {
		if cells := strings.Split(line, "|"); len(cells) > 2 && strings.HasPrefix(strings.TrimSpace(cells[1]), "`") {
			ids = append(ids, strings.Trim(strings.TrimSpace(cells[1]), "`"))
		}
	}
	return ids
}
