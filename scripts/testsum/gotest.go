package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// stillRunning is how long a quiet runner is left without a sign of life.
const stillRunning = 20 * time.Second

// event is one line of go test -json (see go doc test2json), or the line that scripts/test adds with the runner's status.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64 // seconds
	Status  int
}

// countGo reads events to their end, prints packages as they finish and failures in full, and returns the counts.
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

// decode reads events on a goroutine that ends with the input; then the error channel holds how reading ended.
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
