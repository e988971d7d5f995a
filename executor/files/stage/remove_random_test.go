package stage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/soakreport"
)

// model is a tree in memory: the content of each file, and "/" for a directory.
type model map[string]string

func (m model) write(t testing.TB, dir string) {
	t.Helper()
	for _, name := range m.names() {
		var err error
		if m[name] == "/" {
			err = os.Mkdir(dir+"/"+name, 0o700)
		} else {
			err = os.WriteFile(dir+"/"+name, []byte(m[name]), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (m model) names() []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (m model) want() map[string]string {
	want := map[string]string{}
	for name, content := range m {
		if want[name] = "-rw------- " + content; content == "/" {
			want[name] = "drwx------"
		}
	}
	return want
}

// randomModel returns a tree with few names, so that two of them often have a name in common.
func randomModel(r *rand.Rand) model {
	m := model{}
	var fill func(dir string, depth int)
	fill = func(dir string, depth int) {
		for i := range 4 {
			name := dir + string(rune('a'+i))
			switch n := r.IntN(10); {
			case n < 4:
			case n < 7 || depth == 0:
				m[name] = strings.Repeat(fmt.Sprint(r.IntN(3)), 1+r.IntN(2))
			default:
				m[name] = "/"
				fill(name+"/", depth-1)
			}
		}
	}
	fill("", 3)
	return m
}

// difference returns a tree and removals that make one model the other.
func difference(from, to model) (list []made, remove []string, expect map[string]string) {
	expect = map[string]string{}
	state := func(name string) string {
		switch content, ok := from[name]; {
		case !ok:
			return dray.ExpectAbsent
		case content == "/":
			return dray.ExpectDirectory
		default:
			return sum(content)
		}
	}
	for _, name := range to.names() {
		if old, ok := from[name]; ok && old == to[name] {
			continue
		}
		expect[name] = state(name)
		if to[name] == "/" {
			list = append(list, mkdir(name))
		} else {
			list = append(list, file(name, to[name]))
		}
	}
	for _, name := range from.names() {
		now, ok := to[name]
		if !ok || (now == "/") != (from[name] == "/") {
			expect[name] = state(name)
			remove = append(remove, name)
		}
	}
	return list, remove, expect
}

// Any tree becomes any other one, or stays as it is when a name of it was changed (PY-10).
func TestRemove_RandomTrees(t *testing.T) {
	r := soakreport.Rand(t)
	for range soakreport.Count(3000, 150) {
		dir := scratch(t)
		from, to := randomModel(r), randomModel(r)
		from.write(t, dir)
		list, remove, expect := difference(from, to)
		r.Shuffle(len(remove), func(i, j int) { remove[i], remove[j] = remove[j], remove[i] })
		how := dray.WriteTreeOptions{Remove: remove, Expect: expect}
		before := contentOf(t, dir)
		if names := model(expect).names(); len(names) > 0 && r.IntN(3) == 0 {
			name := dir + "/" + names[r.IntN(len(names))]
			_ = os.RemoveAll(name)
			_ = os.WriteFile(name, []byte("theirs"), 0o600) // its parent may not exist yet
		}
		now := contentOf(t, dir)
		_, err := writeTree(t, dir, how, list...)
		if maps.Equal(before, now) {
			if err != nil {
				t.Errorf("got %v", err)
			}
			wantTree(t, dir, to.want())
		} else {
			wantCode(t, "a changed name", err, dray.CodeConflict)
			wantTree(t, dir, now)
		}
		if t.Failed() {
			t.Fatalf("%v to %v", from, to)
		}
		_ = os.RemoveAll(dir)
	}
}

// While other processes replace, rewrite and remove files, no commit overwrites a content that it
// did not expect (PY-10, SY-03).
func TestNoChangeIsLost(t *testing.T) {
	r := soakreport.Rand(t)
	const names = 3
	committed, conflicts := 0, 0
	rounds := soakreport.Count(2000, 100)
	for round := range rounds {
		dir := scratch(t)
		last := make([]string, names)
		for i := range names {
			last[i] = "w0"
			if err := os.WriteFile(fmt.Sprint(dir, "/", i), []byte("w0"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var writers sync.WaitGroup
		for i := range names {
			pause, n, inPlace := r.IntN(200), r.IntN(8), r.IntN(2) == 0
			writers.Go(func() {
				for k := range n {
					spin(time.Duration(pause) * time.Microsecond)
					last[i] = fmt.Sprint("w", k+1)
					overwrite(t, dir, fmt.Sprint(i), last[i], inPlace)
				}
			})
		}
		for range 3 {
			if err := commitMarks(t, dir, names); err == nil {
				committed++
			} else {
				wantCode(t, "a commit", err, dray.CodeConflict)
				conflicts++
			}
		}
		writers.Wait()
		for i, w := range last {
			b, err := os.ReadFile(fmt.Sprint(dir, "/", i))
			if got := string(b); err != nil || got != w && got != "c"+w {
				t.Fatalf("round %d: %d is %q, %v; the last change was %q", round, i, got, err, w)
			}
		}
		if left, _ := filepath.Glob(dir + "/" + Prefix + "*"); len(left) > 0 {
			t.Fatalf("left: %q", left)
		}
		_ = os.RemoveAll(dir)
	}
	t.Logf("%d were committed, %d conflicted", committed, conflicts)
	if committed == 0 || conflicts == 0 {
		t.Errorf("%d were committed, %d conflicted", committed, conflicts)
	}
}

// overwrite gives a file a new content, as programs do: in its place, or by a rename.
func overwrite(t *testing.T, dir, name, content string, inPlace bool) {
	if inPlace {
		f, err := os.OpenFile(dir+"/"+name, os.O_WRONLY|os.O_TRUNC, 0)
		if err == nil {
			_, err = f.WriteString(content)
			_ = f.Close()
		}
		if err != nil {
			t.Error(err)
		}
		return
	}
	if err := errors.Join(os.WriteFile(dir+"/"+name+".new", []byte(content), 0o600),
		os.Rename(dir+"/"+name+".new", dir+"/"+name)); err != nil {
		t.Error(err)
	}
}

// commitMarks puts a "c" before the content of all files.
func commitMarks(t *testing.T, dir string, names int) error {
	how := dray.WriteTreeOptions{Expect: map[string]string{}}
	var list []made
	for i := range names {
		b, err := os.ReadFile(fmt.Sprint(dir, "/", i))
		if err != nil {
			t.Error(err)
		}
		how.Expect[fmt.Sprint(i)] = sum(string(b))
		list = append(list, file(fmt.Sprint(i), "c"+strings.TrimPrefix(string(b), "c")))
	}
	_, err := WriteTree(context.Background(), openRoot(t, dir), treeOf(list...), how)
	return err
}
