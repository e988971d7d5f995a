package command

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

func TestEscape(t *testing.T) {
	const key = "\x1d"
	for name, c := range map[string]struct {
		typed []string
		gaps  time.Duration
		want  int
	}{
		"three times":             {[]string{key, key, key}, 300 * time.Millisecond, 1},
		"in one read":             {[]string{"ab" + key + key + key + "c"}, 0, 1},
		"too slow":                {[]string{key, key, key, key, key}, 600 * time.Millisecond, 0},
		"twice":                   {[]string{key, key}, 0, 0},
		"with something between":  {[]string{key, key, "x", key, key}, 0, 0},
		"six times":               {[]string{key + key + key + key + key + key}, 0, 2},
		"five times":              {[]string{key + key + key + key + key}, 0, 1},
		"slow, then fast":         {[]string{key + "", key, key, key + key}, 600 * time.Millisecond, 1},
		"nothing that looks like": {[]string{"^]^]^]", "\x1b\x1b\x1b"}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			now, escaped := time.Unix(0, 0), 0
			readers := make([]io.Reader, 0, len(c.typed))
			for _, text := range c.typed {
				readers = append(readers, strings.NewReader(text))
			}
			e := &escapeDetector{r: io.MultiReader(readers...), now: func() time.Time { now = now.Add(c.gaps); return now }, onEscape: func() { escaped++ }}
			got, err := io.ReadAll(iotest.DataErrReader(e))
			if err != nil || string(got) != strings.Join(c.typed, "") { // it keeps nothing back
				t.Errorf("read %q, %v", got, err)
			}
			if escaped != c.want {
				t.Errorf("escaped %d times, want %d", escaped, c.want)
			}
		})
	}
}

// What is typed after the close is for the next reader.
func TestKeyboard(t *testing.T) {
	ours, theirs := openTerminal(t)
	k, err := newKeyboard(theirs)
	if err != nil {
		t.Fatal(err)
	}
	defer k.free()
	buf := make([]byte, 64)
	if _, err := ours.WriteString("one\n"); err != nil {
		t.Fatal(err)
	}
	if n, err := k.Read(buf); err != nil || string(buf[:n]) != "one\n" {
		t.Fatalf("read %q, %v", buf[:n], err)
	}
	read := make(chan error, 1)
	go func() { _, err := k.Read(buf); read <- err }()
	_, _ = k.Close(), k.Close()
	if err := <-read; !errors.Is(err, errKeyboardClosed) {
		t.Errorf("a read that waits ends with %v", err)
	}
	if _, err := ours.WriteString("two\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Read(buf); !errors.Is(err, errKeyboardClosed) {
		t.Errorf("a read after the close: %v", err)
	}
	if n, err := theirs.Read(buf); err != nil || string(buf[:n]) != "two\n" {
		t.Errorf("the next reader gets %q, %v", buf[:n], err)
	}
}

func TestKeyboardOfATerminalThatIsGone(t *testing.T) {
	ours, theirs := openTerminal(t)
	k, err := newKeyboard(theirs)
	if err != nil {
		t.Fatal(err)
	}
	defer k.free()
	_ = ours.Close()
	if n, err := k.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("%d, %v", n, err)
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
}
