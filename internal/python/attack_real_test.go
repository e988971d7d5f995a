package python_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/dray-dev/dray/executor/docker"
	"github.com/dray-dev/dray/internal/python"
	"github.com/dray-dev/dray/internal/soakreport"
)

// attacks is code that wants more than its session, in a container. says is what its reply has, if
// it has one.
var attacks = []struct{ name, code, says string }{
	{"fork into the loop of the worker", "import os\nos.fork()\n'forked'", "forked"},
	{"fork by libc", "import ctypes\nctypes.CDLL(None).fork()\n'forked'", "forked"},
	{"fork in a thread", "import os, threading\nt = threading.Thread(target=os.fork); t.start(); t.join()", ""},
	{"kill -9 -1", "import os\nos.kill(-1, 9)", ""},
	{"kill the keeper", "import os\nos.kill(os.getppid(), 9)\nimport time; time.sleep(60)", ""},
	{"trace the keeper", "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\nif libc.ptrace(16, os.getppid(), 0, 0) < 0: raise PermissionError(ctypes.get_errno())", "PermissionError"},
	{"memory of the keeper", "import os\nopen('/proc/%d/mem' % os.getppid(), 'rb')", "PermissionError"},
	{"descriptors of the keeper", "import os\nfor n in range(64):\n  os.open('/proc/%d/fd/%d' % (os.getppid(), n), os.O_RDWR)", "PermissionError"},
	{"os._exit", "import os\nos._exit(0)", ""},
	{"abort", "import os\nos.abort()", ""},
	{"another program", "import os\nos.execv('/bin/true', ['true'])", ""},
	{"closed descriptors", "import os\nos.closerange(0, 256)", ""},
	{"no descriptors", "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))", ""},
	{"worker's socket", "import gc\nfor o in gc.get_objects():\n  if type(o).__name__ == 'Worker':\n    o.sock.sendall(b'\\0\\0\\0\\2{}')", ""},
	{"worker's streams", "import gc\nfor o in gc.get_objects():\n  if type(o).__name__ == 'Worker': o.stdout = o.stderr = o.stdin = o.pid = None", ""},
	{"json.py", "open('json.py', 'w').write('raise SystemExit(9)')\nimport sys; sys.modules.pop('json', None)\nraise KeyError('written')", "KeyError: 'written'"},
	{"sitecustomize.py", "for n in 'sitecustomize', 'usercustomize': open(n + '.py', 'w').write('raise SystemExit(9)')\nraise KeyError('written')", "KeyError: 'written'"},
}

var attackPage = soakreport.Page{
	File: "python-attacks.md", Title: "Python code that attacks its session",
	Text: `The code ran in a session in a container, as a user who is not root, beside another session of the
same container and user. *Untyped* counts the calls that ended with neither a checked reply, nor
agent_lost, nor a signal. *Next* counts the next calls of the session, and *other* those of the
other session, that were not right. Where the other session lost its process, which a user may end,
its next call reported that.`,
	Target:  "typed errors; the next call works; no other session is touched",
	Columns: []string{"attack", "runs", "untyped", "next", "other", "lost processes"},
	Key:     1,
}

// Code that attacks its worker, the keeper or the files that they could load ends with a typed
// error, or returns what any code could. The next call of its session works, and another session of
// the same container keeps its variables, or reports their loss (PY-06, PY-08, PY-16).
func TestSessions_Attacks(t *testing.T) {
	h := newEngineHarness(t, debian, docker.TransportAuto)
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			c := &realChurn{harness: h}
			c.open(t, 3, 3)
			runs, untyped, next, other := 0, 0, 0, 0
			attackPage.Row(t, []string{a.name}, func() []soakreport.Cell {
				return []soakreport.Cell{
					soakreport.Value(runs), soakreport.Exactly(untyped, 0), soakreport.Exactly(next, 0),
					soakreport.Exactly(other, 0), soakreport.Value(c.losses.Load()),
				}
			})
			for range soakreport.Count(20, 1) {
				runs++
				if !c.call(t, "other") {
					other++
				}
				got := c.ask(t, "attacker", a.code, nil)
				body, err := json.Marshal(got.Reply)
				if err == nil && got.Err == nil {
					err = python.CheckReply(body, nil)
				} else if got.Err != nil && !isTyped(got.Err) {
					err = got.Err
				}
				if err != nil || got.Err == nil && !strings.Contains(got.Describe(), a.says) {
					untyped++
					t.Errorf("the attack ended with %s, %v", got.Describe(), got.Err)
				}
				if got := c.ask(t, "attacker", "1 + 2", nil); string(got.Value) != "3" {
					next++
					t.Errorf("the next call returned %s, %v", got.Describe(), got.Err)
				}
				if !c.call(t, "other") {
					other++
				}
			}
		})
	}
}
