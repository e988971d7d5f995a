package main

import (
	"fmt"
	"regexp"
	"strings"
)

// goPackage is a package whose tests run.
type goPackage struct {
	name   string
	tests  map[string]*goTest
	output []string // outside any test
	counts suite
}

// goTest is a test or subtest. Its output is kept until it is known to be of no interest.
type goTest struct {
	outcome     string // pass, fail, skip; empty while it runs
	hasChildren bool
	childFailed bool
	output      []string
}

func (p *goPackage) take(e event, c *goCounter) {
	test := p.tests[e.Test]
	if test == nil {
		test = &goTest{}
		p.tests[e.Test] = test
		if parent := p.parentOf(e.Test); parent != nil {
			parent.hasChildren = true
		}
	}
	switch e.Action {
	case "output":
		test.output = append(test.output, e.Output)
	case "pass", "fail", "skip":
		test.outcome = e.Action
		p.count(e.Test, test, c)
		test.output = nil
	}
}

// parentOf finds the nearest test that contains the named one: a subtest's own name may hold slashes.
func (p *goPackage) parentOf(name string) *goTest {
	for {
		slash := strings.LastIndexByte(name, '/')
		if slash < 0 {
			return nil
		}
		name = name[:slash]
		if parent := p.tests[name]; parent != nil {
			return parent
		}
	}
}

// count counts a finished test. Children finish before their parents, so what they came to is known.
func (p *goPackage) count(name string, test *goTest, c *goCounter) {
	switch {
	case test.outcome == "fail":
		if parent := p.parentOf(name); parent != nil {
			parent.childFailed = true
		}
		p.printOutput(name, test.output, c)
		if !test.childFailed {
			p.counts.fail(p.name + " " + name)
		}
	case test.hasChildren:
	case test.outcome == "skip":
		p.counts.skip(p.name+" "+name, reasonOf(test.output))
	default:
		p.counts.pass()
	}
}

func (p *goPackage) printOutput(name string, output []string, c *goCounter) {
	fmt.Fprintf(c.out, "\n--- %s %s\n%s\n", p.name, name, strings.Join(output, ""))
}

// end counts what the package's end reveals, prints its line, and adds its counts to the suite's.
func (p *goPackage) end(e event, c *goCounter) {
	for name, test := range p.tests {
		if test.outcome == "" && !test.hasChildren {
			p.printOutput(name, test.output, c)
			p.counts.fail(p.name + " " + name + " did not finish")
		}
	}
	if e.Action == "fail" && p.counts.Failed == 0 {
		p.printOutput("", p.output, c)
		p.counts.fail(p.name)
	}
	p.printEnd(e, c)
	c.Passed += p.counts.Passed
	c.Failed += p.counts.Failed
	c.Skipped += p.counts.Skipped
	c.Failures = append(c.Failures, p.counts.Failures...)
	c.Skips = append(c.Skips, p.counts.Skips...)
}

// printEnd prints the package's line; one without tests is not worth one.
func (p *goPackage) printEnd(e event, c *goCounter) {
	word := "ok  "
	if p.counts.Failed > 0 {
		word = "FAIL"
	}
	if p.counts.Passed+p.counts.Failed+p.counts.Skipped > 0 {
		fmt.Fprintf(c.out, "%s %s: %d passed, %d failed, %d skipped (%.1f s)\n",
			word, p.name, p.counts.Passed, p.counts.Failed, p.counts.Skipped, e.Elapsed)
	}
}

// placeAlone matches the place of a skip behind which no reason stands.
var placeAlone = regexp.MustCompile(`^\S+\.go:\d+:$`)

// reasonOf takes the reason of a skip from the test's output: what the testing package did not add itself.
func reasonOf(output []string) string {
	var reason []string
	for _, line := range output {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
			reason = append(reason, line)
		}
	}
	said := strings.Join(reason, " ")
	if said == "" || placeAlone.MatchString(said) {
		return strings.TrimSpace(said + " no reason given")
	}
	return said
}
