package process

import (
	"fmt"
	"strings"
	"testing"
)

// A panic in the goroutine that watches a process is repeated by Wait, with its stack, and the pool
// can still be closed (EX-18).
func TestWaitRepeatsPanic(t *testing.T) {
	// a supervisor that exits at once
	p := NewPool(SupervisorConfig{Path: "/bin/true", Args: []string{"true"}})
	s, err := p.spawn()
	if err != nil {
		t.Fatal(err)
	}
	proc := p.watchExit(s, 1, noStreams(), func() bool { panic("a panic at the end") })
	repeated := func() (text string) {
		defer func() { text = fmt.Sprint(recover()) }()
		_, _ = proc.Wait()
		return ""
	}()
	if !strings.Contains(repeated, "a panic at the end") ||
		!strings.Contains(repeated, "defect_test.go") {
		t.Errorf("Wait panicked with %s", repeated)
	}
	p.Close()
}
