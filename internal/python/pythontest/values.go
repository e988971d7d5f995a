package pythontest

import (
	"strconv"
	"strings"
)

// tooLarge is a step whose value exceeds a limit.
func tooLarge(code, message string) step {
	s := failing(code, message)
	s.errorCode = "ERR_PAYLOAD_TOO_LARGE"
	return s
}

// repr is a tagged repr as compact JSON.
func repr(class, text string) string {
	return `{"$type":"repr","class":` + strconv.Quote(class) + `,"value":` + text + `}`
}

// nested is JSON that is depth arrays around an item.
func nested(depth int, item string) string {
	return strings.Repeat("[", depth) + item + strings.Repeat("]", depth)
}

const (
	circular  = `{"$type":"circular","value":"[Circular]"}`
	truncated = `{"$type":"truncated","value":"[TruncatedDepth]"}`
)

// The value of a request is its last expression, as JSON where JSON is exact, else with a type tag,
// within the limits (PY-05, PY-22).
var valueCases = []testCase{
	run("sum", "1+1", "2"),
	run("no expression", "x = 1", "-"),
	run("no code", "", "-"),
	run("comment", "# nothing", "-"),
	run("none", "None", "null"),
	run("true", "True", "true"),
	run("last of several", "1\n2\n3", "3"),
	run("one line", "a = 2; a * 3", "6"),
	run("expression before a statement", "1\nx = 2", "-"),
	run("string alone", "'text'", `"text"`),
	run("f-string", "x = 4; f'{x:>3}'", `"  4"`),
	run("lambda called", "(lambda: 7)()", "7"),
	run("walrus", "(n := 5)", "5"),
	run("future import", "from __future__ import annotations\nx: unknown = 1\nx", "1"),
	run("await", "import asyncio\nawait asyncio.sleep(0, 'slept')", `"slept"`),
	run("await in a statement", "import asyncio\nx = await asyncio.sleep(0, 3)\nx + 1", "4"),
	run("async for", "async def g():\n  yield 1\n  yield 2\nr = []\nasync for i in g():\n  r.append(i)\nr", "[1,2]"),
	run("async comprehension", "async def g():\n  yield 1\n  yield 2\n[i async for i in g()]", "[1,2]"),
	run("gather", "import asyncio\nawait asyncio.gather(asyncio.sleep(0, 1), asyncio.sleep(0, 2))", "[1,2]"),

	run("largest exact int", "2**53", "9007199254740992"),
	run("smallest exact int", "-2**53", "-9007199254740992"),
	run("int beyond", "2**53+1", `{"$type":"int","value":"9007199254740993"}`),
	run("negative int beyond", "-2**53-1", `{"$type":"int","value":"-9007199254740993"}`),
	run("int of 2000 digits", "10**1999", `{"$type":"int","value":"1`+strings.Repeat("0", 1999)+`"}`),
	match("int of 5000 digits", "10**4999", `\{"\$type":"repr","class":"int","value":"0x[0-9a-f]{20,}\.\.\. \(16607 bits\)"\}`),
	match("negative int of 100,000 digits", "-(1 << 332192)", `\{"\$type":"repr","class":"int","value":"-0x80+\.\.\. \(332193 bits\)"\}`),
	run("float", "1.5", "1.5"),
	run("whole float", "2.0", "2.0"),
	run("negative zero", "-0.0", "-0.0"),
	run("large float", "1e300", "1e+300"),
	run("smallest float", "5e-324", "5e-324"),
	run("nan", "float('nan')", `{"$type":"float","value":"NaN"}`),
	run("infinity", "float('inf')", `{"$type":"float","value":"Infinity"}`),
	run("negative infinity", "[float('-inf')]", `[{"$type":"float","value":"-Infinity"}]`),
	run("complex", "1j", repr("complex", `"1j"`)),
	run("bytes", `b'\x00\xff'`, `{"$type":"bytes","value":"AP8="}`),
	run("bytearray", `bytearray(b'ab')`, `{"$type":"bytes","value":"YWI="}`),
	run("no bytes", `b''`, `{"$type":"bytes","value":""}`),
	run("text", `'ü€😀\n"\\'`, `"ü€😀\n\"\\"`),
	run("control characters", `'\x00\x7f'`, `"\u0000`+"\x7f"+`"`),
	run("line separators", `'\u2028'`, "\"\u2028\""),
	run("surrogate", `'\udc80'`, repr("str", `"'\\udc80'"`)),
	run("surrogate in a list", `['a', '\ud800x']`, `["a",`+repr("str", `"'\\ud800x'"`)+`]`),
	run("surrogate as a key", `{'\ud800': 1}`, repr("dict", `"{'\\ud800': 1}"`)),
	run("surrogate pair", `'\ud83d\ude00'`, repr("str", `"'\\ud83d\\ude00'"`)),

	run("empty list", "[]", "[]"),
	run("list", "[1, 'a', None, [2.5]]", `[1,"a",null,[2.5]]`),
	run("tuple", "(1, (2,))", "[1,[2]]"),
	run("dict", "{'b': 1, 'a': {'c': []}}", `{"b":1,"a":{"c":[]}}`),
	run("empty dict", "{}", "{}"),
	run("int keys", "{1: 'a'}", repr("dict", `"{1: 'a'}"`)),
	run("mixed keys", "{'a': 1, None: 2}", repr("dict", `"{'a': 1, None: 2}"`)),
	run("key of tags", "{'$type': 'int', 'value': '1'}", repr("dict", `"{'$type': 'int', 'value': '1'}"`)),
	run("set", "{3}", repr("set", `"{3}"`)),
	run("frozenset", "frozenset([3])", repr("frozenset", `"frozenset({3})"`)),
	run("range", "range(3)", repr("range", `"range(0, 3)"`)),
	run("named tuple", "from collections import namedtuple\nnamedtuple('P', 'x y')(1, 2)", "[1,2]"),
	run("ordered dict", "from collections import OrderedDict\nOrderedDict(b=1, a=2)", `{"b":1,"a":2}`),
	run("default dict", "from collections import defaultdict\nd = defaultdict(list); d['a'].append(1); d", `{"a":[1]}`),
	run("enum of ints", "from enum import IntEnum\nclass E(IntEnum):\n  A = 3\nE.A", "3"),
	run("subclass of str", "class S(str): pass\nS('x')", `"x"`),
	run("subclass of float", "class F(float): pass\nF('nan')", `{"$type":"float","value":"NaN"}`),
	match("object", "object()", `\{"\$type":"repr","class":"object","value":"<object object at 0x[0-9a-f]+>"\}`),
	match("function", "def f(): pass\nf", `\{"\$type":"repr","class":"function","value":"<function f at 0x[0-9a-f]+>"\}`),
	run("class", "class C: pass\nC", repr("type", `"<class '__main__.C'>"`)),
	run("exception", "ValueError('x')", repr("ValueError", `"ValueError('x')"`)),
	run("date", "import datetime\ndatetime.date(2024, 2, 29)", repr("datetime.date", `"datetime.date(2024, 2, 29)"`)),
	run("decimal", "import decimal\ndecimal.Decimal('1.10')", repr("decimal.Decimal", `"Decimal('1.10')"`)),
	match("generator", "(i for i in [1])", `\{"\$type":"repr","class":"generator",.*\}`),
	match("endless iterator", "import itertools\nitertools.count()", `\{"\$type":"repr","class":"itertools.count","value":"count\(0\)"\}`),

	run("depth 8", nested(8, "1"), nested(8, "1")),
	run("depth 9", nested(9, "1"), nested(8, truncated)),
	run("depth 9, empty", nested(9, ""), nested(8, truncated)),
	run("depth 9 of dicts", "x = 1\nfor i in range(9): x = {'a': x}\nx", strings.Repeat(`{"a":`, 8)+truncated+strings.Repeat("}", 8)),
	run("scalars at depth 8", nested(8, "2**60"), nested(8, `{"$type":"int","value":"1152921504606846976"}`)),
	run("circular list", "a = [1]; a.append(a); a", "[1,"+circular+"]"),
	run("circular dict", "d = {}; d['d'] = {'e': d}; d", `{"d":{"e":`+circular+`}}`),
	run("shared siblings", "b = [1]; [b, b, {'b': b}]", `[[1],[1],{"b":[1]}]`),
	run("shared and circular", "a = []; a.append([a, a]); [a, a]", "[[["+circular+","+circular+"]],[["+circular+","+circular+"]]]"),
	match("1024 items", "list(range(1024))", `\[0,1,.*,1023\]`),
	several("1025 items", tooLarge("list(range(1025))", "the value cannot be returned: the value has a list with 1025 items")),
	match("1024 properties", "{str(i): i for i in range(1024)}", `\{"0":0,.*\}`),
	several("1025 properties", tooLarge("{str(i): i for i in range(1025)}", "the value cannot be returned: the value has a dict with 1025 properties")),
	several("1025 items below", tooLarge("{'a': [tuple(range(1025))]}", "the value cannot be returned: the value has a tuple with 1025 items")),
	match("just 4 MiB", "'x' * ((4 << 20) - 2)", `"x{900}x*"`),
	several("beyond 4 MiB", tooLarge("'x' * ((4 << 20) - 1)", "the value cannot be returned: the value is larger than 4194304 bytes")),
	several("beyond 4 MiB in UTF-8", tooLarge(`'\u20ac' * (2 << 20)`, "the value cannot be returned: the value is larger")),
	several("beyond 4 MiB by escapes", tooLarge(`'\x00' * (1 << 20)`, "the value cannot be returned: the value is larger")),
	several("beyond 4 MiB of bytes", tooLarge("b'x' * (4 << 20)", "the value cannot be returned: the value is larger")),
	several("1024 to the eighth items", tooLarge("x = 0\nfor i in range(8): x = [x] * 1024\nx", "the value cannot be returned: the value is larger")),
	several("state after an oversized value", tooLarge("kept = 5; 'x' * (5 << 20)", "the value cannot"), value("kept", "5")),
}

// What lies about itself, raises or does not end is shown as what it is (PY-05, PY-22).
var lyingCases = []testCase{
	run("repr raises", "class A:\n  def __repr__(self): raise ValueError(1)\nA()", repr("__main__.A", `"<__main__.A object, repr() raised ValueError>"`)),
	run("repr exits", "class A:\n  def __repr__(self): raise SystemExit(9)\nA()", repr("__main__.A", `"<__main__.A object, repr() raised SystemExit>"`)),
	run("repr is no text", "class A:\n  def __repr__(self): return 5\nA()", repr("__main__.A", `"<__main__.A object, repr() raised TypeError>"`)),
	run("repr recurses", "class A:\n  def __repr__(self): return repr(self)\nA()", repr("__main__.A", `"<__main__.A object, repr() raised RecursionError>"`)),
	match("huge repr", "class A:\n  def __repr__(self): return 'x' * (20 << 20)\nA()", `\{"\$type":"repr","class":"__main__.A","value":"x{900}x+ \.\.\. \d+ characters omitted \.\.\. x{900}x+"\}`),
	run("repr of a lying str", "class S(str):\n  def __len__(self): return 10**9\n  def __getitem__(self, i): raise ValueError\n  def __str__(self): return 'no'\nclass A:\n  def __repr__(self): return S('yes')\nA()", repr("__main__.A", `"yes"`)),
	run("repr with a surrogate", `class A:
  def __repr__(self): return '\ud800'
A()`, repr("__main__.A", `"\\ud800"`)),
	run("class lies", "class A:\n  __class__ = int\n  def __repr__(self): return 'A'\nA()", repr("__main__.A", `"A"`)),
	run("class raises", "class A:\n  @property\n  def __class__(self): raise ValueError\n  def __repr__(self): return 'A'\nA()", repr("__main__.A", `"A"`)),
	run("attributes raise", "class A:\n  def __getattribute__(self, n): raise ValueError\n  def __repr__(self): return 'A'\nA()", repr("__main__.A", `"A"`)),
	run("equality and hash raise", "class A:\n  def __eq__(self, o): raise ValueError\n  def __hash__(self): raise ValueError\n  def __bool__(self): raise ValueError\n  def __repr__(self): return 'A'\n[A()]", "["+repr("__main__.A", `"A"`)+"]"),
	run("list with a lying length", "class L(list):\n  def __len__(self): return 10**9\n  def __iter__(self): raise ValueError\nL([1, 2])", "[1,2]"),
	run("dict with lying items", "class D(dict):\n  def items(self): raise ValueError\n  def __len__(self): return -1\n  def keys(self): raise ValueError\nD(a=1)", `{"a":1}`),
	run("int with lying methods", "class I(int):\n  def __index__(self): return 7\n  def __int__(self): return 8\n  def __le__(self, o): return True\n  def __str__(self): return 'no'\nI(5)", "5"),
	run("str with lying methods", "class S(str):\n  def __str__(self): return 'no'\n  def encode(self, *a): raise ValueError\nS('yes')", `"yes"`),
	run("bytes with lying methods", "class B(bytes):\n  def __len__(self): return 1\n  def __bytes__(self): return b'no'\n  def __getitem__(self, i): return b'no'\nB(b'yes')", `{"$type":"bytes","value":"eWVz"}`),
	run("metaclass lies", "class M(type):\n  __qualname__ = 'no'\n  def mro(self): return type.mro(self)\n  def __subclasscheck__(self, o): return True\n  def __instancecheck__(self, o): return True\n  def __eq__(self, o): return True\n  __hash__ = type.__hash__\nclass A(metaclass=M):\n  def __repr__(self): return 'A'\nA()", repr("__main__.A", `"A"`)),
	run("module name is no text", "class A:\n  __module__ = 5\n  def __repr__(self): return 'A'\nA()", repr("A", `"A"`)),
	run("fake numpy", "import sys\nclass N:\n  def __getattr__(self, n): raise SystemExit\nsys.modules['numpy'] = N()\ntry:\n  x = [object.__repr__ and 1]\nfinally:\n  pass\ndel sys.modules['numpy']\nx", "[1]"),
	several("fake pandas", code("import sys, types\nm = sys.modules['pandas'] = types.ModuleType('pandas')\nclass DataFrame:\n  @property\n  def shape(self): raise ValueError\n  def __repr__(self): return 'fake'\nm.DataFrame = DataFrame"),
		value("DataFrame()", repr("__main__.DataFrame", `"fake"`)), value("del sys.modules['pandas']\n1", "1")),
	run("list that grows in repr", "class A:\n  def __repr__(self):\n    x.append(1); return 'A'\nx = [A()]\nx[:1]", "["+repr("__main__.A", `"A"`)+"]"),
	raises("error with a raising text", "class E(Exception):\n  def __str__(self): raise ValueError\nraise E()", "E: <"),
	raises("error with a lying class", "class E(Exception):\n  __class__ = SystemExit\n  code = 0\nraise E('x')", ""),
	raises("error that exits in its text", "class E(Exception):\n  def __str__(self): raise SystemExit(0)\nraise E()", ""),
	raises("error with a huge text", "raise ValueError('x' * (5 << 20))", "ValueError: xxx"),
	raises("error with a surrogate", `raise ValueError('\ud800')`, `ValueError: \ud800`),
	raises("chain of 5000 causes", "e = None\nfor i in range(5000):\n  n = ValueError(i); n.__cause__ = e; e = n\nraise e", "ValueError: 4999"),
	raises("circular cause", "a, b = ValueError('a'), ValueError('b')\na.__cause__ = b; b.__cause__ = a\nraise a", "ValueError: a"),
}
