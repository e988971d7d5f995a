package process

import (
	"fmt"
	"strings"
	"testing"
)

// EX-18: a panic in the goroutine that follows a process is raised in the one that waits for it,
// with the place where it came from, and the pool goes on: it can be closed, which waits for all of
// its goroutines.
func TestDefectIsRaisedByWait(t *testing.T) {
	// a supervisor that ends at once
	p := NewPool(SupervisorConfig{Path: "/bin/true", Args: []string{"true"}})
	s, err := p.spawn()
	if err != nil {
		t.Fatal(err)
	}
	proc := p.watchExit(s, 1, streams{}, func() bool { panic("planted") })
	raised := func() (text string) {
		defer func() { text = fmt.Sprint(recover()) }()
		_, _ = proc.Wait()
		return ""
	}()
	if !strings.Contains(raised, "planted") || !strings.Contains(raised, "defect_test.go") {
		t.Errorf("raised: %s", raised)
	}
	p.Close()
}
