package helper

import (
	"errors"
	"os"
	"path/filepath"
)

const runDirPattern = "up-*"

// MakeRunDir creates a directory in the state directory, for one `up` or one run of compose.
func MakeRunDir(state string) (string, error) {
	parent := filepath.Join(state, "run")
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return "", err
	}
	return os.MkdirTemp(parent, runDirPattern)
}

// RemoveRunDirs removes the directories that a daemon created in its state directory for one `up`
// and that it left because it was killed. No daemon may be running with that state directory.
func RemoveRunDirs(state string) error {
	var errs []error
	dirs, _ := filepath.Glob(filepath.Join(state, "run", runDirPattern)) // an odd name matches nothing
	for _, dir := range dirs {
		errs = append(errs, os.RemoveAll(dir))
	}
	return errors.Join(errs...)
}

// ReplaceFile atomically replaces a file by one of mode 0600 and synchronizes it to disk.
func ReplaceFile(path string, content []byte) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file.Name()) // the first error is returned
		}
	}()
	_, writeErr := file.Write(content)
	if err := errors.Join(writeErr, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
