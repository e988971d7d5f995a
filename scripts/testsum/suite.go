package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
)

// suite is what one runner's tests came to.
type suite struct {
	Name     string   `json:"name"`
	Passed   int      `json:"passed"`
	Failed   int      `json:"failed"`
	Skipped  int      `json:"skipped"`
	Failures []string `json:"failures,omitempty"`
	Skips    []string `json:"skips,omitempty"` // test and reason
}

var (
	// setupProvides matches the reasons of skips that the set-up leaves no room for.
	setupProvides = regexp.MustCompile(`(?i)\b(engine|docker|dockerd|devcontainer|image|images|mmdebstrap|robot)\b`)
	// machineGap matches the reasons of skips that no set-up can take away: what the machine or the
	// user's rights do not give.
	machineGap = regexp.MustCompile(`\bgap: `)
)

func (s *suite) pass() { s.Passed++ }

func (s *suite) fail(test string) {
	s.Failed++
	s.Failures = append(s.Failures, test)
}

// skip counts a skipped test, as failed where the set-up should have made it possible.
func (s *suite) skip(test, reason string) {
	if setupProvides.MatchString(reason) && !machineGap.MatchString(reason) {
		s.fail(test + " was skipped, though scripts/setup provides what it wants: " + reason)
		return
	}
	s.Skipped++
	s.Skips = append(s.Skips, test+": "+reason)
}

// endedWith makes a runner that failed without a failed test count as one failure.
func (s *suite) endedWith(status int, runner string) {
	if status != 0 && s.Failed == 0 {
		s.fail(fmt.Sprintf("%s ended with status %d", runner, status))
	}
}

// appendSuite adds a suite's counts to the results file, one JSON value a line.
func appendSuite(path string, s suite) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("note the counts: %w", err)
	}
	err = json.NewEncoder(file).Encode(s)
	return errors.Join(err, file.Close())
}

func readSuites(path string) ([]suite, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the counts: %w", err)
	}
	defer file.Close()
	var suites []suite
	decoder := json.NewDecoder(file)
	for decoder.More() {
		var s suite
		if err := decoder.Decode(&s); err != nil {
			return nil, fmt.Errorf("read the counts: %w", err)
		}
		suites = append(suites, s)
	}
	return suites, nil
}

// errNotGreen says that a test failed or that none ran.
var errNotGreen = errors.New("not every test passed")

// printTotal prints what failed, what was skipped and why, and as the last line the sum. Nothing
// run is a failure too.
func printTotal(suites []suite, out io.Writer) error {
	var sum suite
	fmt.Fprintln(out)
	for _, s := range suites {
		fmt.Fprintf(out, "%-10s %5d passed %5d failed %5d skipped\n", s.Name, s.Passed, s.Failed,
			s.Skipped)
		sum.Passed, sum.Failed, sum.Skipped = sum.Passed+s.Passed, sum.Failed+s.Failed, sum.Skipped+s.Skipped
		sum.Failures, sum.Skips = append(sum.Failures, s.Failures...), append(sum.Skips, s.Skips...)
	}
	printList(out, "skipped:", sum.Skips)
	printList(out, "failed:", sum.Failures)
	fmt.Fprintf(out, "\n%d passed, %d failed, %d skipped\n", sum.Passed, sum.Failed, sum.Skipped)
	if sum.Failed > 0 || sum.Passed == 0 {
		return errNotGreen
	}
	return nil
}

func printList(out io.Writer, title string, items []string) {
	if len(items) > 0 {
		fmt.Fprintf(out, "\n%s\n  %s\n", title, strings.Join(items, "\n  "))
	}
}
