package pythontest

import "github.com/dray-dev/dray/internal/python"

// in is a step with other fields than code.
func in(s step, change func(*python.Request)) step {
	change(&s.request)
	return s
}

// fresh makes a step run in globals of its own.
func fresh(s step) step {
	return in(s, func(r *python.Request) { r.State = python.Fresh })
}

// asking makes a step return globals.
func asking(s step, names ...string) step {
	return in(s, func(r *python.Request) { r.Globals = names })
}

// wants sets a field of a step.
func wants(s step, change func(*step)) step {
	change(&s)
	return s
}

func printing(code, stdout string) step {
	return step{request: python.Request{Code: code}, stdout: stdout}
}

func exits(name, code string, exit int, message string) testCase {
	return testCase{name, []step{{request: python.Request{Code: code}, code: exit, message: message}}}
}

func traced(name, code, message, traceback string) testCase {
	return testCase{name, []step{wants(failing(code, message), func(s *step) { s.traceback = traceback })}}
}

// An exception is code 1 with its message and a traceback with lines of the code and no frame of
// dray. SystemExit is its code.
var errorCases = []testCase{
	raises("name error", "unknown", "NameError: name 'unknown' is not defined"),
	traced("source lines", "def f():\n  return 1/0  # here\nf()", "ZeroDivisionError: division by zero", "return 1/0  # here"),
	traced("header", "1/0", "ZeroDivisionError", "Traceback (most recent call last):\n  File \""),
	several("source lines of an earlier call", code("def early():\n  raise KeyError('k')  # early"),
		wants(failing("early()  # late", "KeyError: 'k'"), func(s *step) { s.traceback = "raise KeyError('k')  # early" })),
	several("named code", wants(in(failing("1/0", "ZeroDivisionError"), func(r *python.Request) { r.Name = "<string>" }),
		func(s *step) { s.traceback = `File "<string>", line 1, in <module>` })),
	traced("syntax error", "x = = 1", "SyntaxError: invalid syntax", "x = = 1"),
	raises("indentation error", "  x = 1", "IndentationError: unexpected indent"),
	raises("null in the code", "x = 1\x00", ""),
	raises("return outside", "return 1", "SyntaxError: 'return' outside function"),
	raises("5000 brackets", "["+"[]"[:1]+string(make5000('['))+"]", ""),
	traced("cause", "try:\n  1/0\nexcept Exception as e:\n  raise ValueError('x') from e", "ValueError: x", "The above exception was the direct cause"),
	traced("context", "try:\n  1/0\nexcept Exception:\n  raise ValueError('x')", "ValueError: x", "During handling of the above exception"),
	raises("recursion", "def f(): f()\nf()", "RecursionError: maximum recursion depth exceeded"),
	raises("import error", "import no_such_module_here", "ModuleNotFoundError: No module named 'no_such_module_here'"),
	raises("assertion", "assert 1 == 2, 'no'", "AssertionError: no"),
	raises("error without a text", "raise ValueError", "ValueError"),
	raises("error of several lines", "raise ValueError('a\\nb')", "ValueError: a\nb"),
	raises("keyboard interrupt", "raise KeyboardInterrupt", "KeyboardInterrupt"),
	raises("generator exit", "raise GeneratorExit('x')", "GeneratorExit: x"),
	raises("base exception", "class B(BaseException): pass\nraise B('x')", "B: x"),
	raises("stop iteration", "next(iter([]))", "StopIteration"),
	traced("error in await", "import asyncio\nasync def f():\n  await asyncio.sleep(0)\n  1/0  # there\nawait f()", "ZeroDivisionError", "1/0  # there"),
	raises("cancelled", "import asyncio\nraise asyncio.CancelledError", ""),
	exits("exit 0", "import sys; sys.exit(0)", 0, ""),
	exits("exit none", "raise SystemExit", 0, ""),
	exits("exit 3", "import sys; sys.exit(3)", 3, ""),
	exits("exit 256", "import sys; sys.exit(256)", 0, ""),
	exits("exit -1", "import sys; sys.exit(-1)", 255, ""),
	exits("exit with a huge number", "import sys; sys.exit(10**5000)", 255, ""),
	exits("exit with a text", "import sys; sys.exit('bye')", 1, "bye"),
	exits("exit true", "import sys; sys.exit(True)", 1, ""),
	exits("exit()", "exit(4)", 4, ""),
	exits("exit in await", "import sys\nasync def f(): sys.exit(5)\nawait f()", 5, ""),
	exits("subclass of SystemExit", "class X(SystemExit): pass\nraise X(6)", 6, ""),
	several("state after an exception", failing("before = 1; 1/0", "ZeroDivisionError"), value("before", "1")),
	several("state after an exit", wants(code("left = 2; raise SystemExit(1)"), func(s *step) { s.code = 1 }), value("left", "2")),
	several("no value of the last request", value("41", "41"), failing("1/0", ""), value("x = 1", "-")),
}

func make5000(c byte) []byte {
	b := make([]byte, 5000)
	for i := range b {
		b[i] = c
	}
	return b
}

// Globals stay in a persistent session; fresh ones are dropped, and loaded modules stay (PY-04).
// Inputs are variables, and globals are returned or listed as missing (PY-03).
var stateCases = []testCase{
	several("persistent", code("x = [1]"), code("x.append(2)"), value("x", "[1,2]")),
	several("functions see later globals", code("def f(): return y"), code("y = 9"), value("f()", "9")),
	several("classes and instances", code("class C:\n  n = 4\nc = C()"), value("c.n + C.n", "8")),
	several("imports stay", code("import textwrap"), value("textwrap.dedent(' a')", `"a"`)),
	several("fresh does not see the session", code("mine = 1"), fresh(failing("mine", "NameError")), value("mine", "1")),
	several("fresh leaves nothing", fresh(code("gone = 1")), failing("gone", "NameError")),
	several("fresh twice", fresh(code("one = 1")), fresh(failing("one", "NameError"))),
	several("fresh keeps modules", fresh(code("import colorsys; colorsys.mark = 6")), fresh(value("import colorsys; colorsys.mark", "6"))),
	several("fresh does not change the session", code("same = 1"), fresh(code("same = 2")), value("same", "1")),
	several("fresh __main__", fresh(value("import sys; inner = 7; sys.modules['__main__'].inner", "7")), value("hasattr(sys.modules['__main__'], 'inner') if 'sys' in globals() else False", "false")),
	several("__main__ is the session", value("import __main__\nhere = 8; __main__.here", "8")),
	run("name", "__name__", `"__main__"`),
	several("inputs", in(value("a + b['c'][0]", "3"), func(r *python.Request) {
		r.Inputs = inputs("a", "1", "b", `{"c":[2]}`)
	}), value("a", "1")),
	several("inputs of all kinds", in(value("[n, t, f, s, l, big, num]", `[null,true,false,"ü",[],{"$type":"int","value":"123456789012345678901"},1.5]`), func(r *python.Request) {
		r.Inputs = inputs("n", "null", "t", "true", "f", "false", "s", `"ü"`, "l", "[]", "big", "123456789012345678901", "num", "1.5")
	})),
	several("fresh inputs", fresh(in(value("only", `"x"`), func(r *python.Request) { r.Inputs = inputs("only", `"x"`) })), failing("only", "NameError")),
	several("globals", asking(wants(code("p = 1; q = [2]"), func(s *step) {
		s.globals = map[string]string{"p": "1", "q": "[2]"}
	}), "p", "q")),
	several("missing globals", asking(wants(code("r = 1"), func(s *step) {
		s.globals, s.missing = map[string]string{"r": "1"}, "nope1 nope2"
	}), "nope1", "r", "nope2")),
	several("globals of earlier calls", code("old = 5"), asking(wants(code("1"), func(s *step) { s.globals = map[string]string{"old": "5"} }), "old")),
	several("globals that are tagged", asking(wants(code("o = {1}; nan = float('nan')"), func(s *step) {
		s.globals = map[string]string{"o": repr("set", `"{1}"`), "nan": `{"$type":"float","value":"NaN"}`}
	}), "o", "nan")),
	several("oversized global", asking(wants(tooLarge("much = 'x' * (5 << 20)", "the global much cannot be returned"), func(*step) {}), "much"), code("del much")),
	several("oversized globals together", asking(tooLarge("m1 = m2 = 'x' * (3 << 20)", "the global m2 cannot be returned"), "m1", "m2"), code("del m1, m2")),
	several("deleted global", code("d = 1"), code("del d"), failing("d", "NameError")),
	several("cleared globals", fresh(code("globals().clear()")), code("z1 = 1"), value("z1", "1")),
	several("broken builtins of a fresh call", fresh(code("__builtins__ = {}")), value("len([1])", "1")),
	several("code that is a coroutine twice", code("import asyncio\nq = asyncio.Queue()\nawait q.put(3)"), value("await q.get()", "3")),
	several("tasks that are left end", code("import asyncio\nran = []\nasync def later():\n  await asyncio.sleep(0.01); ran.append(1)\nt = asyncio.ensure_future(later())\nawait asyncio.sleep(0)"),
		code("await asyncio.sleep(0.03)"), value("ran", "[]")),
}

// What a request changes in the process is restored after it (PY-04, PY-28).
var restoredCases = []testCase{
	several("argv", in(value("import sys; sys.argv", `["-c","a","-b",""]`), func(r *python.Request) { r.Argv = []string{"a", "-b", ""} }), value("sys.argv", `["-c"]`)),
	several("argv is changed", code("import sys; sys.argv = 5"), value("sys.argv", `["-c"]`)),
	several("sys.path is changed", value("import sys; sys.path.insert(0, '/nowhere'); sys.path[0]", `"/nowhere"`), value("'/nowhere' in sys.path", "false")),
	several("sys.path is cleared", code("import sys; sys.path.clear()"), code("import wave")),
	run("sys.path[0] of code", "import sys; sys.path[0]", `""`),
	several("stdout is replaced", code("import sys, io; sys.stdout = io.StringIO(); print('lost')"), printing("print('seen')", "seen\n")),
	several("stderr is replaced", code("import sys; sys.stderr = None"), wants(code("print('e', file=sys.stderr)"), func(s *step) { s.stderr = "e\n" })),
	several("stdout is closed", code("import sys; sys.stdout.close()"), printing("print('open')", "open\n")),
	several("buffer is closed", code("import sys\ntry: sys.stdout.buffer.close()\nexcept Exception: pass"), printing("print('open')", "open\n")),
	several("stdout is detached", code("import sys\ntry: sys.stdout.detach()\nexcept Exception: pass"), printing("print('there')", "there\n")),
	several("stdin is replaced", code("import sys; sys.stdin = None"), wants(in(value("input()", `"line"`), func(*python.Request) {}), func(s *step) { s.stdin = "line\n" })),
	several("__main__ is replaced", code("import sys; sys.modules['__main__'] = None"), value("import __main__; __main__ is not None", "true")),
	several("__main__ is removed", code("import sys; del sys.modules['__main__']"), value("import __main__; __main__.__name__", `"__main__"`)),
	several("__name__ is changed", code("__name__ = 'other'"), value("__name__", `"__main__"`)),
	several("variables of a call", in(value("import os; os.environ['DRAY_X']", `"1"`), func(r *python.Request) { r.Env = map[string]string{"DRAY_X": "1"} }), value("os.environ.get('DRAY_X')", "null")),
	several("variables of a call replace others", in(value("import os; os.environ['PATH']", `"/p"`), func(r *python.Request) { r.Env = map[string]string{"PATH": "/p"} }), value("os.environ.get('PATH') == '/p'", "false")),
	several("environ is changed", code("import os; os.environ['LEFT'] = '1'; os.environ.pop('HOME', None)"), value("'LEFT' in os.environ", "false")),
	several("environ is cleared", code("import os; before = len(os.environ); os.environ.clear()"), value("len(os.environ) == before", "true")),
	several("environ is replaced", code("import os; os.environ = None"), in(value("import os; os.environ['DRAY_X']", `"1"`), func(r *python.Request) { r.Env = map[string]string{"DRAY_X": "1"} }), value("'DRAY_X' in os.environ", "false")),
	several("sys.path is replaced", code("import sys; sys.path = None"), value("import wave; type(sys.path).__name__", `"list"`)),
	several("sys.modules is replaced", code("import sys; sys.modules = None"), value("import sys; type(sys.modules).__name__", `"dict"`)),
	several("settrace is removed", code("import sys; kept = sys.settrace; del sys.settrace"), value("kept is not None", "true"), code("sys.settrace = kept")),
	several("cwd", value("import os; os.chdir('/'); os.getcwd()", `"/"`), value("os.getcwd() != '/'", "true")),
	several("cwd of a call", in(value("import os; os.getcwd()", `"/"`), func(r *python.Request) { r.Cwd = "/" }), value("os.getcwd() != '/'", "true")),
	several("recursion limit", code("import sys; limit = sys.getrecursionlimit(); sys.setrecursionlimit(limit // 2)"), value("sys.getrecursionlimit() == limit", "true")),
	several("trace function", code("import sys\ndef tr(*a): pass\nsys.settrace(tr)"), value("import sys; sys.gettrace()", "null")),
	several("profile function", code("import sys\ndef pr(*a): pass\nsys.setprofile(pr)"), value("import sys; sys.getprofile()", "null")),
	several("open is replaced", fresh(code("open = None; print = None; len = None")), value("len('ab')", "2")),
	several("logging goes on", wants(code("import logging\nlogging.basicConfig(format='%(message)s')\nlogging.warning('one')"), func(s *step) { s.stderr = "one\n" }),
		wants(code("logging.warning('two')"), func(s *step) { s.stderr = "two\n" }), code("logging.root.handlers.clear()")),
	several("warnings", wants(code("import warnings\nwarnings.simplefilter('always')\nwarnings.warn_explicit('careful', UserWarning, 'f', 1)"), func(s *step) { s.stderr = "f:1: UserWarning: careful\n" })),
}

// Both streams are separate and exact (CA-01).
var streamCases = []testCase{
	prints("print", "print('a', 1)", "a 1\n"),
	prints("several lines", "for i in range(3): print(i)\nNone", "0\n1\n2\n"),
	several("no newline", printing("print('x', end='')", "x"), printing("print('y')", "y\n")),
	several("both streams", wants(printing("import sys; print('o'); print('e', file=sys.stderr)", "o\n"), func(s *step) { s.stderr = "e\n" })),
	prints("unicode", "print('ü€😀')", "ü€😀\n"),
	several("bytes", printing("import sys; sys.stdout.buffer.write(b'\\xff\\x00'); sys.stdout.buffer.flush()", "\xff\x00")),
	several("written and printed", printing("import sys; sys.stdout.write('a'); sys.stdout.write('b'); 1", "ab")),
	prints("writelines", "import sys; sys.stdout.writelines(['a\\n', 'b'])", "a\nb"),
	several("print before an exception", wants(failing("print('kept'); 1/0", ""), func(s *step) { s.stdout = "kept\n" })),
	several("output without a newline before an exception", wants(failing("print('kept', end=''); 1/0", ""), func(s *step) { s.stdout = "kept" })),
	several("print before an exit", wants(code("print('kept', end=''); raise SystemExit(2)"), func(s *step) { s.stdout, s.code = "kept", 2 })),
	run("stdout is no terminal", "import sys; sys.stdout.isatty()", "false"),
	run("encoding", "import sys; sys.stdout.encoding.lower()", `"utf-8"`),
	raises("input without stdin", "input()", "EOFError"),
	raises("input after the end of stdin", "input('name? ')", "EOFError"),
	run("read without stdin", "import sys; sys.stdin.read()", `""`),
	several("input", wants(value("[input(), input()]", `["one","two"]`), func(s *step) { s.stdin = "one\ntwo\n" })),
	several("prompt", wants(value("input('> ')", `"one"`), func(s *step) { s.stdin, s.stdout = "one\n", "> " })),
	several("stdin is of one call", wants(value("input()", `"one"`), func(s *step) { s.stdin = "one\ntwo\n" }), failing("input()", "EOFError")),
	several("lines of stdin", wants(value("import sys; [line for line in sys.stdin]", `["a\n","b"]`), func(s *step) { s.stdin = "a\nb" })),
	several("bytes of stdin", wants(value("import sys; sys.stdin.buffer.read()", `{"$type":"bytes","value":"/wA="}`), func(s *step) { s.stdin = "\xff\x00" })),
	several("unread stdin", wants(value("1", "1"), func(s *step) { s.stdin = "not read\n" }), value("2", "2")),
}

// numpy, pandas and polars are stand-ins that have the methods in use: the real ones are in no test
// image. A runtime's own tests use real ones (PY-05).
var adapterCases = []testCase{
	several("numpy", code(fakeNumpy),
		value("np.generic(5)", "5"),
		value("np.generic(float('nan'))", `{"$type":"float","value":"NaN"}`),
		value("[np.generic(2**60)]", `[{"$type":"int","value":"1152921504606846976"}]`),
		value("np.ndarray([1, 2, 3, 4], (2, 2))", `{"$type":"ndarray","dtype":"int64","shape":[2,2],"value":[1,2,3,4]}`),
		value("np.ndarray(range(1024), (1024,))[0] if False else len(range(1024))", "1024"),
		wants(code("np.ndarray(range(5000), (5000,))"), func(s *step) {
			s.matches = `\{"\$type":"ndarray","dtype":"int64","shape":\[5000\],"truncated":true,"value":\[0,1,.*,1023\]\}`
		}),
		wants(code("a = 1\nfor _ in range(30): a = np.ndarray([a], (1,))\na"), func(s *step) {
			s.matches = `(\{"\$type":"ndarray","dtype":"int64","shape":\[1\],"value":\[){8}\{"\$type":"truncated","value":"\[TruncatedDepth\]"\}(\]\}){8}`
		}),
		value("import numpy\nclass Bad(np.ndarray):\n  @property\n  def shape(self): raise ValueError\n  def __repr__(self): return 'bad'\nBad([1], (1,))", repr("__main__.Bad", `"bad"`)),
		value("del sys.modules['numpy']; 1", "1")),
	several("pandas", code(fakePandas),
		value("pd.DataFrame({'a': [1, 2], 'b': ['x', None]})", `{"$type":"dataframe","columns":["a","b"],"dtypes":["object","object"],"shape":[2,2],"index":[0,1],"value":[[1,"x"],[2,null]]}`),
		value("pd.DataFrame({'a': [float('nan'), 1.5]})", `{"$type":"dataframe","columns":["a"],"dtypes":["object"],"shape":[2,1],"index":[0,1],"value":[[null],[1.5]]}`),
		value("pd.Series([7])", `{"$type":"dataframe","columns":["value"],"dtypes":["object"],"shape":[1,1],"series":true,"index":[0],"value":[[7]]}`),
		value("import datetime\npd.DataFrame({'d': [datetime.date(2024, 2, 29)]})", `{"$type":"dataframe","columns":["d"],"dtypes":["object"],"shape":[1,1],"index":[0],"value":[["2024-02-29"]]}`),
		wants(code("pd.DataFrame({'a': list(range(100000))})"), func(s *step) {
			s.matches = `\{"\$type":"dataframe","columns":\["a"\],"dtypes":\["object"\],"shape":\[100000,1\],"index":\[0,.*,1023\],"truncated":true,"value":\[\[0\],.*,\[1023\]\]\}`
		}),
		value("{'in': [pd.Series([7])]}", `{"in":[{"$type":"dataframe","columns":["value"],"dtypes":["object"],"shape":[1,1],"series":true,"index":[0],"value":[[7]]}]}`),
		value("del sys.modules['pandas']; 1", "1")),
}

const fakeNumpy = `
import sys, types
np = sys.modules['numpy'] = types.ModuleType('numpy')
class generic:
  def __init__(self, v): self.v = v
  def item(self): return self.v
class Flat(list):
  class dtype: kind = 'i'
  def __getitem__(self, i): return Flat(list.__getitem__(self, i))
  def tolist(self): return list(self)
class ndarray:
  dtype = 'int64'
  def __init__(self, items, shape): self._items, self._shape = list(items), shape
  @property
  def shape(self): return self._shape
  @property
  def size(self): return len(self._items)
  @property
  def flat(self): return Flat(self._items)
np.generic, np.ndarray = generic, ndarray
`

const fakePandas = `
import sys, types
pd = sys.modules['pandas'] = types.ModuleType('pandas')
class Index(list):
  def tolist(self): return list(self)
class DataFrame:
  def __init__(self, data, index=None):
    self._d = data
    self.index = Index(range(self.shape[0]) if index is None else index)
  @property
  def shape(self): return len(next(iter(self._d.values()))), len(self._d)
  @property
  def columns(self): return list(self._d)
  @property
  def dtypes(self): return ['object'] * len(self._d)
  @property
  def iloc(self): return self
  def __getitem__(self, at):
    rows, columns = at
    return DataFrame({k: v[rows] for k, v in list(self._d.items())[columns]}, self.index[rows])
  def itertuples(self, index, name): return zip(*self._d.values())
class Series:
  def __init__(self, v): self.v = v
  def to_frame(self): return DataFrame({'value': self.v})
pd.DataFrame, pd.Series = DataFrame, Series
`
