package stage

import (
	"context"
	"errors"
	"syscall"

	"github.com/dray-dev/dray"
)

// ErrCommitIncomplete says that a commit failed midway and could not be taken back: the journal is
// kept, and the next commit or recovery beneath the same root finishes it.
var ErrCommitIncomplete = errors.New("the tree is written in part, and the rest follows by its journal")

// ErrConflict says that a file which was found to be there already, and so was not staged, is not
// there any more: another tree came meanwhile. Nothing was written, and the tree may be placed
// again.
var ErrConflict = errors.New("changed while the tree was placed")

// ErrLocked says that the time was over while somebody else held the lock of the root: another tree
// that was committed, or any process that can open the folder.
var ErrLocked = errors.New("another process holds the lock of the folder")

// opError gives an error of the kernel its code, and says what was done to what when it came.
func opError(doing, name string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*dray.Error](err); ok {
		return err
	}
	code, hint := classify(err)
	e := dray.Errorf(code, "%s %q: %w", doing, name, err)
	if hint != "" {
		e = e.WithHint("%s", hint)
	}
	return e
}

func classify(err error) (code dray.Code, hint string) {
	errno, _ := errors.AsType[syscall.Errno](err)
	switch errno {
	case syscall.ENOSPC, syscall.EDQUOT:
		return dray.CodeDiskFull, "free space there, or raise the quota, and repeat it"
	case syscall.EACCES, syscall.EPERM, syscall.EROFS:
		return dray.CodeDenied, "make the folder writable for the user who writes there"
	case syscall.ELOOP:
		return dray.CodePathInvalid,
			"a link stands where a folder has to be: remove it, or choose another destination"
	case syscall.ENOTDIR, syscall.EISDIR:
		return dray.CodePathInvalid,
			"a file stands where a folder has to be, or a folder where a file has to be: remove it, or choose another destination"
	case syscall.EXDEV, syscall.EBUSY:
		return dray.CodePathInvalid,
			"another file system is mounted there, so that nothing can come as a whole: choose a destination outside of it"
	case syscall.EEXIST:
		return dray.CodePathInvalid,
			"another entry has this name where the file system tells no upper from lower case, or somebody made it meanwhile"
	case syscall.ENAMETOOLONG, syscall.EINVAL, syscall.EILSEQ:
		return dray.CodePathInvalid, ""
	case syscall.EMFILE, syscall.ENFILE:
		return dray.CodeLimitExceeded,
			"raise the limit of open files (ulimit -n), or place fewer folders at once"
	case syscall.EFBIG:
		return dray.CodeLimitExceeded, ""
	default:
		return dray.CodeTransferFailed, ""
	}
}

// ended is nil while the context lasts.
func ended(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return dray.Errorf(dray.CodeTransferFailed, "placing the tree was given up: %w",
		context.Cause(ctx)).WithHint("nothing was written; repeat it, with more time if that ran out")
}

// locked is the end of a wait for the lock of a root.
func locked(why error) error {
	return dray.Errorf(dray.CodeTransferFailed, "%w: %w", ErrLocked, why).
		WithHint("nothing was written; end that process (lsof shows it), and repeat it")
}

func invalid(name, why string) error {
	return dray.Errorf(dray.CodePathInvalid, "%q %s", name, why)
}
