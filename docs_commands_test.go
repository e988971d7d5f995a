package dray_test

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestCommandLinesParse: every command line of dray that the documents quote names a command that
// exists, with flags that it has.
func TestCommandLinesParse(t *testing.T) {
	known := commands(t)
	found := 0
	for _, p := range pages(t) {
		if p.name == "docs/reference/cli.md" {
			continue // it is the program's own words
		}
		for _, line := range quotedLines(p) {
			for _, words := range drayIn(line) {
				found++
				if fault := judge(known, words); fault != "" {
					t.Errorf("%s: %s: %s", p.name, strings.Join(words, " "), fault)
				}
			}
		}
	}
	if found < 40 {
		t.Errorf("only %d command lines were found", found)
	}
}

// TestCommandLinesAreRun: a test of the CLI or of Robot Framework runs each command that the
// documents quote, and each of the flags that they quote it with (OP-05).
func TestCommandLinesAreRun(t *testing.T) {
	c := cli{commands: commands(t), flags: map[string]map[string]string{}}
	run := c.runByTests(t)
	quoted := 0
	for _, p := range pages(t) {
		if p.name == "docs/reference/cli.md" {
			continue // it is the program's own words
		}
		for _, line := range quotedLines(p) {
			for _, words := range drayIn(line) {
				for _, use := range c.uses(t, words) {
					quoted++
					if !run[use] {
						t.Errorf("%s quotes %s, which no test runs", p.name, use)
					}
				}
			}
		}
	}
	if quoted < 300 {
		t.Errorf("only %d commands and flags were found", quoted)
	}
}

// cli is the commands of dray, with the names that each flag of a command has, by its long name.
type cli struct {
	commands []string
	flags    map[string]map[string]string
}

var (
	scriptLine = regexp.MustCompile(`(?:^|\s)(dray .*)`)
	robotLine  = regexp.MustCompile(`\bDray(?: Bytes)? {2,}(.*)`)
	goLine     = regexp.MustCompile(`\bmustRun\(t, (.*)\)`)
	robotCells = regexp.MustCompile(` {2,}`)
	flagNames  = regexp.MustCompile(`(?m)^ +(?:(-\w), |    )?(--[\w-]+)`)
)

// runByTests returns what the tests run.
func (c cli) runByTests(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, pattern := range []string{
		"cmd/dray/command/testdata/*/*.txtar", "cmd/dray/command/*_test.go", "robot/*.robot",
	} {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			t.Fatal(pattern, err)
		}
		for _, name := range names {
			for line := range strings.Lines(read(t, name)) {
				for _, words := range linesOfTest(strings.TrimSpace(line)) {
					for _, use := range c.uses(t, words) {
						all[use] = true
					}
				}
			}
		}
	}
	return all
}

// linesOfTest returns the command lines of dray in a line of a test.
func linesOfTest(line string) [][]string {
	if strings.HasPrefix(line, "#") || strings.HasPrefix(line, "//") {
		return nil
	}
	if m := robotLine.FindStringSubmatch(line); m != nil {
		return [][]string{append([]string{"dray"}, robotCells.Split(m[1], -1)...)}
	}
	if m := goLine.FindStringSubmatch(line); m != nil {
		words := strings.Split(m[1], ", ")
		for i, word := range words {
			words[i] = strings.Trim(word, `"`)
		}
		return [][]string{append([]string{"dray"}, words...)}
	}
	if m := scriptLine.FindStringSubmatch(line); m != nil {
		return drayIn(m[1])
	}
	return nil
}

// uses returns the command of a line, and the command with each of its flags.
func (c cli) uses(t *testing.T, words []string) []string {
	t.Helper()
	n := 1
	for n < len(words) && slices.Contains(c.commands, strings.Join(words[:n+1], " ")) {
		n++
	}
	command := strings.Join(words[:n], " ")
	if c.flags[command] == nil {
		c.flags[command] = map[string]string{}
		for _, m := range flagNames.FindAllStringSubmatch(help(t, command), -1) {
			c.flags[command][m[1]], c.flags[command][m[2]] = m[2], m[2]
		}
		delete(c.flags[command], "")
	}
	all := []string{command}
	for _, word := range words[n:] {
		if word == "--" {
			break
		}
		name, _, _ := strings.Cut(word, "=")
		if long := c.flags[command][name]; long != "" {
			all = append(all, command+" "+long)
		}
	}
	return all
}

func TestCommandLinesCanFail(t *testing.T) {
	known := commands(t)
	for line, wrong := range map[string]bool{
		"dray exec --host -- git --no-such-flag": false, "dray exec --nohost -- git": true, "dray audit lst": true, "dray nope": true,
		"X=1 dray call read_file --input '{\"path\": \"a b\"}' | jq .": false, "cd x && dray tools --jsn": true, "dray path to-host /a --json": false,
		"dray audit list --since 2h --limit ten": true, "dray audit": false, "dray serve # --not-a-flag": false,
	} {
		words := drayIn(line)
		if len(words) != 1 {
			t.Errorf("%q is read as %q", line, words)
		} else if fault := judge(known, words[0]); (fault != "") != wrong {
			t.Errorf("%q is judged %q", line, fault)
		}
	}
}

var inline = regexp.MustCompile("`((?:[A-Z_]+=\\S+ )*(?:\\S*bin/)?dray(?: [^`]*)?)`")

// quotedLines are the lines of shell blocks and what stands in backquotes.
func quotedLines(p page) []string {
	var lines []string
	for _, b := range p.blocks {
		if slices.Contains([]string{"sh", "console"}, b.language) {
			lines = append(lines, strings.Split(strings.ReplaceAll(b.text, "\\\n", " "), "\n")...)
		}
	}
	for _, m := range inline.FindAllStringSubmatch(p.text, -1) {
		lines = append(lines, m[1])
	}
	return lines
}

var assignment = regexp.MustCompile(`^[A-Za-z_]\w*=`)

// drayIn gives the command lines of dray in a line of shell.
func drayIn(line string) [][]string {
	var all [][]string
	for _, words := range split(strings.TrimPrefix(line, "$ ")) {
		for len(words) > 0 && assignment.MatchString(words[0]) {
			words = words[1:]
		}
		if len(words) > 0 && (words[0] == "dray" || strings.HasSuffix(words[0], "bin/dray")) {
			all = append(all, append([]string{"dray"}, words[1:]...))
		}
	}
	return all
}

// split takes a line of shell apart as far as documents need it: quotes, what joins commands,
// redirections, remarks.
func split(line string) [][]string {
	var all [][]string
	var words []string
	var word strings.Builder
	begun, quote := false, rune(0)
	next := func() {
		if begun {
			words = append(words, word.String())
		}
		word.Reset()
		begun = false
	}
	for _, r := range line + ";" {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, begun = r, true
		case r == '#' && !begun:
			return append(all, words)
		case strings.ContainsRune(";|&()", r):
			next()
			all, words = append(all, words), nil
		case r == ' ' || r == '\t' || r == '<' || r == '>':
			next()
		default:
			begun = true
			word.WriteRune(r)
		}
	}
	return all
}

// judge says what is wrong with a command line, by asking for its help with its own flags.
func judge(known, words []string) string {
	flags := words
	if i := slices.Index(words, "--"); i >= 0 {
		flags = words[:i]
	}
	n := 1
	for n < len(flags) && slices.Contains(known, strings.Join(flags[:n+1], " ")) {
		n++
	}
	args := append(append(slices.Clone(flags[1:n]), "--help"), flags[n:]...)
	out, said := run(args...)
	group := strings.Contains(out, " Commands:\n") &&
		!strings.Contains(out, strings.Join(flags[:n], " ")+" [NAME] [flags]") // it runs by itself too
	switch {
	case said != "":
		return said
	case group && len(flags) > n && !strings.HasPrefix(flags[n], "-") && flags[n] != "COMMAND":
		return "there is no such command"
	default:
		return ""
	}
}
