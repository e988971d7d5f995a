package pathmapper

import (
	"fmt"

	"github.com/dray-dev/dray"
)

// These limits bound the report of a document from a container, which is stored in the audit log.
// Further paths are mapped and counted, but not listed. Paths and errors each have these limits.
const (
	// maxListed is the maximum number of entries, maxListedBytes that of their bytes together.
	maxListed      = 10_000
	maxListedBytes = 1 << 20
)

// report collects the results of the paths of one document.
type report struct {
	mapped   []dray.MappedPath
	unmapped []dray.UnmappedPath
	paths    listBudget
	faults   pathErrors
	refused  listBudget
}

// listBudget counts the entries of a list.
type listBudget struct {
	entries  int
	bytes    int
	unlisted int
}

// add reserves an entry and returns its pointer. The first one that does not fit ends the list, so
// that a hostile document cannot make it build long pointers repeatedly.
func (l *listBudget) add(w *documentWalker, text int) (pointer string, ok bool) {
	if l.unlisted == 0 {
		pointer = w.pointer()
		text += len(pointer)
		ok = l.entries < maxListed && l.bytes+text <= maxListedBytes
	}
	if !ok {
		l.unlisted++
		return "", false
	}
	l.entries++
	l.bytes += text
	return pointer, true
}

func (w *documentWalker) mapped(from, to string) {
	if pointer, ok := w.report.paths.add(w, len(from)+len(to)); ok {
		w.report.mapped = append(w.report.mapped, dray.MappedPath{Pointer: pointer, From: from, To: to})
	}
}

func (w *documentWalker) unmapped(p, reason string) {
	if pointer, ok := w.report.paths.add(w, len(p)+len(reason)); ok {
		w.report.unmapped = append(w.report.unmapped,
			dray.UnmappedPath{Pointer: pointer, Path: p, Reason: reason})
	}
}

func (w *documentWalker) fault(err error) {
	pointer, ok := w.report.refused.add(w, len(err.Error()))
	switch {
	case ok:
		w.report.faults.add(pointer, err)
	case w.report.faults.first == nil:
		w.report.faults.add(w.opts.Pointer, err)
	}
}

// result returns the public form of the report. Its lists are never nil, so that they are arrays in
// JSON.
func (r *report) result(prefix string) dray.MappingReport {
	rep := dray.MappingReport{
		Mapped:   append([]dray.MappedPath{}, r.mapped...),
		Unmapped: append([]dray.UnmappedPath{}, r.unmapped...),
		Errors:   append([]dray.Detail{}, r.faults.details...),
	}
	if more := r.paths.unlisted + r.refused.unlisted; more > 0 {
		message := fmt.Sprintf("%d more paths are not listed: the limits are %d entries and %d bytes",
			more, maxListed, maxListedBytes)
		rep.Errors = append(rep.Errors, dray.Detail{Pointer: prefix, Message: message})
	}
	return rep
}

// pathErrors are the errors of invalid paths.
type pathErrors struct {
	details []dray.Detail
	first   *dray.Error
}

func (f *pathErrors) add(pointer string, err error) {
	if f.first == nil {
		f.first = dray.AsError(err)
	}
	f.details = append(f.details, dray.Detail{Pointer: pointer, Message: err.Error()})
}

// asError returns the error of a document or list with all details; nil if there is none.
func (f *pathErrors) asError(code dray.Code) error {
	if f.first == nil {
		return nil
	}
	message := f.details[0].Pointer + ": " + f.first.Message
	if more := len(f.details) - 1; more > 0 {
		message += fmt.Sprintf(" (and %d more)", more)
	}
	err := dray.Errorf(code, "%s", message).WithHint("%s", f.first.Hint)
	err.Details = f.details
	return err
}
