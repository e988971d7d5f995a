package dray_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// source is one file of ours.
type source struct {
	name    string // from the module's root
	pkgDir  string // its folder, "." for the root
	lines   int
	imports []string
	uses    []string // PACKAGE.NAME, by the package's last element
	test    bool
}

// readSources parses every Go file beneath a folder, whatever system or tag it is for.
func readSources(t *testing.T, root string) []source {
	t.Helper()
	var all []source
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != root &&
			(strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata"):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go"):
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		s, err := parse(filepath.ToSlash(name), text)
		all = append(all, s)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 100 {
		t.Fatalf("only %d files were found: this test does not look where it should", len(all))
	}
	return all
}

func parse(name string, text []byte) (source, error) {
	file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
	if err != nil {
		return source{}, err
	}
	s := source{
		name: name, pkgDir: path.Dir(name), lines: strings.Count(string(text), "\n"),
		test: strings.HasSuffix(name, "_test.go"),
	}
	packages := map[string]string{} // what the file calls a package: its last element
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return source{}, err
		}
		s.imports = append(s.imports, imported)
		local := path.Base(imported)
		if spec.Name != nil {
			local = spec.Name.Name
		}
		packages[local] = path.Base(imported)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && packages[x.Name] != "" {
				s.uses = append(s.uses, packages[x.Name]+"."+sel.Sel.Name)
			}
		}
		return true
	})
	return s, nil
}

// check gives everything that is against the rules, in the order of the files.
func check(sources []source) []string {
	var faults []string
	for _, s := range sources {
		if s.test {
			continue
		}
		faults = append(faults, checkSize(s)...)
		if matchesAny(devPackages, s.pkgDir) {
			continue
		}
		for _, imported := range s.imports {
			faults = append(faults, checkImport(s, imported)...)
		}
		faults = append(faults, checkProcessStarts(s)...)
	}
	return append(faults, checkAgent(sources)...)
}

func checkImport(s source, imported string) []string {
	if room, ours := packageOf(imported); ours {
		return checkImportRules(s, room)
	}
	if isStandard(imported) {
		return nil
	}
	if s.pkgDir == "." {
		return []string{fmt.Sprintf("%s imports %s: the nouns are made of the standard library alone, since everybody has to import them", s.name, imported)}
	}
	for _, o := range owners {
		if !o.has(imported) {
			continue
		}
		if !matchesAny(o.packages, s.pkgDir) {
			return []string{fmt.Sprintf("%s imports %s, which belongs to %s: replacing it shall mean to change its owner alone", s.name, imported, strings.Join(o.packages, ", "))}
		}
		return nil
	}
	return []string{fmt.Sprintf("%s imports %s, which has no owner: name one in arch_test.go, and the reason for it in CONTRIBUTING.md", s.name, imported)}
}

func checkImportRules(s source, room string) []string {
	var faults []string
	for _, b := range importRules {
		if b.forbids(s.pkgDir, room) {
			faults = append(faults, fmt.Sprintf("%s imports %s: %s", s.name, room, b.why))
		}
	}
	return faults
}

// forbids says whether a room must not import another. Within its own folder a room is free.
func (b importRule) forbids(from, to string) bool {
	own := strings.TrimSuffix(b.from, "/...")
	switch {
	case !matches(b.from, from), matchesAny(b.but, from), matchesAny(b.except, to):
		return false
	case own != "." && matches(own+"/...", to):
		return false
	default:
		return matchesAny(b.to, to)
	}
}

func checkProcessStarts(s source) []string {
	var faults []string
	for _, name := range starts {
		allowed := slices.ContainsFunc(starters,
			func(one processStarter) bool { return one.room == s.pkgDir && sameStart(one.name, name) })
		if slices.Contains(s.uses, name) && !allowed {
			faults = append(faults,
				fmt.Sprintf("%s uses %s: only executor/process starts processes, so that each has a supervisor and can be ended", s.name, name))
		}
	}
	return faults
}

// sameStart takes the type of a command as a part of making one.
func sameStart(allowed, name string) bool {
	return allowed == name || (name == "exec.Cmd" && strings.HasPrefix(allowed, "exec.Command"))
}

func checkSize(s source) []string {
	switch {
	case path.Base(s.name) == "main.go" && s.pkgDir == "cmd/dray" && s.lines >= maxMainLines:
		return []string{fmt.Sprintf("%s has %d lines, and fewer than %d are the rule: commands are in cmd/dray/command, where they can be tested", s.name, s.lines, maxMainLines)}
	case s.lines >= maxFileLines:
		return []string{fmt.Sprintf("%s has %d lines, and fewer than %d are the rule: it holds more than one idea", s.name, s.lines, maxFileLines)}
	default:
		return nil
	}
}

// checkAgent follows the agent's imports to their end.
func checkAgent(sources []source) []string {
	var faults []string
	rooms := []string{"cmd/dray-agent"}
	for i := 0; i < len(rooms); i++ {
		for _, s := range sources {
			if s.pkgDir != rooms[i] || s.test {
				continue
			}
			for _, imported := range s.imports {
				room, ours := packageOf(imported)
				switch {
				case ours && !slices.Contains(agentPackages, room),
					!ours && !isStandard(imported) && !strings.HasPrefix(imported, agentModule+"/"):
					faults = append(faults, fmt.Sprintf("%s imports %s, and the agent links it: "+
						"it runs as root in every container; it may link only the standard library, %s and %s",
						s.name, imported, agentModule, strings.Join(agentPackages, ", ")))
				case ours && !slices.Contains(rooms, room):
					rooms = append(rooms, room)
				case s.pkgDir != "." && slices.Contains(largeStdPackages,
					imported): // the nouns need the types, and the linker drops the rest
					faults = append(faults,
						fmt.Sprintf("%s imports %s, which is too much for the agent: every container gets a copy of it", s.name, imported))
				}
			}
		}
	}
	return faults
}

// unusedRules gives the rules that nothing is left for, so that the table does not rot.
func unusedRules(sources []source) []string {
	var faults []string
	anyone := func(found func(s source) bool) bool {
		return slices.ContainsFunc(sources, func(s source) bool { return !s.test && found(s) })
	}
	for _, b := range importRules {
		if !anyone(func(s source) bool { return matches(b.from, s.pkgDir) }) {
			faults = append(faults, fmt.Sprintf("a ban is about %s, which does not exist", b.from))
		}
	}
	for _, o := range owners {
		for _, room := range o.packages {
			if !anyone(func(s source) bool { return matches(room, s.pkgDir) && slices.ContainsFunc(s.imports, o.has) }) {
				faults = append(faults, fmt.Sprintf("%s owns %s and does not import it", room, o.module))
			}
		}
	}
	for _, one := range starters {
		if !anyone(func(s source) bool { return s.pkgDir == one.room && slices.Contains(s.uses, one.name) }) {
			faults = append(faults, fmt.Sprintf("%s may use %s and does not", one.room, one.name))
		}
	}
	return faults
}

// has says whether a package is of the owner's module.
func (o owner) has(imported string) bool {
	return imported == o.module || strings.HasPrefix(imported, o.module+"/")
}

// packageOf gives the folder of a package of ours.
func packageOf(imported string) (string, bool) {
	if imported == module {
		return ".", true
	}
	return strings.CutPrefix(imported, module+"/")
}

// isStandard says whether a package is of the standard library: no other has a first element
// without a dot.
func isStandard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".")
}

// matches says whether a room is meant by a pattern; "./..." means all.
func matches(pattern, room string) bool {
	folder, all := strings.CutSuffix(pattern, "/...")
	return room == folder || (all && (folder == "." || strings.HasPrefix(room, folder+"/")))
}

func matchesAny(patterns []string, room string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, room) })
}
