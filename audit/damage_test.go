package audit

import (
	"bytes"
	"os"
	"testing"
)

// captureDamage are kinds of damage by a part of the warning. A map has no order, so each leaves
// the file damaged.
var captureDamage = map[string]func(file string) error{
	"missing": os.Remove,
	"changed": func(file string) error { return os.WriteFile(file, []byte(`{"s":"forged"}`), 0o600) },
}

// breakChain makes the overflow pages of the text refer to a page that does not exist, so that
// reading the value fails.
func breakChain(t *testing.T, path, text string) {
	t.Helper()
	const pageSize = 4096
	b, err := os.ReadFile(path)
	must(t, err)
	broken := 0
	for page := pageSize; page < len(b); page += pageSize {
		// An overflow page is the number of the next one, followed by content.
		if content := b[page+4 : page+pageSize]; bytes.Count(content, []byte(text)) > 400 {
			copy(b[page:], "\xff\xff\xff\xff")
			broken++
		}
	}
	if broken == 0 {
		t.Fatal("no overflow page contains the text")
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}
