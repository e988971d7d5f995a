// Testsum turns what the test runners print into progress, counts and one closing line.
//
//	go test -json ... | testsum go SUITE RESULTS       counts Go tests
//	testsum robot SUITE RESULTS OUTPUT_XML STATUS      counts Robot Framework's tests
//	testsum failed SUITE RESULTS                       notes a check that has no tests of its own and failed
//	testsum total RESULTS                              prints the closing line; status 1 unless all is well
//
// It counts what ran: a test with subtests is counted as its subtests, unless it failed by itself;
// a package or a runner that failed without a failed test counts as one failure; so does a test
// that was skipped because something is missing that scripts/setup provides.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
)

var errUsage = errors.New("usage: testsum go|robot|failed|total ..., see its package documentation")

func main() {
	err := run(os.Args[1:], os.Stdin, os.Stdout)
	if err == nil {
		return
	}
	// that one has been printed, and nothing may follow the closing line
	if !errors.Is(err, errNotGreen) {
		fmt.Fprintln(os.Stderr, "testsum:", err)
	}
	os.Exit(1)
}

func run(args []string, in io.Reader, out io.Writer) error {
	if len(args) == 0 {
		return errUsage
	}
	switch command, args := args[0], args[1:]; {
	case command == "go" && len(args) == 2:
		return runGo(args[0], args[1], in, out)
	case command == "robot" && len(args) == 4:
		return runRobot(args[0], args[1], args[2], args[3], out)
	case command == "failed" && len(args) == 2:
		return appendSuite(args[1], suite{Name: args[0], Failed: 1, Failures: []string{args[0]}})
	case command == "total" && len(args) == 1:
		return runTotal(args[0], out)
	}
	return errUsage
}

func runGo(name, results string, in io.Reader, out io.Writer) error {
	counts, err := countGo(in, out)
	if err != nil {
		return fmt.Errorf("read the output of go test: %w", err)
	}
	counts.Name = name
	return appendSuite(results, counts)
}

func runRobot(name, results, output, status string, out io.Writer) error {
	code, err := strconv.Atoi(status)
	if err != nil {
		return fmt.Errorf("read the status of robot: %w", err)
	}
	counts := countRobotFile(output, code, out)
	counts.Name = name
	return appendSuite(results, counts)
}

func runTotal(results string, out io.Writer) error {
	suites, err := readSuites(results)
	if err != nil {
		return err
	}
	return printTotal(suites, out)
}
