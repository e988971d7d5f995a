package upstream

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/dray-dev/dray/internal/devcontainer/helper"
)

// maxKnown is the maximum size in bytes of a file of known tools.
const maxKnown = 16 << 20

// Known are the tools that a server has listed, with the digest of what it runs.
type Known struct {
	Digest string `json:"digest"`
	Tools  []Tool `json:"tools"`
}

// Digest returns a digest of what a server runs.
func Digest(what ...any) (string, error) {
	text, err := json.Marshal(what)
	if err != nil {
		return "", fmt.Errorf("hash an MCP server: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// ReadKnown returns the known tools of a file by the name of their server, none if there is no
// file.
func ReadKnown(path string) (map[string]Known, error) {
	var known map[string]Known
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &known)
	}
	if err != nil {
		return nil, fmt.Errorf("read the tools of MCP servers: %w", err)
	}
	return known, nil
}

// WriteKnown replaces a file of known tools.
func WriteKnown(path string, known map[string]Known) error {
	text, err := json.Marshal(known)
	if err == nil && len(text) > maxKnown {
		err = fmt.Errorf("they exceed %d bytes", maxKnown)
	}
	if err == nil {
		err = helper.ReplaceFile(path, text)
	}
	if err != nil {
		return fmt.Errorf("write the tools of MCP servers: %w", err)
	}
	return nil
}
