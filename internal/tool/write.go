package tool

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"

	"github.com/dray-dev/dray"
)

type writeOutput struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	// Action is "created", "replaced" or "unchanged".
	Action string `json:"action"`
}

func writeFile(ctx context.Context, at place, input json.RawMessage) (any, error) {
	var in writeInput
	if err := read(input, &in); err != nil {
		return nil, fmt.Errorf("read the input of write_file: %w", err)
	}
	content, err := in.content()
	if err != nil {
		return nil, fmt.Errorf("read the input of write_file: %w", err)
	}
	file, err := at.locate(in.Path)
	if err != nil {
		return nil, err
	}
	w := writing{files: at.files, file: file, content: content, sum: sha256.Sum256(content)}
	if err := w.look(in.Mode); err != nil {
		return nil, err
	}
	if w.action != "unchanged" {
		if err := w.replace(ctx); err != nil {
			return nil, err
		}
	}
	return writeOutput{file.path, int64(len(content)), hex.EncodeToString(w.sum[:]), w.action}, nil
}

// writing is one file on its way.
type writing struct {
	files   dray.Files
	file    target
	content []byte
	sum     [sha256.Size]byte
	mode    fs.FileMode
	action  string
}

// look decides what is to be done from what is there. A link is refused, not followed and not replaced: the caller has to say which
// of the two files is meant.
func (w *writing) look(mode string) error {
	old, err := w.files.Stat(w.file.name)
	w.action, w.mode = "replaced", old.Mode.Perm()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		w.action, w.mode = "created", 0o644
	case err != nil:
		return w.file.failed("write", err)
	case old.Type != "file":
		return w.file.wrongKind("write", old, "name a regular file, or a new one")
	}
	if mode != "" {
		bits, err := strconv.ParseUint(mode, 8, 9)
		if err != nil {
			return fmt.Errorf("read mode %q: %w", mode, err)
		}
		w.mode = fs.FileMode(bits)
	}
	if w.action == "replaced" && w.mode == old.Mode.Perm() && old.Size == int64(len(w.content)) && w.same() {
		w.action = "unchanged"
	}
	return nil
}

// same compares what is there. A file that cannot be read is not the same: it is written, or that fails for its own reason.
func (w *writing) same() bool {
	r, _, err := w.files.Open(w.file.name, 0)
	if err != nil {
		return false
	}
	defer r.Close()
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(r, int64(len(w.content))+1))
	return err == nil && n == int64(len(w.content)) && [sha256.Size]byte(h.Sum(nil)) == w.sum
}

// replace writes a temporary file beside the target and renames it, so that nobody ever sees a part. Nothing of it stays behind if
// it fails.
func (w *writing) replace(ctx context.Context) error {
	temp := path.Join(path.Dir(w.file.name), ".dray-"+rand.Text())
	if err := w.fill(temp); err != nil {
		return w.undo(temp, w.file.failed("write", err))
	}
	if ctx.Err() != nil {
		return w.undo(temp, context.Cause(ctx))
	}
	if err := w.files.Rename(temp, w.file.name); err != nil {
		return w.undo(temp, w.file.failed("write", err))
	}
	return nil
}

func (w *writing) undo(temp string, why error) error {
	_ = w.files.Remove(temp) // it may never have come to be
	return why
}

func (w *writing) fill(temp string) error {
	f, err := w.files.Create(temp, w.mode)
	if err != nil {
		return err
	}
	_, err = f.Write(w.content)
	return errors.Join(err, f.Close())
}
