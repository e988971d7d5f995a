package dray_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/cmd/dray/command"
	"github.com/dray-dev/dray/config"
)

// These tests check the documentation against the program: links, configurations, command lines,
// and complete lists.

var update = flag.Bool("update", false, "rewrite docs/reference/cli.md")

// page is one document.
type page struct {
	name, text string
	blocks     []block
}

// block is a fenced block of a page.
type block struct {
	language, text string
	line           int
}

// pages returns all Markdown files.
func pages(t *testing.T) []page {
	t.Helper()
	var names []string
	for _, root := range []string{
		"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs", "examples",
		"scripts",
	} {
		err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() && strings.HasSuffix(name, ".md") {
				names = append(names, name)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(names) < 20 {
		t.Fatalf("only %d documents were found", len(names))
	}
	all := make([]page, 0, len(names))
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page{name: name, text: string(text), blocks: blocksOf(string(text))})
	}
	return all
}

func blocksOf(text string) []block {
	var blocks []block
	var open *block
	for i, line := range strings.Split(text, "\n") {
		language, fence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case fence && open == nil:
			open = &block{language: language, line: i + 1}
		case fence:
			blocks = append(blocks, *open)
			open = nil
		case open != nil:
			open.text += line + "\n"
		}
	}
	return blocks
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	notSlug = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

func TestLinksResolve(t *testing.T) {
	for _, p := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(p.text, -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			file := filepath.Join(filepath.Dir(p.name), target)
			if target == "" {
				file = p.name
			}
			text, err := os.ReadFile(file)
			if info, statErr := os.Stat(file); statErr == nil && info.IsDir() {
				err = nil
			}
			if err != nil {
				t.Errorf("%s: broken link %s", p.name, m[1])
			} else if anchor != "" && !slices.Contains(anchors(string(text)), anchor) {
				t.Errorf("%s: %s has no heading for %s", p.name, file, m[1])
			}
		}
	}
}

// docs/README.md and docs/adr/README.md link to every page.
func TestEveryPageIsLinked(t *testing.T) {
	linked := map[string]bool{filepath.Join("docs", "README.md"): true}
	all := pages(t)
	for _, p := range all {
		if !strings.HasPrefix(p.name, "docs/") || filepath.Base(p.name) != "README.md" {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(p.text, -1) {
			target, _, _ := strings.Cut(m[1], "#")
			linked[filepath.Join(filepath.Dir(p.name), target)] = true
		}
	}
	for _, p := range all {
		if strings.HasPrefix(p.name, "docs/") && !linked[p.name] {
			t.Errorf("neither docs/README.md nor docs/adr/README.md links to %s", p.name)
		}
	}
}

// anchors returns the anchors of a page's headings.
func anchors(text string) []string {
	var all []string
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		all = append(all, strings.ReplaceAll(notSlug.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return all
}

// Every YAML block is a valid configuration (CF-01, OP-05).
func TestConfigurationsLoad(t *testing.T) {
	found := 0
	load := func(name, text string) {
		found++
		_, err := config.Load(config.Options{
			State: "/var/lib/dray", ConfigFile: name, ReadFile: func(string) ([]byte, error) { return []byte(text), nil },
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, p := range pages(t) {
		for _, b := range p.blocks {
			if b.language == "yaml" {
				load("/"+p.name, strings.Repeat("\n", b.line)+b.text) // so that errors name the line of the page
			}
		}
	}
	text, err := os.ReadFile("examples/hello/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	load("/examples/hello/config.yaml", string(text))
	if found < 4 {
		t.Errorf("only %d configurations were found", found)
	}
}

func TestJSONIsJSON(t *testing.T) {
	for _, p := range pages(t) {
		for _, b := range p.blocks {
			if b.language == "json" && !json.Valid([]byte(b.text)) {
				t.Errorf("%s:%d: invalid JSON", p.name, b.line)
			}
		}
	}
}

// Codes, keys, endpoints and parameters in the code are in the reference.
func TestReferenceIsComplete(t *testing.T) {
	for _, tc := range []struct{ source, pattern, page, form string }{
		{"errors.go", `Code\w+ +Code = "(\w+)"`, "docs/reference/codes.md", "| `%` |"},
		{"result.go", `Reason\w+ +Reason = "(\w+)"`, "docs/reference/codes.md", "| `%` |"},
		{"config/settings.go", `(?m)^\t{1,2}\{?"(\w+\.[\w.]+|containers|tools)", \w+Kind`, "docs/reference/configuration.md", "| `%` |"},
		{"config/settings.go", `(?m)^\t\t"([a-z]+\.[\w.]+|tool_dirs)"`, "docs/reference/configuration.md", "`%`"},
		{"internal/api/routes.go", `op\("[A-Z]+ (/[^"]+)"`, "docs/reference/http.md", "%"},
		{"internal/api/routes.go", `onCall\("[A-Z]+", "(/[^"]+)"`, "docs/reference/http.md", "/v1/invocations/{id}%"},
		{"internal/call/request.go", "json:\"(\\w+),?\\w*\" (?:doc|enum|exclusive|max|minItems)", "docs/reference/http.md", "`%`"},
		{"internal/api/list.go", `values\.Get\("(\w+)"\)`, "docs/reference/http.md", "`%`"},
	} {
		source, page := read(t, tc.source), read(t, tc.page)
		found := 0
		for _, m := range regexp.MustCompile(tc.pattern).FindAllStringSubmatch(source, -1) {
			if m[1] == "" {
				continue
			}
			found++
			if want := strings.ReplaceAll(tc.form, "%", m[1]); !strings.Contains(page, want) {
				t.Errorf("%s has %s, and %s does not contain %s", tc.source, m[1], tc.page, want)
			}
		}
		if found == 0 {
			t.Errorf("%s does not match %s", tc.source, tc.pattern)
		}
	}
}

// Codes has every code, so that the filters of the audit log accept it.
func TestCodesIsComplete(t *testing.T) {
	code := regexp.MustCompile(`Code\w+ +Code = "(\w+)"`)
	var want []string
	for _, m := range code.FindAllStringSubmatch(read(t, "errors.go"), -1) {
		want = append(want, m[1])
	}
	if got := fmt.Sprint(dray.Codes()); len(want) == 0 || got != fmt.Sprint(want) {
		t.Errorf("Codes returns %s, want %v", got, want)
	}
}

// Every error code has a row in the reference, with the HTTP status of the server's table. Only the
// codes that can end a call but never fail a request have none.
func TestReferenceHasTheStatuses(t *testing.T) {
	onlyOfCalls := []string{
		"executable_not_found", "not_executable", "bad_cwd", "bad_user", "output_invalid",
	}
	statuses := map[string]string{}
	status := regexp.MustCompile(`dray\.(Code\w+): +http\.Status(\w+),`)
	for _, m := range status.FindAllStringSubmatch(read(t, "internal/api/problem.go"), -1) {
		statuses[m[1]] = statusNumbers[m[2]]
	}
	page := read(t, "docs/reference/codes.md")
	code := regexp.MustCompile(`(Code\w+) +Code = "(\w+)"`)
	for _, m := range code.FindAllStringSubmatch(read(t, "errors.go"), -1) {
		if statuses[m[1]] == "" && !slices.Contains(onlyOfCalls, m[2]) {
			t.Errorf("statusByCode in internal/api/problem.go has no status for %s", m[2])
		}
		cells := "(?m)^\\| `" + m[2] + "` \\| (\\d*)(?:, of a sync 422)? ?\\|[^|]*\\|$"
		row := regexp.MustCompile(cells).FindStringSubmatch(page)
		if len(row) < 2 || row[1] != statuses[m[1]] {
			t.Errorf("docs/reference/codes.md has %q for %s, whose status is %q", row, m[2], statuses[m[1]])
		}
	}
}

var statusNumbers = map[string]string{
	"BadRequest": "400", "Unauthorized": "401", "Forbidden": "403", "NotFound": "404", "MethodNotAllowed": "405", "Conflict": "409",
	"RequestEntityTooLarge": "413", "UnsupportedMediaType": "415", "UnprocessableEntity": "422", "TooManyRequests": "429",
	"InternalServerError": "500", "BadGateway": "502", "ServiceUnavailable": "503", "InsufficientStorage": "507",
}

// The defaults in the reference are those of the table of settings.
func TestReferenceHasTheDefaults(t *testing.T) {
	page := read(t, "docs/reference/configuration.md")
	setting := regexp.MustCompile(`(?m)^\t{1,2}\{?"([\w.]+)", [\w(), ]+, "(\w+)"`)
	found := setting.FindAllStringSubmatch(read(t, "config/settings.go"), -1)
	if len(found) < 10 {
		t.Fatalf("only %d defaults were found in config/settings.go", len(found))
	}
	for _, m := range found {
		if want := "| `" + m[1] + "` | `" + m[2] + "` |"; !strings.Contains(page, want) {
			t.Errorf("docs/reference/configuration.md does not have a row %s", want)
		}
	}
}

func TestMakeTargetsExist(t *testing.T) {
	makefile := read(t, "Makefile")
	for _, p := range pages(t) {
		for _, m := range regexp.MustCompile("(?m)(?:`|^|=1 )make ([a-z]+)").FindAllStringSubmatch(p.text, -1) {
			if !strings.Contains(makefile, "\n"+m[1]+":") {
				t.Errorf("%s mentions make %s, which is not a target", p.name, m[1])
			}
		}
	}
}

// docs/reference/cli.md is the program's help text.
func TestCLIReference(t *testing.T) {
	const name = "docs/reference/cli.md"
	var b strings.Builder
	b.WriteString("# Command line\n\nWhat `dray COMMAND --help` prints. Written by `go test -run CLIReference . -update`, and checked by the same test.\n")
	for _, c := range commands(t) {
		b.WriteString("\n## " + c + "\n\n```text\n" + strings.TrimRight(help(t, c), "\n") + "\n```\n")
	}
	if *update {
		if err := os.WriteFile(name, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if read(t, name) != b.String() {
		t.Errorf("%s is not what the program says: go test -run CLIReference . -update", name)
	}
}

// commands walks the help of all commands from `dray` on.
func commands(t *testing.T) []string {
	t.Helper()
	all := []string{"dray"}
	for i := 0; i < len(all); i++ {
		for _, list := range strings.Split(help(t, all[i]), " Commands:\n")[1:] {
			list, _, _ = strings.Cut(list, "\n\n")
			for line := range strings.Lines(list) {
				if name := strings.Fields(line); len(name) > 1 && name[0] != "help" {
					all = append(all, all[i]+" "+name[0])
				}
			}
		}
	}
	if len(all) < 15 {
		t.Fatalf("only %q were found", all)
	}
	return all
}

func help(t *testing.T, line string) string {
	t.Helper()
	out, said := run(append(strings.Fields(line)[1:], "--help")...)
	if said != "" {
		t.Fatalf("%s --help: %s", line, said)
	}
	return out
}

// run runs a command line in this process. It is only used with --help in it, so that nothing
// happens.
func run(args ...string) (out, said string) {
	var stdout, stderr bytes.Buffer
	command.Execute(context.Background(), args, strings.NewReader(""), &stdout, &stderr)
	return stdout.String(), stderr.String()
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The functions in the table of one argv exist, and the table has at most 28 rows.
func TestArgvTableNamesFunctions(t *testing.T) {
	page := read(t, "docs/explanation/architecture.md")
	rows := regexp.MustCompile("(?m)^\\| \\d+ \\| `([\\w/-]+)` \\| `(\\w+)` \\|").FindAllStringSubmatch(page, -1)
	if len(rows) == 0 || len(rows) > 28 {
		t.Errorf("%d rows", len(rows))
	}
	for _, row := range rows {
		if !declares(t, row[1], row[2], false) {
			t.Errorf("%s has no function %s", row[1], row[2])
		}
	}
}

// The tests that docs/explanation/security.md names exist, each in the package that it names. Each
// section with promises says what is not promised (OP-05).
func TestSecurityNamesTests(t *testing.T) {
	page := read(t, "docs/explanation/security.md")
	tests := regexp.MustCompile("`([a-z/-]+)\\.(Test\\w+)`").FindAllStringSubmatch(page, -1)
	if all := regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(page, -1); len(tests) != len(all) ||
		len(tests) < 50 {
		t.Errorf("%d tests have a package, of %d", len(tests), len(all))
	}
	for _, test := range tests {
		if !declares(t, test[1], test[2], true) {
			t.Errorf("%s has no test %s", test[1], test[2])
		}
	}
	for _, section := range strings.Split(page, "\n## ")[1:] {
		if strings.Contains(section, "| held by |") && !strings.Contains(section, "Not promised:") {
			title, _, _ := strings.Cut(section, "\n")
			t.Errorf("%q does not say what is not promised", title)
		}
	}
}

// declares reports whether a test file, or another file, of a package declares a function.
func declares(t *testing.T, dir, name string, inTest bool) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`(?m)^func (\([^)]*\) )?` + name + `[\[(]`)
	return slices.ContainsFunc(files, func(f string) bool {
		return strings.HasSuffix(f, "_test.go") == inTest && declared.MatchString(read(t, f))
	})
}
