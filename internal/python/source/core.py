"""Runs the requests of a session and restores what a request may change (PY-04, PY-28).

Both runtimes use this file. It needs no processes and no threads. A runtime passes an object with

    arm(), disarm()       from arm to disarm KeyboardInterrupt may be raised, by SIGINT or otherwise
    async drive(coro)     runs a coroutine of user code to its end and returns its result
    streams()             the (stdin, stdout, stderr) of the request
    usage()               (milliseconds of processor time so far, peak of memory in bytes)
    explain(err)          a note to add to an ImportError, or None

The sources of dray are compiled with file names that start with OURS. Tracebacks leave their frames
out.
"""

import _ast
import collections
import json
import linecache
import os
import sys
import time
import traceback
import types

from _dray_values import MAX_BYTES, TooLarge, class_name, clean, is_a, to_json

OURS = "<dray "
TEXT = 64 << 10  # characters of a traceback
MESSAGE = 8 << 10
SLOT = "__dray_value__"  # the last expression is assigned to this global
AWAIT = 0x2000  # ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
ONLY_AST = 0x400
COROUTINE = 0x80  # inspect.CO_COROUTINE

decode = json.JSONDecoder().decode
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Refusal(Exception):
    """A request is not run. It has the exit code, a code of the closed list, and a message."""

    def __init__(self, exit_code, code, message):
        super().__init__(message)
        self.exit_code, self.code, self.message = exit_code, code, message


class Sources:
    """Registers the code of requests, so that tracebacks have its lines. Keeps the last 200."""

    def __init__(self):
        self.names = collections.deque()
        self.count = 0

    def add(self, name, text):
        self.count += 1
        name = name or "<code>"
        if name in self.names:  # functions of an earlier call have it
            name = name[:-1] + " %d>" % self.count if name.endswith(">") else name
        linecache.cache[name] = len(text), None, text.splitlines(True), name
        self.names.append(name)
        if len(self.names) > 200:
            linecache.cache.pop(self.names.popleft(), None)
        return name


class Session:
    """The state of one worker."""

    def __init__(self, runtime):
        self.runtime = runtime
        self.sources = Sources()
        self.main = _new_main()
        self.path = list(sys.path)
        self.environ = _environ()
        self.objects = sys.path, sys.modules, os.environ
        self.limit = sys.getrecursionlimit()

    async def run(self, request):
        """Runs a request, which is decoded JSON, and returns its reply as JSON text.

        No exception of the request leaves it. Threads and forked processes of user code may raise.
        """
        wall, (cpu, _) = time.perf_counter(), self.runtime.usage()
        run = _Run(self, request)
        await run.execute()
        while True:  # an interrupt may still be on its way
            try:
                self.runtime.disarm()
                self.leave()
                break
            except KeyboardInterrupt:
                pass
        cpu_now, memory = self.runtime.usage()
        return run.reply(_encode({
            "wall_ms": _millis(time.perf_counter() - wall), "cpu_ms": max(0, round(cpu_now - cpu, 3)),
            "memory_bytes": memory,
        }))

    def enter(self, request):
        """Sets up what the code sees. It runs no user code."""
        main = _new_main() if request["state"] == "fresh" else self.main
        names = main.__dict__
        for name in _MAIN:
            names[name] = _MAIN[name]
        names.pop("__file__", None)
        names["__builtins__"] = _builtins
        sys.modules["__main__"] = main
        self.enter_process(request)
        path, code = _first_path(request), "-c"
        if request.get("name") == "<stdin>":
            code = "-"
        sys.path[:] = [path] + self.path
        for folder in (path, request["cwd"]):  # files may have come since the last call
            sys.path_importer_cache.pop(folder, None)
        sys.argv = [request.get("file") or (request.get("module") and "-m") or code]
        sys.argv += request.get("argv") or []
        sys.stdin, sys.stdout, sys.stderr = self.runtime.streams()
        names.update(request.get("inputs") or {})
        return names

    def enter_process(self, request):
        try:
            os.chdir(request["cwd"])
        except (OSError, ValueError) as err:
            raise Refusal(1, "bad_cwd", "change to directory %s: %s" % (request["cwd"], _reason(err)))
        if request.get("env"):
            try:
                os.environ.update(request["env"])
            except (OSError, ValueError) as err:
                raise Refusal(1, "invalid_input", "set the variables of the call: %s" % _reason(err))

    def leave(self):
        """Restores what a request may have changed."""
        for restore in (
            _settrace, _setprofile, self.restore_streams, self.restore_modules,
            self.restore_process,
        ):
            try:
                restore(None)
            except KeyboardInterrupt:
                raise
            except BaseException:
                pass  # user code has broken it, which only its own session notices

    def restore_streams(self, _):
        _, sys.stdout, sys.stderr = self.runtime.streams()
        sys.stdin = None
        sys.stdout.flush()
        sys.stderr.flush()

    def restore_modules(self, _):
        sys.path, sys.modules, os.environ = self.objects
        sys.modules["__main__"] = self.main
        sys.path[:] = self.path
        sys.argv = [""]
        if sys.getrecursionlimit() != self.limit:
            sys.setrecursionlimit(self.limit)

    def restore_process(self, _):
        if _environ() != self.environ:
            os.environ.clear()
            for name, value in self.environ.items():
                os.environ[os.fsdecode(name)] = os.fsdecode(value)
        os.chdir("/")


class _Run:
    """One request and its outcome."""

    def __init__(self, session, request):
        self.session, self.runtime, self.request = session, session.runtime, request
        self.code, self.error = 0, None
        self.value, self.globals, self.missing = None, {}, []

    async def execute(self):
        # The code runs in this very frame, because StopIteration cannot leave a coroutine. disarm
        # comes before all that an interrupt must not end. The outer handlers catch an interrupt that
        # arrives between two of these lines.
        try:
            try:
                names = self.enter()
                self.runtime.arm()
                try:
                    code, wanted = self.prepare(names)
                    if code is None:
                        self.run_module(names)
                    elif code.co_flags & COROUTINE:
                        await self.drive(eval(code, names), code)
                    else:
                        exec(code, names)
                    value = names.pop(SLOT, None)
                finally:
                    names.pop(SLOT, None)
                    _flush()
                self.take(value, wanted, names)
            finally:
                self.runtime.disarm()
        except Refusal as err:
            self.runtime.disarm()
            self.refuse(err)
        except BaseException as err:
            self.runtime.disarm()
            if isinstance(err.__cause__, Refusal):  # runpy wraps what an import raises
                self.refuse(err.__cause__)
            else:
                self.fail(err)

    def enter(self):
        try:
            return self.session.enter(self.request)
        except (Refusal, KeyboardInterrupt):
            raise
        except BaseException as err:  # user code has replaced what enter calls, as os.chdir
            raise RuntimeError("earlier code has broken the session, reset it: %s" % (
                _last_line(err))) from None

    def prepare(self, names):
        """Returns the code to run, None for a module, and whether it has a value."""
        if self.request.get("module"):
            return None, False
        if self.request.get("file"):
            name = names["__file__"] = self.request["file"]
            if os.path.isdir(name):
                return None, False
            source = _read(name)
        else:
            source = self.request.get("code") or ""
            name = self.session.sources.add(self.request.get("name"), source)
        return _compile(source, name)

    def take(self, value, wanted, names):
        """Converts the value and the globals that the request asks for."""
        if wanted:
            self.value = self.convert("the value", value, MAX_BYTES)
        left = MAX_BYTES
        for name in dict.fromkeys(self.request.get("globals") or []):
            if name not in names:
                self.missing.append(name)
                continue
            self.globals[name] = self.convert("the global " + name, names[name], left)
            left -= len(self.globals[name].encode())

    async def drive(self, coroutine, code):
        """Runs a coroutine. Tracebacks begin with its frame, after those of the event loop."""
        try:
            await self.runtime.drive(coroutine)
        except BaseException as err:
            trace = err.__traceback__
            while trace is not None and trace.tb_frame.f_code is not code:
                trace = trace.tb_next
            raise err.with_traceback(trace or err.__traceback__)

    def run_module(self, names):
        """Runs a module, or the __main__ of a directory, as python does."""
        if "__file__" in names:
            _runpy()._run_module_as_main("__main__", alter_argv=False)
            return
        _runpy()._run_module_as_main(self.request["module"])

    def convert(self, what, value, limit):
        try:
            return to_json(value, limit)
        except TooLarge as err:
            raise Refusal(1, "ERR_PAYLOAD_TOO_LARGE", "%s cannot be returned: %s; return a part of "
                          "it, print it, or write it to a file" % (what, err))

    def refuse(self, err):
        self.code, self.value, self.globals = err.exit_code, None, {}
        self.error = {"code": err.code, "message": clean(err.message, MESSAGE)}

    def fail(self, err):
        """Sets the outcome of an exception. Its methods are user code, which may not end."""
        self.value, self.globals, self.missing = None, {}, []
        try:
            try:
                self.runtime.arm()
                if is_a(err, ImportError) and (note := self.runtime.explain(err)):
                    BaseException.add_note(err, note)
                self.code, self.error = _outcome(err)
            finally:
                self.runtime.disarm()
        except BaseException as second:
            self.runtime.disarm()
            self.code = 1
            self.error = {"message": "%s: the exception cannot be printed: %s" % (
                class_name(err), class_name(second))}

    def reply(self, usage):
        parts = ['"ok":%s,"code":%d' % ("true" if self.code == 0 else "false", self.code)]
        if self.value is not None:
            parts.append('"value":' + self.value)
        if self.globals:
            pairs = (_encode(name) + ":" + value for name, value in self.globals.items())
            parts.append('"globals":{%s}' % ",".join(pairs))
        if self.missing:
            parts.append('"missing":' + _encode(self.missing))
        if self.error:
            parts.append('"error":' + _encode(self.error))
        return "{%s}" % ",".join(parts + ['"usage":' + usage])


def run_to_end(loop, coroutine):
    """Runs a coroutine and returns its result. The tasks that it leaves are cancelled."""
    import asyncio

    try:
        return loop.run_until_complete(coroutine)
    finally:
        left = asyncio.all_tasks(loop)
        for one in left:
            one.cancel()
        if left:
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))


def _compile(source, name):
    """Returns the code of source, which assigns the last expression to SLOT if there is one."""
    tree = compile(source, name, "exec", ONLY_AST | AWAIT, True)
    last = tree.body[-1] if tree.body else None
    wanted = type(last) is _ast.Expr
    if wanted:
        place = {"lineno": last.lineno, "col_offset": last.col_offset,
                 "end_lineno": last.end_lineno, "end_col_offset": last.end_col_offset}
        target = _ast.Name(id=SLOT, ctx=_ast.Store(), **place)
        tree.body[-1] = _ast.Assign(targets=[target], value=last.value, type_comment=None, **place)
    return compile(tree, name, "exec", AWAIT, True), wanted


def _read(name):
    try:
        with open(name, "rb") as file:
            return file.read()
    except (OSError, ValueError) as err:
        code = "denied" if isinstance(err, PermissionError) else "not_found"
        number = getattr(err, "errno", None)
        raise Refusal(2, code, "can't open file '%s': [Errno %s] %s" % (name, number, _reason(err)))


def _first_path(request):
    """Returns sys.path[0] as python does."""
    if request.get("module"):
        _runpy()
        return request["cwd"]
    name = request.get("file")
    if not name:
        return ""
    return name if os.path.isdir(name) else os.path.dirname(os.path.realpath(name))


def _runpy():
    """Imports runpy while sys.path is ours: it is slow to load and seldom needed."""
    import runpy

    return runpy


def _outcome(err):
    """Returns the exit code and the error of an exception, as python prints them."""
    if is_a(err, SystemExit):
        return _exit_code(err)
    error = {"message": clean(_last_line(err), MESSAGE), "traceback": clean(_format(err), TEXT)}
    name = getattr(err, "errno_name", None)  # of dray.DrayError
    if type(name) is str and name in ("EACCES", "ENOSYS"):
        error["code"] = name
    return 1, error


def _exit_code(err):
    code = err.code
    if code is None:
        return 0, None
    if is_a(code, int):
        code = int.__pos__(code)
        code = code if -1 << 63 <= code < 1 << 63 else -1
        return code & 0xFF, None
    return 1, {"message": clean(str(code), MESSAGE)}


def _last_line(err):
    lines = traceback.format_exception_only(type(err), err)
    if is_a(err, SyntaxError) and len(lines) > 1:
        lines = [line for line in lines if not line.startswith(" ")]
    return "".join(lines).strip()


def _format(err):
    try:
        found = traceback.TracebackException(type(err), err, err.__traceback__)
        _leave_out(found)
        return "".join(found.format())
    except RecursionError:  # a chain of thousands of causes
        return "".join(traceback.format_exception_only(type(err), err))


def _leave_out(found):
    """Removes the frames of dray from a traceback and those of its causes."""
    todo, seen = [found], set()
    while todo:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        one.stack[:] = [f for f in one.stack if not f.filename.startswith(OURS)]
        if not one.stack:
            one.stack = None if _EMPTY_STACK_HAS_HEADER else one.stack
        todo += [one.__cause__, one.__context__] + list(getattr(one, "exceptions", None) or [])


# Since 3.10 a traceback of no frames has a header, unless its stack is None.
_EMPTY_STACK_HAS_HEADER = sys.version_info >= (3, 10)


def _flush():
    """Flushes the streams, which user code may have replaced."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass


def _reason(err):
    return getattr(err, "strerror", None) or str(err)


def _millis(seconds):
    return round(seconds * 1000, 3)


def _environ():
    """Returns the variables as bytes: a copy without decoding costs little."""
    return dict(getattr(os.environ, "_data", None) or os.environb)


_builtins = sys.modules["builtins"]
_settrace, _setprofile = sys.settrace, sys.setprofile
_MAIN = {"__name__": "__main__", "__doc__": None, "__package__": None, "__loader__": None,
         "__spec__": None}


def _new_main():
    return types.ModuleType("__main__")
