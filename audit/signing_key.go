package audit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/audit/proof"
)

// stateFiles are the paths of what proves the log and is outside of the database.
type stateFiles struct {
	keysDir, key, public, checkpoints string
}

// filesOf returns the paths that belong to the database at path.
func filesOf(path string) stateFiles {
	dir := filepath.Dir(path)
	keys := filepath.Join(dir, "keys")
	return stateFiles{
		keysDir: keys, key: filepath.Join(keys, "audit.key"),
		public: filepath.Join(keys, "audit.pub"), checkpoints: filepath.Join(dir, "checkpoints"),
	}
}

const (
	selectKey = `SELECT verifier FROM checkpoint_keys ORDER BY n DESC LIMIT 1`
	insertKey = `INSERT INTO checkpoint_keys (verifier, at) VALUES (?, ?)`
)

// openKey returns the key that signs the checkpoints of the log. It makes one if the log never had
// one. A key that is lost, damaged, readable by others or not that of the log is an error: another
// key would make what it signed before worthless without a trace.
func openKey(ctx context.Context, db *sql.DB, files stateFiles) (*proof.Signer, error) {
	var known string
	err := db.QueryRowContext(ctx, selectKey).Scan(&known)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("find the key of the log: %w", err)
	}
	if err := makePrivateDir(files.keysDir); err != nil {
		return nil, err
	}
	if known == "" && files.unused() {
		if err := makeKey(files); err != nil {
			return nil, err
		}
	}
	signer, err := files.readSigner()
	if err != nil {
		return nil, err
	}
	verifier := signer.Verifier().String()
	switch {
	case known == "":
		if _, err := db.ExecContext(ctx, insertKey, verifier, time.Now().UnixNano()); err != nil {
			return nil, fmt.Errorf("store the public key: %w", err)
		}
	case known != verifier:
		return nil, keyError(files, "%s is not the key of this log, which is %s", files.key, known)
	}
	return signer, files.checkPublic(signer.Verifier())
}

// unused reports whether no key was ever made here, as far as the files tell.
func (f stateFiles) unused() bool {
	for _, path := range []string{f.key, f.public, f.checkpoints} {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	return true
}

func makeKey(files stateFiles) error {
	private, err := proof.NewKey()
	if err != nil {
		return err
	}
	return writePrivate(files.key, []byte(private+"\n"))
}

// readSigner reads the private key.
func (f stateFiles) readSigner() (*proof.Signer, error) {
	file, err := os.OpenFile(f.key, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, keyError(f, "%s is missing", f.key)
	}
	if err != nil {
		return nil, keyError(f, "read the key of the log: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	switch {
	case err != nil:
		return nil, keyError(f, "read the key of the log: %w", err)
	case !info.Mode().IsRegular():
		return nil, keyError(f, "%s is not a file", f.key)
	case info.Mode().Perm()&0o077 != 0:
		return nil, dray.Errorf(dray.CodeAuditUnavailable, "%s has mode %#o: others may have read it",
			f.key, info.Mode().Perm()).
			WithHint("run `chmod 600 %s` if nobody else could read it; else see `dray audit checkpoint "+
				"--new-key`", f.key)
	}
	text, err := io.ReadAll(io.LimitReader(file, 4096))
	if err != nil {
		return nil, keyError(f, "read the key of the log: %w", err)
	}
	signer, err := proof.NewSigner(string(text))
	if err != nil {
		return nil, keyError(f, "%s is damaged: %w", f.key, err)
	}
	return signer, nil
}

// checkPublic compares the public key file, and writes it if it is missing: the private key has all
// that it needs.
func (f stateFiles) checkPublic(v proof.Verifier) error {
	have, err := ReadPublicKey(f.public)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return writePrivate(f.public, []byte(v.String()+"\n"))
	case err != nil:
		return keyError(f, "%w", err)
	case have.String() != v.String():
		return keyError(f, "%s is not the public key of %s", f.public, f.key)
	}
	return nil
}

// ReadPublicKey reads a file with a public key in the text form of package note. It returns
// fs.ErrNotExist if there is none.
func ReadPublicKey(path string) (proof.Verifier, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return proof.Verifier{}, fmt.Errorf("read the public key: %w", err)
	}
	v, err := proof.NewVerifier(string(text))
	if err != nil {
		return v, fmt.Errorf("%s: %w", path, err)
	}
	return v, nil
}

func keyError(f stateFiles, format string, args ...any) *dray.Error {
	return dray.Errorf(dray.CodeAuditUnavailable, format, args...).
		WithHint("restore %s from a backup; if the key is lost, run `dray audit checkpoint --new-key`",
			f.keysDir)
}

// makePrivateDir creates a directory that only its owner can use, or makes it so.
func makePrivateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create a directory: %w", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil { //nolint:gosec // a directory needs x
		return fmt.Errorf("make %s private: %w", dir, err)
	}
	return syncDir(filepath.Dir(dir))
}

// writePrivate writes a file with mode 0600, complete or not at all. It is on disk when
// writePrivate returns.
func writePrivate(path string, data []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), newPrefix+"*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = tmp.Write(data)
	if err == nil {
		err = errors.Join(tmp.Chmod(0o600), tmp.Sync())
	}
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, errors.Join(err, os.Remove(tmp.Name())))
	}
	return syncDir(filepath.Dir(path))
}

// PublicKey returns the public key of the log at path. It fails with not_found if the log has none
// yet.
func PublicKey(path string) (proof.Verifier, error) {
	public := filesOf(path).public
	v, err := ReadPublicKey(public)
	if errors.Is(err, fs.ErrNotExist) {
		return v, dray.Errorf(dray.CodeNotFound, "the log has no public key yet: %s is missing", public).
			WithHint("it is made when the daemon starts; name the state directory with --state DIR, or a " +
				"file with --key")
	}
	return v, err
}

// ReplaceKey makes a new signing key for the log at path, and returns its public key. It moves the
// previous key, if there is one, and the stored checkpoints to a new directory, which it returns.
// Those checkpoints verify with the previous public key only. No daemon may have the log open.
//
// A log that does not extend its last checkpoint opens again after ReplaceKey.
func ReplaceKey(ctx context.Context, path string) (
	public proof.Verifier, previous string, err error,
) {
	if path, err = realPath(path); err != nil {
		return public, "", err
	}
	held, err := lock(path)
	if err != nil {
		return public, "", err
	}
	defer held.Close()
	db, err := openWriter(ctx, path)
	if err != nil {
		return public, "", unavailableError(path, "make a new key", err)
	}
	defer db.Close()
	if err := migrate(ctx, db, path); err != nil {
		return public, "", unavailableError(path, "make a new key", err)
	}
	files := filesOf(path)
	if previous, err = files.setAside(); err != nil {
		return public, "", err
	}
	if err := makeKey(files); err != nil {
		return public, previous, err
	}
	signer, err := files.readSigner()
	if err != nil {
		return public, previous, err
	}
	public = signer.Verifier()
	if _, err := db.ExecContext(ctx, insertKey, public.String(), time.Now().UnixNano()); err != nil {
		return public, previous, unavailableError(path, "store the public key", err)
	}
	return public, previous, files.checkPublic(public)
}

// setAside moves the key and the checkpoints to a new directory. A symlink is moved as such.
func (f stateFiles) setAside() (string, error) {
	dir := filepath.Join(f.keysDir, "replaced-"+time.Now().UTC().Format("20060102T150405.000Z"))
	if err := makePrivateDir(f.keysDir); err != nil {
		return "", err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", fmt.Errorf("set the previous key aside: %w", err)
	}
	for _, path := range []string{f.key, f.public, f.checkpoints} {
		err := os.Rename(path, filepath.Join(dir, filepath.Base(path)))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("set the previous key aside: %w", err)
		}
	}
	return dir, errors.Join(syncDir(dir), syncDir(f.keysDir), syncDir(filepath.Dir(f.checkpoints)))
}
