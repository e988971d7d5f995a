package python

import (
	"errors"
	"regexp"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray"
)

// The limits of values (PY-05). The worker replaces what is deeper with a mark, and fails the
// request for a value that exceeds another limit. A reply that exceeds one is a violation.
const (
	MaxDepth      = 8       // nested arrays and objects
	MaxItems      = 1024    // of one array
	MaxProperties = 1024    // of one object
	MaxValue      = 4 << 20 // bytes of JSON
)

// The limits of texts in bytes.
const (
	maxMessage   = 64 << 10
	maxTraceback = 512 << 10
	maxPath      = 4096
)

// failureCodes are the codes that a worker may use.
var failureCodes = []string{
	"", CodeAccess, CodeNoSystem, CodePayloadTooLarge, CodeInstallUnsupported,
	string(dray.CodeInvalidInput), string(dray.CodeNotFound), string(dray.CodePathInvalid),
	string(dray.CodeLimitExceeded), string(dray.CodeBadCwd), string(dray.CodeDenied),
}

// Codes of failures that only Python has. CodeAccess and CodeNoSystem are those of errors of import
// dray that the code did not catch: a permission that the session lacks, and a function that the
// daemon does not offer. CodeAccess is also that of a read-only run that has changed files.
const (
	CodeAccess             = "EACCES"
	CodeNoSystem           = "ENOSYS"
	CodePayloadTooLarge    = "ERR_PAYLOAD_TOO_LARGE"
	CodeInstallUnsupported = "ERR_PYTHON_PACKAGE_INSTALL_UNSUPPORTED"
)

// decode reads one JSON object. Unknown and repeated members and invalid UTF-8 are errors.
func decode(body []byte, v any) error {
	return json.Unmarshal(body, v, json.RejectUnknownMembers(true))
}

var versionPattern = regexp.MustCompile(`^[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}[0-9a-z+.]{0,16}$`)

// checkHello decodes and checks the hello of a worker.
func checkHello(body []byte) (Hello, error) {
	var h Hello
	if err := decode(body, &h); err != nil {
		return Hello{}, protocolError("its hello is wrong: %s", describe(err))
	}
	switch {
	case !versionPattern.MatchString(h.Python):
		return Hello{}, protocolError("its hello has a wrong version")
	case !isPath(h.Executable), !isPath(h.Prefix):
		return Hello{}, protocolError("its hello has a wrong path")
	}
	return h, nil
}

// isPath reports whether a text is empty or an absolute path without control characters.
func isPath(p string) bool {
	printable := !slices.ContainsFunc([]rune(p), func(r rune) bool { return r < ' ' || r == 0x7f })
	return len(p) <= maxPath && printable && (p == "" || p[0] == '/')
}

// describe returns the text of a JSON error without any text of the worker.
func describe(err error) string {
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return "invalid JSON at byte " + strconv.FormatInt(e.ByteOffset, 10)
	}
	if e, ok := errors.AsType[*json.SemanticError](err); ok {
		if errors.Is(err, json.ErrUnknownName) {
			return "unknown member at byte " + strconv.FormatInt(e.ByteOffset, 10)
		}
		return "wrong type at byte " + strconv.FormatInt(e.ByteOffset, 10)
	}
	return "invalid JSON"
}

// checkReply decodes and checks the reply to a request that asked for the given globals.
func checkReply(body []byte, globals []string) (Reply, error) {
	if err := checkShape(body); err != nil {
		return Reply{}, err
	}
	var r Reply
	if err := decode(body, &r); err != nil {
		return Reply{}, protocolError("its reply is wrong: %s", describe(err))
	}
	for _, check := range []func() error{
		r.checkEnd, r.checkUsage, func() error { return r.checkNames(globals) }, r.checkValues,
	} {
		if err := check(); err != nil {
			return Reply{}, err
		}
	}
	return r, nil
}

func (r *Reply) checkEnd() error {
	switch {
	case r.Code < 0 || r.Code > 255:
		return protocolError("its reply has the code %d", r.Code)
	case r.OK != (r.Code == 0), r.OK && r.Error != nil:
		return protocolError("its reply has the code %d with ok %t", r.Code, r.OK)
	case r.Error == nil:
		return nil
	case !slices.Contains(failureCodes, r.Error.Code):
		return protocolError("its reply has an unknown error code")
	case len(r.Error.Message) > maxMessage, len(r.Error.Traceback) > maxTraceback:
		return protocolError("its reply has an error that is too long")
	}
	return nil
}

func (r *Reply) checkUsage() error {
	u := r.Usage
	for _, n := range []float64{u.WallMS, u.CPUMS, float64(u.MemoryBytes)} {
		if n < 0 || n > 1<<53 {
			return protocolError("its reply has an impossible usage")
		}
	}
	return nil
}

// checkNames checks that the reply has each requested global at most once, and no other.
func (r *Reply) checkNames(globals []string) error {
	requested := map[string]bool{}
	for _, name := range globals {
		requested[name] = true
	}
	for name := range r.Globals {
		if !requested[name] {
			return protocolError("its reply has a global that was not requested")
		}
		delete(requested, name)
	}
	for _, name := range r.Missing {
		if !requested[name] {
			return protocolError("its reply lists a missing global that was not requested")
		}
		delete(requested, name)
	}
	return nil
}

// checkValues checks the value and all globals. The globals together may have MaxValue bytes.
func (r *Reply) checkValues() error {
	if r.Value != nil {
		if err := checkValue(r.Value); err != nil {
			return err
		}
	}
	total := 0
	for _, v := range r.Globals {
		total += len(v)
		if total > MaxValue {
			return protocolError("its globals have more than %d bytes", MaxValue)
		}
		if err := checkValue(v); err != nil {
			return err
		}
	}
	return nil
}
