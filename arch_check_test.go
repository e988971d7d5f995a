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
	pkgDir  string // its directory, "." for the root
	lines   int
	imports []string
	uses    []string // PACKAGE.NAME, by the package's last element
	test    bool
}

// readSources parses every Go file below a directory, for any system and build tag.
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
		t.Fatalf("found only %d files: wrong directory", len(all))
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
	packages := map[string]string{} // local name to last element of the path
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

// check returns a fault for each violation, in the order of the files.
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
	if pkg, ours := packageOf(imported); ours {
		return checkImportRules(s, pkg)
	}
	if isStandard(imported) {
		return nil
	}
	if s.pkgDir == "." {
		return []string{fmt.Sprintf("%s imports %s: package dray may import only the standard "+
			"library, because every package imports it", s.name, imported)}
	}
	for _, o := range owners {
		if !o.has(imported) {
			continue
		}
		if !matchesAny(o.packages, s.pkgDir) {
			return []string{fmt.Sprintf("%s imports %s, which belongs to %s: only its owner may import "+
				"it, so that it can be replaced in one place", s.name, imported, strings.Join(o.packages,
				", "))}
		}
		return nil
	}
	return []string{fmt.Sprintf("%s imports %s, which has no owner: add one to arch_test.go, and "+
		"its reason to CONTRIBUTING.md", s.name, imported)}
}

func checkImportRules(s source, pkg string) []string {
	var faults []string
	for _, b := range importRules {
		if b.forbids(s.pkgDir, pkg) {
			faults = append(faults, fmt.Sprintf("%s imports %s: %s", s.name, pkg, b.why))
		}
	}
	return faults
}

// forbids reports whether a package must not import another. Below its own directory it may.
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
			func(one processStarter) bool { return one.pkg == s.pkgDir && sameStart(one.name, name) })
		if slices.Contains(s.uses, name) && !allowed {
			faults = append(faults,
				fmt.Sprintf("%s uses %s: only executor/process starts processes, so that each has a "+
					"supervisor and can be killed", s.name, name))
		}
	}
	return faults
}

// sameStart reports whether a use is allowed. Starting a command includes its type.
func sameStart(allowed, name string) bool {
	return allowed == name || (name == "exec.Cmd" && strings.HasPrefix(allowed, "exec.Command"))
}

func checkSize(s source) []string {
	switch {
	case path.Base(s.name) == "main.go" && s.pkgDir == "cmd/dray" && s.lines >= maxMainLines:
		return []string{fmt.Sprintf("%s has %d lines, the maximum is below %d: commands are in "+
			"cmd/dray/command, where they can be tested", s.name, s.lines, maxMainLines)}
	case s.lines >= maxFileLines:
		return []string{fmt.Sprintf("%s has %d lines, the maximum is below %d: split the file", s.name,
			s.lines, maxFileLines)}
	default:
		return nil
	}
}

// checkAgent checks the direct and indirect imports of the agent.
func checkAgent(sources []source) []string {
	var faults []string
	linked := []string{"cmd/dray-agent"}
	for i := 0; i < len(linked); i++ {
		for _, s := range sources {
			if s.pkgDir != linked[i] || s.test {
				continue
			}
			for _, imported := range s.imports {
				pkg, ours := packageOf(imported)
				switch {
				case ours && !slices.Contains(agentPackages, pkg),
					!ours && !isStandard(imported) && !strings.HasPrefix(imported, agentModule+"/"):
					faults = append(faults, fmt.Sprintf("%s imports %s, and the agent links it: "+
						"it runs as root in every container; it may link only the standard library, %s and %s",
						s.name, imported, agentModule, strings.Join(agentPackages, ", ")))
				case ours && !slices.Contains(linked, pkg):
					linked = append(linked, pkg)
				case s.pkgDir != "." && slices.Contains(largeStdPackages,
					imported): // package dray needs their types, and the linker drops the rest
					faults = append(faults,
						fmt.Sprintf("%s imports %s, which is too large for the agent: every container gets a "+
							"copy of it", s.name, imported))
				}
			}
		}
	}
	return faults
}

// unusedRules returns a fault for each rule that applies to nothing.
func unusedRules(sources []source) []string {
	var faults []string
	anyone := func(found func(s source) bool) bool {
		return slices.ContainsFunc(sources, func(s source) bool { return !s.test && found(s) })
	}
	for _, b := range importRules {
		if !anyone(func(s source) bool { return matches(b.from, s.pkgDir) }) {
			faults = append(faults, fmt.Sprintf("an import rule names %s, which does not exist", b.from))
		}
	}
	for _, o := range owners {
		for _, pkg := range o.packages {
			if !anyone(func(s source) bool { return matches(pkg, s.pkgDir) && slices.ContainsFunc(s.imports, o.has) }) {
				faults = append(faults, fmt.Sprintf("%s owns %s and does not import it", pkg, o.module))
			}
		}
	}
	for _, one := range starters {
		if !anyone(func(s source) bool { return s.pkgDir == one.pkg && slices.Contains(s.uses, one.name) }) {
			faults = append(faults, fmt.Sprintf("%s may use %s and does not", one.pkg, one.name))
		}
	}
	return faults
}

// has reports whether a package belongs to the owner's module.
func (o owner) has(imported string) bool {
	return imported == o.module || strings.HasPrefix(imported, o.module+"/")
}

// packageOf returns the directory of a package of this module.
func packageOf(imported string) (string, bool) {
	if imported == module {
		return ".", true
	}
	return strings.CutPrefix(imported, module+"/")
}

// isStandard reports whether a package is in the standard library, in which the first element of an
// import path has no dot.
func isStandard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".")
}

// matches reports whether a pattern matches a package; "./..." matches all.
func matches(pattern, pkg string) bool {
	dir, all := strings.CutSuffix(pattern, "/...")
	return pkg == dir || (all && (dir == "." || strings.HasPrefix(pkg, dir+"/")))
}

func matchesAny(patterns []string, pkg string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, pkg) })
}
