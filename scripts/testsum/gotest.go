package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
)

// stillRunning is how long a quiet runner is left without a sign of life.
const stillRunning = 20 * time.Second

// event is one line of go test -json (see go doc test2json), or the line that scripts/test adds
// with the runner's status.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64 // seconds
	Status  int
}

// countGo reads events to their end, prints packages as they finish and failures in full, and
// returns the counts.
func countGo(in io.Reader, out io.Writer) (suite, error) {
	counter := goCounter{out: out, packages: map[string]*goPackage{}}
	events, failed := decode(in)
	ticker := time.NewTicker(stillRunning)
	defer ticker.Stop()
	for {
		select {
		case e, ok := <-events:
			if !ok {
				counter.close()
				return counter.suite, <-failed
			}
			counter.take(e)
			ticker.Reset(stillRunning)
		case <-ticker.C:
			counter.printRunning()
		}
	}
}

// decode reads events on a goroutine that ends with the input; then the error channel holds how
// reading ended.
func decode(in io.Reader) (<-chan event, <-chan error) {
	events, failed := make(chan event), make(chan error, 1)
	go func() {
		defer close(events)
		decoder := json.NewDecoder(in)
		for {
			var e event
			if err := decoder.Decode(&e); errors.Is(err, io.EOF) {
				failed <- nil
				return
			} else if err != nil {
				failed <- err
				return
			}
			events <- e
		}
	}()
	return events, failed
}

// goCounter holds the packages whose end has not been seen.
type goCounter struct {
	suite
	out      io.Writer
	packages map[string]*goPackage
	ended    bool // the runner's status came
}

func (c *goCounter) take(e event) {
	switch {
	case e.Action == "exit":
		c.ended = true
		c.endedWith(e.Status, "go test")
	case e.Action == "build-output":
		fmt.Fprint(c.out, e.Output)
	case e.Package == "" || strings.HasPrefix(e.Action, "build-"):
	case e.Test == "":
		c.takePackage(e)
	default:
		c.packageOf(e).take(e, c)
	}
}

func (c *goCounter) packageOf(e event) *goPackage {
	p := c.packages[e.Package]
	if p == nil {
		p = &goPackage{name: e.Package, tests: map[string]*goTest{}}
		c.packages[e.Package] = p
	}
	return p
}

func (c *goCounter) takePackage(e event) {
	p := c.packageOf(e)
	switch e.Action {
	case "output":
		p.output = append(p.output, e.Output)
	case "pass", "fail", "skip":
		p.end(e, c)
		delete(c.packages, e.Package)
	}
}

// close counts what was cut off: without the runner's status the output is not whole.
func (c *goCounter) close() {
	for _, p := range c.packages {
		p.end(event{Action: "fail"}, c)
	}
	if !c.ended {
		c.fail("go test was cut off")
	}
}

func (c *goCounter) printRunning() {
	for _, p := range c.packages {
		for name, test := range p.tests {
			if test.outcome == "" && !test.hasChildren {
				fmt.Fprintf(c.out, "...  %s %s still runs\n", p.name, name)
				return
			}
		}
	}
	fmt.Fprintln(c.out, "...  still building")
}

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

// parentOf finds the nearest test that contains the named one: a subtest's own name may hold
// slashes.
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

// count counts a finished test. Children finish before their parents, so what they came to is
// known.
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

// reasonOf takes the reason of a skip from the test's output: what the testing package did not add
// itself.
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
