package policy

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

// analysis collects what commands do. It errs on one side: what it cannot see makes the call
// opaque.
type analysis struct {
	programs, words, opaque, env, dangerous, reads, writes map[string]bool
	// computed are the variables whose values are used in arithmetic, and texts those that can have
	// values other than numbers.
	computed, texts map[string]bool
	parsed          int // texts that were parsed
	// moves reports whether relative paths are not relative to the working directory of the call.
	moves bool
}

func newAnalysis() *analysis {
	return &analysis{
		programs: map[string]bool{}, words: map[string]bool{}, opaque: map[string]bool{},
		env: map[string]bool{}, dangerous: map[string]bool{}, reads: map[string]bool{},
		writes: map[string]bool{}, computed: map[string]bool{}, texts: map[string]bool{},
	}
}

// markOpaque notes why programs can start that the analysis does not see.
func (a *analysis) markOpaque(reason string) {
	if len(a.opaque) < maxFacts {
		a.opaque[reason] = true
	}
}

// dynamic stands for a word whose value is only known at run time. No word contains NUL.
const dynamic = "\x00"

// text analyses shell text as every shell of that name could read it. What is one command to bash
// can be two to a POSIX shell, as in echo &>f rm, so text that only bash understands is opaque for
// every other shell.
func (a *analysis) text(shell, text string, depth int) {
	if len(text) > maxCommand {
		a.markOpaque("the shell text is too long")
		return
	}
	if a.parsed++; a.parsed > maxTexts || strings.Count(text, "(") > maxParentheses {
		a.markOpaque("the command has too many shell texts in each other")
		return
	}
	a.markMisread(text)
	for _, lang := range []syntax.LangVariant{syntax.LangBash, syntax.LangPOSIX} {
		file, err := syntax.NewParser(syntax.Variant(lang)).Parse(strings.NewReader(text), "")
		if err == nil {
			a.file(file, text, depth)
		} else if lang == syntax.LangBash || shell != "bash" {
			a.markOpaque("the shell text does not parse")
		}
	}
}

func (a *analysis) file(file *syntax.File, text string, depth int) {
	var expansions []bool // of each open node, whether it belongs to the expansion of a variable
	syntax.Walk(file, func(node syntax.Node) bool {
		if node == nil {
			expansions = expansions[:len(expansions)-1]
			return true
		}
		expanding := len(expansions) > 0 && expansions[len(expansions)-1]
		switch n := node.(type) {
		case *syntax.CallExpr:
			words := make([]string, 0, len(n.Args))
			for _, w := range n.Args {
				words = append(words, literal(w))
			}
			a.argv(words, depth, false)
		case *syntax.CmdSubst:
			expanding = false
		case *syntax.SglQuoted:
			if expanding { // in double quotes and here-documents they quote nothing
				a.markOpaque("an expansion has single quotes")
			}
		case *syntax.ParamExp:
			expanding = true
			a.expansion(n)
		case *syntax.Redirect:
			a.redirect(n)
			a.markHereDocument(text, n)
		default:
			a.assignments(n)
		}
		expansions = append(expansions, expanding)
		return true
	})
}

// assignments notes what a node sets and computes.
func (a *analysis) assignments(node syntax.Node) {
	switch n := node.(type) {
	case *syntax.Assign:
		if n.Name != nil {
			a.assign(n.Name.Value, n)
		}
	case *syntax.WordIter:
		a.setText(n.Name.Value)
	case *syntax.CoprocClause:
		if n.Name != nil {
			a.name(literal(n.Name))
		}
	case *syntax.ArithmExp:
		a.arithmetic(n.X)
	case *syntax.ArithmCmd:
		a.arithmetic(n.X)
	case *syntax.CStyleLoop:
		a.arithmetic(n.Init)
		a.arithmetic(n.Cond)
		a.arithmetic(n.Post)
	case *syntax.TestClause:
		a.markOpaque("[[ can compute with values that are only known at run time")
	case *syntax.LetClause:
		a.markOpaque("let computes with values that are only known at run time")
	case *syntax.DeclClause:
		for _, assign := range n.Args {
			if assign.Name == nil {
				a.markOpaque("a declaration whose names are only known at run time")
			}
		}
	case *syntax.FuncDecl:
		if n.Name != nil {
			a.programs[n.Name.Value] = true
		}
	}
}

func (a *analysis) redirect(r *syntax.Redirect) {
	if r.N != nil && strings.HasPrefix(r.N.Value, "{") {
		a.name(strings.Trim(r.N.Value, "{}"))
	}
	into := a.writes
	switch r.Op {
	case syntax.RdrIn:
		into = a.reads
	case syntax.Hdoc, syntax.DashHdoc, syntax.WordHdoc:
		return
	}
	target := dynamic
	if r.Word != nil {
		target = literal(r.Word)
	}
	duplicates := r.Op == syntax.DplIn || r.Op == syntax.DplOut
	switch {
	case target == dynamic:
		a.markOpaque("a redirection whose path is only known at run time")
	case strings.HasPrefix(target, "/dev/tcp/"), strings.HasPrefix(target, "/dev/udp/"):
		a.markOpaque("a redirection that bash connects to another host")
		into[target] = true
	case duplicates && strings.Trim(target, "0123456789-") == "":
	case target == "/dev/null" || target == "/dev/stdout" || target == "/dev/stderr":
	case len(into) <= maxFacts:
		into[target] = true
	}
}

// literal returns the value of a word, or dynamic.
func literal(w *syntax.Word) string {
	known := true
	for i, part := range w.Parts {
		if lit, ok := part.(*syntax.Lit); ok &&
			(hasGlob(lit.Value) && w.Lit() != "[" || i == 0 && strings.HasPrefix(lit.Value, "~")) {
			known = false
		}
	}
	syntax.Walk(w, func(node syntax.Node) bool {
		switch n := node.(type) {
		case nil, *syntax.Word, *syntax.Lit:
		case *syntax.SglQuoted:
			known = known && (!n.Dollar || !otherEscape.MatchString(n.Value))
		case *syntax.DblQuoted:
			known = known && !n.Dollar // bash translates it
		default:
			known = false
		}
		return known
	})
	split := *w // SplitBraces changes the word
	if !known || w.Lit() != "{}" && syntax.SplitBraces(&split) {
		return dynamic
	}
	// without expansions, braces and patterns a word is at most one field
	fields, err := expand.Fields(&expand.Config{}, w) // nil is one that all calls share
	value := strings.Join(fields, " ")
	if err != nil || len(fields) > 1 || strings.Contains(value, dynamic) {
		return dynamic
	}
	return value
}

// hasGlob reports whether a literal has a pattern outside of quotes.
func hasGlob(s string) bool {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '*', '?', '[':
			return true
		}
	}
	return false
}

// argv analyses a command. more says that arguments follow that are only known at run time.
func (a *analysis) argv(words []string, depth int, more bool) {
	a.addWords(words, more)
	switch {
	case len(words) == 0:
		if more {
			a.markOpaque("the program comes from an input")
		}
		return
	case depth > maxNesting || len(words) > maxCommand || len(a.programs) > maxFacts:
		a.markOpaque("the command is nested too deeply, or too long")
		return
	case words[0] == dynamic:
		a.markOpaque("a program whose name is only known at run time")
		return
	}
	program := path.Clean(strings.TrimRight(words[0], "\r"))
	name := path.Base(program)
	a.programs[name] = true
	// .. after a symlink leads elsewhere
	if strings.Contains(words[0], "/") &&
		(!systemDirs[path.Dir(program)] || strings.Contains(words[0], "..")) {
		a.markOpaque("it runs a file outside of the directories of the system")
	}
	a.moves = a.moves || moving[name]
	args := words[1:]
	kind := strings.TrimRight(name, "0123456789.-")
	wrapper, wraps := wrappers[name]
	switch {
	case opaquePrograms[name] || opaquePrograms[kind]:
		a.markOpaque(name + " runs what its arguments, its input or files say")
	case shells[name]:
		a.shell(name, args, depth+1)
	case name == "find":
		a.find(args, depth+1, more)
	case name == "trap":
		a.trap(args, depth+1)
	case name == "jobs" && len(args) > 0 && args[0] != "-l":
		a.argv(slices.DeleteFunc(args, func(s string) bool { return s == "-x" }), depth+1, more)
	case name == "git":
		a.git(args)
		a.options(name, args, more)
	case assigning[name]:
		a.assigned(name, args)
	case wraps:
		a.wrapped(name, wrapper, args, depth+1, more || name == "xargs")
	case runningOptions[name] != nil:
		a.options(name, args, more)
	case !plainPrograms[name]:
		a.markOpaque("dray does not know what " + name + " runs")
	}
	if name == "eval" && len(args) > 0 {
		a.text("", strings.Join(args, " "), depth+1)
	}
}

// addWords notes the words of a command. A word that is only known at run time is ?.
func (a *analysis) addWords(words []string, more bool) {
	if more {
		a.words["?"] = true
	}
	for _, w := range words {
		if len(a.words) >= maxFacts {
			a.markOpaque("the command has too many words")
			return
		}
		a.words[strings.ReplaceAll(w, dynamic, "?")] = true
	}
}

// shell analyses the text of sh -c. A shell without -c reads a file or its stdin.
func (a *analysis) shell(name string, args []string, depth int) {
	const plainOptions = "abefhilmnpuvxBCEP" // not k, with which arguments are variables
	hasText := false
	for i, arg := range args {
		if len(arg) > 1 && arg[0] == '-' && strings.Trim(arg[1:], plainOptions+"c") == "" {
			hasText = hasText || strings.Contains(arg, "c")
			continue
		}
		if hasText && (arg == "--" || arg == "-") && i+1 < len(args) {
			arg = args[i+1]
		}
		if hasText && arg != dynamic && !strings.HasPrefix(arg, "-") && !strings.HasPrefix(arg, "+") {
			a.text(name, arg, depth)
			return
		}
		break
	}
	a.markOpaque(name + " runs a text that is only known at run time")
}

// find analyses the commands of find.
func (a *analysis) find(args []string, depth int, more bool) {
	if more {
		a.markOpaque("find gets its expression from an input")
	}
	for i, arg := range args {
		switch arg {
		case dynamic:
			a.markOpaque("find has arguments that are only known at run time")
		case "-delete":
			a.programs["rm"] = true
		case "-fprint", "-fprint0", "-fprintf", "-fls":
			if i+1 < len(args) && args[i+1] != dynamic {
				a.writes[args[i+1]] = true
			}
		case "-exec", "-execdir", "-ok", "-okdir":
			a.moves = a.moves || strings.HasSuffix(arg, "dir")
			a.argv(foundCommand(args[i+1:]), depth, true)
		}
	}
}

// foundCommand returns the command at the beginning of the arguments of -exec. What has {} is only
// known at run time.
func foundCommand(args []string) []string {
	var command []string
	for i, arg := range args {
		if arg == ";" || arg == "+" && i > 0 && args[i-1] == "{}" {
			break
		}
		if strings.Contains(arg, "{}") {
			arg = dynamic
		}
		command = append(command, arg)
	}
	return command
}

// wrapped analyses the command that follows the options of a wrapper.
func (a *analysis) wrapped(name string, w wrapper, args []string, depth int, more bool) {
	i := 0
	for ; i < len(args) && strings.HasPrefix(args[i], "-"); i++ {
		if args[i] == "--" {
			i++
			break
		}
		if args[i] == "-" && name == "env" {
			continue // the same as -i
		}
		n, known := w.option(args[i])
		a.moves = a.moves || strings.ContainsAny(args[i], "CD")
		if name == "command" && strings.ContainsAny(args[i], "vV") {
			return // it only looks the program up
		}
		if !known || args[i] == "-" {
			a.markOpaque(name + " has an option that dray does not know")
			return
		}
		i += n
	}
	for ; i < len(args) && name != "xargs" && strings.Contains(args[i], "="); i++ {
		variable, _, _ := strings.Cut(args[i], "=")
		a.variable(variable)
	}
	i += w.skip
	if i < len(args) {
		a.argv(args[i:], depth, more)
	} else if more && name != "xargs" {
		a.markOpaque("the program comes from an input")
	}
}

// option returns how many words follow an option, and whether the option is known.
func (w wrapper) option(arg string) (values int, known bool) {
	for j, letter := range arg[1:] {
		switch {
		case strings.ContainsRune(w.values, letter):
			if j == len(arg)-2 {
				return 1, true
			}
			return 0, true
		case !strings.ContainsRune(w.flags, letter):
			return 0, false
		}
	}
	return 0, true
}

// options notes options with which a program runs others.
func (a *analysis) options(name string, args []string, more bool) {
	list, ok := runningOptions[name]
	if !ok {
		return
	}
	if more {
		a.markOpaque(name + " gets arguments from an input")
	}
	for i, arg := range args {
		if arg == dynamic {
			a.markOpaque(name + " has arguments that are only known at run time")
		}
		if slices.ContainsFunc(list, func(option string) bool { return hasOption(arg, option) }) ||
			name == "tar" && i == 0 && strings.ContainsAny(arg, "IFM") && arg[0] != '-' ||
			name == "go" && strings.Contains(arg, "extld") {
			a.markOpaque(name + " has an option that can run programs")
		}
		if name == "tar" && strings.Contains(arg, ":") {
			a.markOpaque("tar reads or writes an archive of another host")
		}
	}
}

// hasOption reports whether an argument has an option: also abbreviated, and among other letters.
func hasOption(arg, option string) bool {
	if strings.HasPrefix(arg, option) {
		return true
	}
	name, _, _ := strings.Cut(arg, "=")
	switch {
	case strings.HasPrefix(arg, "--"):
		return len(name) > 2 && strings.HasPrefix(option, name)
	case len(option) == 2 && option[0] == '-' && strings.HasPrefix(arg, "-"):
		return strings.Contains(arg, option[1:])
	}
	return false
}

// variable notes a variable that the call sets.
func (a *analysis) variable(name string) {
	if len(a.env) > maxFacts {
		a.markOpaque("it sets too many variables")
		return
	}
	name = strings.TrimRight(name, "+")
	a.env[name] = true
	if isDangerous(name) {
		a.dangerous[name] = true
		a.markOpaque("variable " + name + " can change what runs")
	}
}
