package audit

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// hmacKeySize is the size of a key of LoadHMACKey in bytes.
const hmacKeySize = 32

// LoadHMACKey returns the 32 random bytes in the file at path. If the file does not exist, it is
// created with mode 0600 in a directory with mode 0700, and is durable when LoadHMACKey returns.
func LoadHMACKey(path string) ([]byte, error) {
	key, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		key, err = createHMACKey(path)
	}
	if err == nil && len(key) != hmacKeySize {
		err = fmt.Errorf("it has %d bytes instead of %d", len(key), hmacKeySize)
	}
	if err != nil {
		return nil, fmt.Errorf("load the key %s: %w", path, err)
	}
	return key, nil
}

// createHMACKey writes a new key. The file has its name only once it is complete.
func createHMACKey(path string) ([]byte, error) {
	if err := makePrivateDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	key := make([]byte, hmacKeySize)
	_, _ = rand.Read(key) // never fails
	return key, writePrivate(path, key)
}
