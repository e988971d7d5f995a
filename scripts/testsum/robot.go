package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// robotTest is a <test> of Robot Framework's output.xml.
type robotTest struct {
	Name   string `xml:"name,attr"`
	Status struct {
		Word    string `xml:"status,attr"`
		Message string `xml:",chardata"`
	} `xml:"status"`
}

// countRobotFile counts the tests in an output file. A missing or broken one counts as a failure,
// like a runner that failed.
func countRobotFile(path string, status int, out io.Writer) suite {
	var counts suite
	file, err := os.Open(path)
	if err == nil {
		defer file.Close()
		err = countRobot(file, &counts)
	}
	if err != nil {
		counts.fail("robot's output cannot be read: " + err.Error())
	}
	counts.endedWith(status, "robot")
	fmt.Fprintf(out, "robot: %d passed, %d failed, %d skipped\n", counts.Passed, counts.Failed,
		counts.Skipped)
	return counts
}

func countRobot(in io.Reader, counts *suite) error {
	decoder := xml.NewDecoder(in)
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if start, ok := token.(xml.StartElement); ok && start.Name.Local == "test" {
			var test robotTest
			if err := decoder.DecodeElement(&test, &start); err != nil {
				return err
			}
			test.count(counts)
		}
	}
}

// count counts a test; whatever is neither a pass nor a skip is a failure.
func (t robotTest) count(counts *suite) {
	message, _, _ := strings.Cut(strings.TrimSpace(t.Status.Message), "\n")
	switch t.Status.Word {
	case "PASS":
		counts.pass()
	case "SKIP":
		counts.skip(t.Name, message)
	default:
		counts.fail(t.Name + ": " + message)
	}
}
