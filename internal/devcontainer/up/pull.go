package up

import (
	"strings"

	"github.com/dray-dev/dray/internal/lexical"
)

// pullLog is what the log says about pulls of images. The CLI repeats a failed pull four times and
// then prints everything that it had tried.
type pullLog struct {
	image   string // of the last pull; with compose 2 "of service NAME"
	reason  string // of its failure
	compose bool   // compose pulls it
}

// start notes a pull by the engine's CLI, and reports whether it is the first of its image.
func (p *pullLog) start(image string) bool {
	if p.image == image {
		return false
	}
	*p = pullLog{image: image}
	return true
}

// Lines of compose 1.29 and compose 2.
var (
	composePull  = lexical.LazyRegexp(`^Pulling \S+ \((.+)\)\.\.\.$`)
	composeError = lexical.LazyRegexp(`^(\S+) Error (.+)$`)
)

// output notes a line that a pull may have printed.
func (p *pullLog) output(line string) {
	if m := composePull().FindStringSubmatch(line); m != nil {
		*p = pullLog{image: m[1], compose: true}
	} else if m := composeError().FindStringSubmatch(line); m != nil {
		*p = pullLog{image: "of service " + m[1], reason: m[2], compose: true}
	} else if strings.HasPrefix(line, "Status: ") { // it succeeded
		*p = pullLog{}
	} else if reason, ok := engineError(line); ok && p.image != "" {
		p.reason = reason
	} else if p.compose && p.reason == "" {
		p.reason = line
	}
}

// engineError returns the message of docker or podman.
func engineError(line string) (string, bool) {
	reason, ok := strings.CutPrefix(line, "Error response from daemon: ")
	if !ok {
		reason, ok = strings.CutPrefix(line, "Error: ")
	}
	return reason, ok
}

// failure returns the error message of an `up` that a failed pull ended, and what to do about it.
// It returns nothing if the CLI's message is of another failure.
func (p *pullLog) failure(message string) (text, fix string) {
	message = shortenCommand(lexical.PlainLine(message, maxMessage))
	command, _ := strings.CutPrefix(message, "Command failed: ")
	engine, command, _ := strings.Cut(command, " ")
	// a long command line of compose is cut before its "up"
	if !isEngine(engine) || p.reason == "" || command != "pull" && !p.compose {
		return "", ""
	}
	return "could not pull the image " + p.image + ": " + p.reason,
		"check the name of the image, the network and `docker login`, then "
}
