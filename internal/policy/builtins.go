package policy

import (
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

const (
	// maxTexts bounds the shell texts of a call: each can have others, which are parsed twice.
	maxTexts = 200
	// maxParentheses bounds those of a text: the time to parse nested ones grows with their square.
	maxParentheses = 5000
)

var (
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	number       = regexp.MustCompile(`^[0-9]+$`)
)

// assign notes an assignment. A value that is computed is a number.
func (a *analysis) assign(name string, n *syntax.Assign) {
	if n.Index != nil || n.Array != nil {
		a.markOpaque("an array whose subscripts are only known at run time")
	}
	numeric := n.Value != nil && len(n.Value.Parts) == 1
	if numeric {
		switch part := n.Value.Parts[0].(type) {
		case *syntax.Lit:
			numeric = number.MatchString(part.Value)
		case *syntax.ArithmExp:
		default:
			numeric = false
		}
	}
	if numeric {
		a.variable(name)
	} else {
		a.setText(name)
	}
}

// setText notes a variable whose value can be any text.
func (a *analysis) setText(name string) {
	a.variable(name)
	if len(a.texts) <= maxFacts {
		a.texts[strings.TrimRight(name, "+")] = true
	}
}

// expansion notes what an expansion of a variable runs or sets.
func (a *analysis) expansion(n *syntax.ParamExp) {
	if n.Excl || n.Index != nil || n.Slice != nil {
		a.markOpaque("an expansion whose subscript or name is only known at run time")
	}
	if n.Exp == nil || n.Param == nil {
		return
	}
	switch n.Exp.Op {
	case syntax.AssignUnset, syntax.AssignUnsetOrNull:
		a.setText(n.Param.Value)
	case syntax.OtherParamOps:
		a.markOpaque("an expansion that runs commands in a value")
	}
}

// arithmetic notes the variables that an expression uses. bash evaluates their values too, and
// the commands in the subscripts of these.
func (a *analysis) arithmetic(x syntax.ArithmExpr) {
	if x == nil {
		return
	}
	syntax.Walk(x, func(node syntax.Node) bool {
		switch n := node.(type) {
		case *syntax.Lit:
			a.compute(n.Value)
		case *syntax.ParamExp:
			switch {
			case n.Param == nil || n.Length:
			case number.MatchString(n.Param.Value):
				a.compute(dynamic)
			default:
				a.compute(n.Param.Value)
			}
			return false
		case *syntax.CmdSubst, *syntax.SglQuoted, *syntax.DblQuoted:
			a.compute(dynamic)
			return false
		}
		return true
	})
}

// compute notes a value that is used in arithmetic: a number, or the name of a variable, which the
// expression can set.
func (a *analysis) compute(name string) {
	if isDangerous(name) {
		a.variable(name)
	}
	switch {
	case variableName.MatchString(name) && len(a.computed) < maxFacts:
		a.computed[name] = true
	case name == "#" || name == "?" || name == "$" || name == "!":
	case strings.Trim(name, "0123456789abcdefxABCDEFX#") != "" || !startsWithDigit(name):
		a.markOpaque("arithmetic with a value that is only known at run time")
	}
}

func startsWithDigit(s string) bool { return s != "" && s[0] >= '0' && s[0] <= '9' }

// close notes what is known when all commands were read.
func (a *analysis) close() {
	for name := range a.computed {
		if a.texts[name] {
			a.markOpaque("arithmetic with the variable " + name + ", whose value is a text")
		}
	}
}

// moving change the directory of the commands that follow.
var moving = wordSet(`cd pushd popd`)

// assigning are builtins with arguments that are names of variables. A subscript in such a name is
// evaluated, with the commands in it.
var assigning = wordSet(`read unset getopts printf wait test [ export readonly local declare typeset
	set shopt let`)

func (a *analysis) assigned(name string, args []string) {
	switch name {
	case "let", "shopt":
		a.markOpaque(name + " can change what later commands do")
	case "set":
		a.set(args)
	case "test", "[":
		a.test(args)
	case "printf", "wait":
		for i, arg := range args {
			switch {
			case arg == "--":
				return
			case arg == "-v" || arg == "-p":
				if i+1 < len(args) {
					a.name(args[i+1])
				}
			case strings.HasPrefix(arg, "-v"), strings.HasPrefix(arg, "-p"):
				a.name(arg[2:])
			case name == "printf" && arg == dynamic && i == 0:
				a.markOpaque("printf has an option that is only known at run time")
			}
			if name == "printf" && !strings.HasPrefix(arg, "-v") {
				return
			}
		}
	default:
		options := true
		for _, arg := range args {
			variable, _, _ := strings.Cut(arg, "=")
			if options = options && strings.HasPrefix(arg, "-"); !options {
				a.name(variable)
			} else if strings.Contains(arg, "[") {
				a.name(arg)
			} else if name == "declare" || name == "typeset" || name == "local" {
				a.markOpaque(name + " has options that change how values are read")
			}
		}
	}
}

// plainOptions are the options of set that do not change how commands are read. With keyword
// arguments are variables, and with history a word can stand for an earlier command.
var plainOptions = wordSet(`allexport braceexpand emacs errexit errtrace functrace hashall
	ignoreeof monitor noclobber noexec noglob nolog notify nounset physical pipefail verbose vi
	xtrace`)

func (a *analysis) set(args []string) {
	for i, arg := range args {
		switch {
		case arg == "--" || arg == "-":
			return
		case len(arg) > 1 && (arg[0] == '-' || arg[0] == '+') &&
			strings.Trim(arg[1:], "abefhmnouvxBCEPT") == "":
		case i > 0 && strings.HasSuffix(args[i-1], "o") && plainOptions[arg]:
		default:
			a.markOpaque("set has an option that changes what later commands do")
			return
		}
	}
}

func (a *analysis) name(s string) {
	if !variableName.MatchString(s) && !number.MatchString(s) {
		a.markOpaque("the name of a variable is only known at run time")
		return
	}
	a.setText(s)
}

// testOperators are the operators of test between two words.
var testOperators = wordSet(`= == != < > -eq -ne -lt -le -gt -ge -nt -ot -ef -a -o ]`)

// test notes names of variables in the arguments of test.
func (a *analysis) test(args []string) {
	for i, arg := range args {
		next := ""
		if i+1 < len(args) {
			next = args[i+1]
		}
		switch {
		case (arg == "-v" || arg == "-R") && !variableName.MatchString(next):
			a.markOpaque("the name of a variable is only known at run time")
		case arg == dynamic && next != "" && !testOperators[next]:
			a.markOpaque("test has an operator that is only known at run time")
		}
	}
}

func (a *analysis) trap(args []string, depth int) {
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	switch {
	case len(args) == 0 || args[0] == "-" || args[0] == "-l" || args[0] == "-p":
	case args[0] == dynamic:
		a.markOpaque("a trap whose command is only known at run time")
	default:
		a.text("", args[0], depth)
	}
}

// plainGit are subcommands of git that run nothing but what the repository's configuration and
// hooks name.
var plainGit = wordSet(`status log show diff add ls-files ls-tree rev-parse rev-list branch describe
	blame shortlog cat-file for-each-ref symbolic-ref name-rev merge-base show-ref diff-tree
	diff-files diff-index check-ignore count-objects version rm mv reset restore clean stash reflog
	init`)

// plainGitOptions are options before the subcommand that neither run anything nor have a value, nor
// choose another configuration.
var plainGitOptions = wordSet(`--no-pager -P --literal-pathspecs --glob-pathspecs
	--noglob-pathspecs --icase-pathspecs --no-optional-locks --no-replace-objects --no-lazy-fetch
	--no-advice -h -v --version`)

// gitDialogs are subcommands with options that start an editor, or a dialog that can.
var gitDialogs = wordSet(`add reset restore stash`)

// git notes subcommands that can run programs: aliases do, and those that dray does not know.
func (a *analysis) git(args []string) {
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		switch {
		case args[0] == "-C" && len(args) > 1: // as cd does
			args = args[1:]
		case !plainGitOptions[args[0]]:
			a.markOpaque("git has an option before its subcommand that dray does not know")
			return
		}
		args = args[1:]
	}
	if len(args) == 0 {
		return
	}
	if !plainGit[args[0]] {
		a.markOpaque("git has a subcommand that can run programs")
	}
	for _, arg := range args[1:] {
		if strings.Contains(arg, "%G") {
			a.markOpaque("git verifies signatures")
		}
		if gitDialogs[args[0]] && startsDialog(arg) {
			a.markOpaque("git starts a dialog or an editor")
		}
	}
}

func startsDialog(arg string) bool {
	return slices.ContainsFunc(
		[]string{"-e", "-i", "-p", "--edit", "--interactive", "--patch"},
		func(option string) bool { return hasOption(arg, option) })
}
