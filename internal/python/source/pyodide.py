"""The worker of the runtime pyodide, in Pyodide. pyodide.js loads it and calls start."""

import _imp
import asyncio
import gc
import io
import json
import os
import random
import re
import sys
import time
from importlib.machinery import PathFinder

import _ast
import _dray_core
import _dray_dray
import _dray_packages
from _dray_core import ONLY_AST, Refusal

INSTALL = "ERR_PYTHON_PACKAGE_INSTALL_UNSUPPORTED"
INSTALLERS = frozenset(["pip", "ensurepip", "micropip"])
LOADERS = frozenset(["loadPackage", "loadPackagesFromImports"])


class InstallRefusal(Refusal, ImportError):
    """Is an ImportError, because libraries that try to import pip go on without it."""

    def __init__(self, what):
        Refusal.__init__(self, 1, INSTALL, what + " cannot install packages in this runtime; "
                         "use the modules that it has, or the runtime container")


class Finder:
    """Refuses the modules that install packages when they are imported."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in INSTALLERS:
            raise InstallRefusal(name)
        return None


class Selector:
    """Waits only for time: there is no other source of events."""

    def select(self, timeout):
        if timeout is None:
            raise RuntimeError("the code awaits what never happens")
        if timeout > 0:
            sleep(timeout)
        return ()

    def close(self):
        pass


class Loop(asyncio.BaseEventLoop):
    """An event loop without sockets and processes."""

    def __init__(self):
        super().__init__()
        self._selector = Selector()

    def _process_events(self, events):
        pass

    def _write_to_self(self):
        pass


class Policy(asyncio.events._BaseDefaultEventLoopPolicy):
    """Makes asyncio.run use Loop."""

    _loop_factory = Loop


class Runtime:
    """What the session needs (core.py)."""

    def __init__(self):
        self.armed = False
        self.missed = False  # an interrupt came while it was not armed
        self.loop = Loop()
        self.out = None
        self.packages = None  # set by start
        self.memory = self.wait = None  # of JavaScript, set by start

    def arm(self):
        self.armed = True

    def disarm(self):
        self.armed = False

    def interrupt(self, _signal, _frame):
        if self.armed:
            raise KeyboardInterrupt
        self.missed = True

    def explain(self, err):
        return self.packages.explain(err)

    async def drive(self, coroutine):
        """Runs a coroutine in the loop of the session. Tasks that it leaves are cancelled."""
        if self.loop.is_closed():
            self.loop = Loop()
        asyncio.set_event_loop(self.loop)
        return _dray_core.run_to_end(self.loop, coroutine)

    def streams(self):
        if self.out is None or not all(map(_usable, self.out)):
            self.out = [_writer(1, "surrogateescape"), _writer(2, "backslashreplace")]
        return [_Stdin()] + self.out

    def usage(self):
        return time.process_time() * 1000, self.memory() + self.packages.size


class Calm:
    """Puts an interrupt off until its end."""

    def __enter__(self):
        self.armed, runtime.armed, runtime.missed = runtime.armed, False, False

    def __exit__(self, *_):
        runtime.armed = self.armed
        if self.armed and runtime.missed:
            raise KeyboardInterrupt


def sleep(seconds, /):
    """Replaces time.sleep, which uses the processor all the time and ignores interrupts."""
    seconds = _seconds(seconds)
    until = time.monotonic() + seconds
    while True:
        left = until - time.monotonic()
        if left <= 0 and seconds > 0:
            return
        runtime.wait(max(0, left) * 1000)
        # Returning to the interpreter's loop lets it see an interrupt.
        if seconds <= 0:
            return


def _seconds(value):
    try:
        value = float(value)
    except TypeError:
        raise TypeError("%r object cannot be interpreted as a number" % type(value).__name__) from None
    if value != value:
        raise ValueError("Invalid value NaN (not a number)")
    if value < 0:
        raise ValueError("sleep length must be non-negative")
    return min(value, 1e9)


def _usable(stream):
    try:
        return not stream.closed and not stream.buffer.closed and not stream.buffer.raw.closed
    except (ValueError, AttributeError):  # it is detached
        return False


def _writer(fd, errors):
    buffer = io.BufferedWriter(io.FileIO(fd, "w", closefd=False))
    return io.TextIOWrapper(buffer, "utf-8", errors, line_buffering=True)


class _Stdin(io.TextIOWrapper):
    """The stdin of one request."""

    def __init__(self):
        super().__init__(io.BufferedReader(io.FileIO(0, "r", closefd=False)), "utf-8")


def check_installs(source, name):
    """Refuses code that names an installer, before any of it runs."""
    try:
        tree = compile(source, name, "exec", ONLY_AST | _dray_core.AWAIT, True)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        if re.search(r"^\s*[%!]\s*(pip|micropip)\b", source, re.M):  # as in a notebook
            raise InstallRefusal("pip") from None
        return  # it does not run either
    todo = [tree]
    while todo:
        node = todo.pop()
        for field in node._fields:
            value = getattr(node, field, None)
            if isinstance(value, _ast.AST):
                todo.append(value)
            elif isinstance(value, list):
                todo += [v for v in value if isinstance(v, _ast.AST)]
        found = _installer(node)
        if found:
            raise InstallRefusal(found)


def _installer(node):
    names = ()
    if isinstance(node, _ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, _ast.ImportFrom) and not node.level:
        names = [node.module] + [alias.name for alias in node.names if alias.name in LOADERS]
    elif isinstance(node, _ast.Attribute) and node.attr in LOADERS:
        names = [node.attr]
    elif isinstance(node, _ast.Name) and node.id in LOADERS and isinstance(node.ctx, _ast.Load):
        names = [node.id]
    elif isinstance(node, _ast.Call):
        names = _called(node)
    for name in names:
        if name and (name in LOADERS or name.partition(".")[0] in INSTALLERS):
            return name
    return None


_IMPORTS = frozenset(["__import__", "import_module", "run_module", "find_spec", "getattr"])


def _called(node):
    """Returns what a call of import_module and the like names, or `pip` of a command line."""
    function = node.func
    name = getattr(function, "id", None) or getattr(function, "attr", None)
    words = [a.value for a in node.args if isinstance(a, _ast.Constant) and type(a.value) is str]
    if name in _IMPORTS:
        return words
    lists = [a for a in node.args if isinstance(a, (_ast.List, _ast.Tuple))]
    for sequence in lists:
        items = [getattr(item, "value", None) for item in sequence.elts]
        for at, item in enumerate(items):
            if item == "-m" and at + 1 < len(items) and items[at + 1] in INSTALLERS:
                return [items[at + 1]]
        if items and items[0] in INSTALLERS:
            return [items[0]]
    if name in ("system", "popen", "getoutput", "run", "call", "check_call", "check_output", "Popen"):
        for word in words:
            found = re.match(r"\s*(?:python[\d.]*\s+-m\s+)?(pip|micropip|ensurepip)[\d.]*\b", word)
            if found:
                return [found.group(1)]
    return ()


class Session(_dray_core.Session):
    """Refuses installers before the code runs."""

    def enter(self, request):
        os.makedirs(request["cwd"], exist_ok=True)
        sys.modules["dray"] = _dray_dray
        names = super().enter(request)
        source = request.get("code")
        if request.get("file"):
            try:
                with open(request["file"], "rb") as file:
                    source = file.read().decode("utf-8", "replace")
            except OSError:
                source = None  # core says why
        if source:
            check_installs(source, request.get("file") or request.get("name") or "<code>")
        return names


runtime = Runtime()
session = None


def execute(text):
    """Runs a request and returns its reply, both as JSON."""
    coroutine = session.run(_dray_core.decode(text))
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise RuntimeError("the session did not end")


def start(host):
    """Makes the session. All that runs before may come from a memory snapshot."""
    global session
    import signal

    signal.signal(signal.SIGINT, runtime.interrupt)
    asyncio._set_running_loop(None)  # Pyodide's own loop is not used
    asyncio.events._set_event_loop_policy(Policy())
    runtime.wait, runtime.memory = host.sleep, host.memory
    broker = host.broker
    _dray_dray._send = lambda call: broker(call[1:])
    time.sleep = sleep
    sys.dont_write_bytecode = True  # it would come back as a change of the workspace
    sys.executable = ""
    _reseed()
    if host.locked:
        _hide()
    runtime.packages = _dray_packages.Packages(host.readPackage, host.packageLimit, Calm)
    sys.meta_path.insert(sys.meta_path.index(PathFinder), runtime.packages)
    sys.meta_path.insert(0, Finder)
    failure = runtime.packages.preload(json.loads(host.preload))
    if failure:
        host.fail(failure)
    sys.stdin, sys.stdout, sys.stderr = runtime.streams()
    main = sys.modules["__main__"].__dict__
    for name in [n for n in main if n.startswith("_dray")]:
        del main[name]
    session = Session(runtime)
    version = "%d.%d.%d" % sys.version_info[:3]
    gc.collect()
    gc.freeze()
    hello = json.dumps({"python": version, "executable": "", "prefix": sys.prefix})
    return hello, execute


def _reseed():
    """Replaces the random state of the snapshot. The seed of str hashes cannot be replaced."""
    random.seed(int.from_bytes(os.urandom(32)))
    for name in ("numpy.random",):
        module = sys.modules.get(name)
        if module is not None:
            module.seed(int.from_bytes(os.urandom(4)))


def _hide():
    """Removes the module of Pyodide's JavaScript interface."""
    from _pyodide._importhook import jsfinder

    jsfinder.jsproxies.pop("pyodide_js", None)
    sys.modules.pop("pyodide_js", None)
