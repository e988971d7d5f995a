"""The runtime container: a keeper, and the worker that it forks.

The keeper holds the frame channel to the daemon (doc.go of internal/python) and runs no user code.
The worker runs user code and has no descriptor of the channel. For each request the keeper makes
three new pipes and passes their ends over a socket pair, so that what a thread or a child of an
earlier request still writes can reach no later reply. What the worker sends on the socket pair is
as untrusted as user code.

    daemon  <- frames ->  keeper  <- socket pair ->  worker
                                  <- three pipes per request

All modules are imported before user code can change sys.path or the working directory. Nothing is
written to files.
"""

import _signal
import _socket
import _thread
import array
import collections
import errno
import fcntl
import io
import json
import os
import resource
import select
import signal
import struct
import sys
import time

import _dray_core
import _dray_threads

BODY = 1 << 20  # bytes of a frame's body
MAX_REPLY = 10 << 20
MAX_STDIN = 64 << 20  # held for code that does not read; then interrupts wait too
MAX_PENDING = 4 << 20  # of frames that the daemon has not read
RESERVE = 32 << 20  # of memory, for the reply to code that has used its budget
CPU_GRACE = 1.0  # seconds between SIGINT and SIGKILL when the processor time is used up
HEADER = struct.Struct(">IBIII")
LENGTH = struct.Struct(">I")
FDS = struct.Struct("3i")
CMSG_CLOEXEC = 0x40000000
PR_SET_DUMPABLE = 4


def main(config):
    """Starts the worker and runs the keeper. The configuration has generation and memory in bytes."""
    config = json.loads(config)
    # The channel moves away from descriptors 0 and 1. The copies are close-on-exec.
    source = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3)
    sink = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3)
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.chdir("/")
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
    pid = os.fork()
    if pid == 0:
        for fd in (source, sink, ours.detach()):
            os.close(fd)
        os.dup2(null, 2)
        try:
            Worker(theirs, null, config.get("memory", 0)).run()
        finally:
            os._exit(1)
    theirs.close()
    forbid_tracing()
    Keeper(source, sink, ours, pid, config["generation"]).run()


def forbid_tracing():
    """Keeps processes of the same user away from the memory and the descriptors of the keeper."""
    try:
        import _ctypes

        prctl = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")
        _ctypes.call_cdeclfunction(prctl, (PR_SET_DUMPABLE, 0, 0, 0, 0))
    except Exception:
        pass  # an interpreter without ctypes


class ProtocolError(Exception):
    """The daemon or the worker has violated the protocol."""


class Pipes:
    """The three pipes of a request: the keeper's ends, which do not block, and the worker's."""

    def __init__(self):
        theirs, self.stdin = os.pipe()
        self.stdout, out = os.pipe()
        self.stderr, err = os.pipe()
        for fd in (self.stdin, self.stdout, self.stderr):
            os.set_blocking(fd, False)
        self.theirs = (theirs, out, err)

    def close_theirs(self):
        for fd in self.theirs:
            os.close(fd)


class Execution:
    """A request that runs."""

    def __init__(self, pipes, cpu):
        self.outputs = {pipes.stdout: b"o"[0], pipes.stderr: b"e"[0]}
        self.stdin = pipes.stdin  # None once it is closed
        self.input, self.held, self.ended = collections.deque(), 0, False
        self.answer = bytearray()  # of the worker
        self.cpu = cpu  # seconds of processor time at which the budget is used up, or None
        self.expired = None  # when it was, on the monotonic clock
        self.began = time.clock_gettime(time.CLOCK_BOOTTIME)  # as /proc has the start of processes
        self.stopped = False  # by the daemon: the processes that the code started end with it


class Keeper:
    """Passes on requests, stdin and interrupts, and output and replies."""

    def __init__(self, source, sink, sock, pid, generation):
        self.source, self.sink, self.sock, self.pid = source, sink, sock, pid
        self.generation = generation
        self.request = self.sent = self.received = 0
        self.buffer = bytearray()  # of frames from the daemon
        self.parts = []  # of a request
        self.pending, self.size = collections.deque(), 0  # bytes for the daemon
        self.running = None
        self.pipes = Pipes()
        self.poll = select.poll()
        self.handlers = {}
        self.wake, wakeup = os.pipe()
        for fd in (self.wake, wakeup, sink):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.set_wakeup_fd(wakeup)

    def run(self):
        try:
            self.ready()
            self.on(self.source, self.read_frames)
            self.on(self.sock.fileno(), self.read_worker)
            self.on(self.wake, self.reap)
            while True:
                for fd, _ in self.poll.poll(self.timeout()):
                    handler = self.handlers.get(fd)
                    if handler:
                        handler(fd)
                if self.running and self.running.cpu is not None:
                    self.watch_cpu()
        except ProtocolError as err:
            self.abort("the protocol of the Python worker was violated: %s" % err)
        except (BrokenPipeError, ConnectionResetError):
            self.abort("the daemon is gone")

    def ready(self):
        """Waits for the worker, then says hello."""
        if self.sock.recv(5) != b"ready":
            self.reap(None)
            raise ProtocolError("the worker did not start")
        self.add(b"H", json.dumps({
            "python": "%d.%d.%d" % sys.version_info[:3],
            "executable": sys.executable or "", "prefix": sys.prefix,
        }).encode())

    def on(self, fd, handler, event=select.POLLIN):
        if fd not in self.handlers:
            self.handlers[fd] = handler
            self.poll.register(fd, event)

    def off(self, fd):
        if self.handlers.pop(fd, None):
            self.poll.unregister(fd)

    # Frames to the daemon.

    def add(self, kind, body):
        self.write(HEADER.pack(13 + len(body), kind[0], self.generation, self.request, self.sent))
        self.sent += 1
        self.write(body)
        self.flush(self.sink)

    def write(self, data):
        if data:
            self.pending.append(data)
            self.size += len(data)

    def flush(self, fd):
        """Writes as much as the daemon reads. Above MAX_PENDING the output of the code waits."""
        while self.pending:
            chunk = b"".join(self.pending) if self.size < 1 << 16 else self.pending[0]
            try:
                count = os.write(fd, chunk)
            except BlockingIOError:
                break
            self.size -= count
            if chunk is self.pending[0]:
                self.pending.popleft()
            else:
                self.pending.clear()
            if count < len(chunk):
                self.pending.appendleft(memoryview(chunk)[count:])
                break
        if self.pending:
            self.on(fd, self.flush, select.POLLOUT)
        else:
            self.off(fd)
        for output in self.running.outputs if self.running else ():
            if self.size < MAX_PENDING:
                self.on(output, self.read_output)
            else:
                self.off(output)

    # Frames from the daemon.

    def read_frames(self, fd):
        data = os.read(fd, BODY)
        if not data:
            self.abort(None)
        self.buffer += data
        start = 0
        while len(self.buffer) - start >= HEADER.size:
            length, kind, generation, request, sequence = HEADER.unpack_from(self.buffer, start)
            if not 13 <= length <= 13 + BODY or generation != self.generation or (
                    sequence != self.received):
                raise ProtocolError("a frame of the daemon is wrong")
            if len(self.buffer) - start < 4 + length:
                break
            self.received += 1
            body = bytes(memoryview(self.buffer)[start + HEADER.size:start + 4 + length])
            start += 4 + length
            self.receive(chr(kind), request, body)
        del self.buffer[:start]

    def receive(self, kind, request, body):
        if kind in "qQ":
            self.parts.append(body)
            if kind == "Q":
                body, self.parts = b"".join(self.parts), []
                self.start(request, body)
        elif request > self.request:
            raise ProtocolError("a frame of the daemon is of a request to come")
        elif request < self.request or not self.running:
            pass  # it was sent before the reply arrived
        elif kind in "xX":
            self.running.stopped |= kind == "X"
            self.interrupt()
        elif kind in "iI":
            self.add_stdin(body, kind == "I")
        else:
            raise ProtocolError("a frame of the daemon has an unknown type")

    def start(self, request, body):
        if self.running or request != self.request + 1:
            raise ProtocolError("a request came out of turn")
        cpu = None
        if b'"cpu_ns"' in body:
            budget = json.loads(body).get("cpu_ns")
            cpu = self.cpu_time() + budget / 1e9 if budget else None
        pipes, self.request = self.pipes, request
        self.running = Execution(pipes, cpu)
        message = LENGTH.pack(len(body)) + body
        rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, FDS.pack(*pipes.theirs))]
        sent = self.sock.sendmsg([message], rights)
        if sent < len(message):
            self.sock.sendall(memoryview(message)[sent:])
        pipes.close_theirs()
        for fd in self.running.outputs:
            self.on(fd, self.read_output)

    def add_stdin(self, data, ended):
        running = self.running
        if running.stdin is None:
            return
        if data:
            running.input.append(data)
            running.held += len(data)
        running.ended = ended
        self.write_stdin(running.stdin)
        if running.held > MAX_STDIN:
            self.off(self.source)

    def write_stdin(self, fd):
        running = self.running
        try:
            while running.input:
                data = running.input.popleft()
                count = os.write(fd, data)
                running.held -= count
                if count < len(data):
                    running.input.appendleft(memoryview(data)[count:])
                    break
        except BlockingIOError:
            running.input.appendleft(data)
        except OSError:  # the code has closed it
            running.input.clear()
            running.held, running.ended = 0, True
        if running.input:
            self.on(fd, self.write_stdin, select.POLLOUT)
        else:
            self.off(fd)
            if running.ended:
                running.stdin = None
                os.close(fd)
        if running.held <= MAX_STDIN:
            self.on(self.source, self.read_frames)

    def interrupt(self):
        """Interrupts the code and the children that it waits for, as a terminal does."""
        try:
            os.killpg(self.pid, signal.SIGINT)
        except OSError:
            pass

    # The worker.

    def read_output(self, fd):
        try:
            data = os.read(fd, BODY)
        except BlockingIOError:
            return False
        if not data:
            self.close_output(fd)
            return False
        self.add(bytes((self.running.outputs[fd],)), data)
        return True

    def close_output(self, fd):
        self.off(fd)
        del self.running.outputs[fd]
        os.close(fd)

    def read_worker(self, _):
        data = self.sock.recv(BODY)
        running = self.running
        if not data:
            self.off(self.sock.fileno())  # reap ends the keeper
            return
        if not running:
            raise ProtocolError("it wrote while no request ran")
        answer = running.answer
        answer += data
        if len(answer) < 4:
            return
        size, = LENGTH.unpack_from(answer)
        if size > MAX_REPLY or len(answer) > 4 + size:
            raise ProtocolError("its reply is too long")
        if len(answer) == 4 + size:
            self.finish(memoryview(answer)[4:])

    def finish(self, body):
        """Sends what is left of the output, then the reply."""
        running = self.running
        if running.stopped and not kill_started(self.pid, running.began):
            self.kill()  # the supervisor ends what is left
            return
        last = b"R"
        if running.expired is not None:
            body, last = expired_reply(body), b"L"
        self.drain()
        for fd in list(running.outputs):
            self.close_output(fd)
        if running.stdin is not None:
            self.off(running.stdin)
            os.close(running.stdin)
        self.on(self.source, self.read_frames)
        self.running = None
        for start in range(0, len(body) - BODY, BODY):
            self.add(b"r", body[start:start + BODY])
        self.add(last, body[(len(body) - 1) // BODY * BODY:])
        self.pipes = Pipes()

    def drain(self):
        """Reads what the pipes hold. The worker flushed its streams before it replied."""
        for fd in list(self.running.outputs):
            for _ in range(64):  # a child that is left may write without end
                if not self.read_output(fd):
                    break

    def reap(self, _):
        """Ends the keeper as the worker has ended."""
        try:
            os.read(self.wake, 512)
        except BlockingIOError:
            pass
        pid, status = os.waitpid(self.pid, 0 if _ is None else os.WNOHANG)
        if pid == 0:
            return
        if self.running:
            self.drain()
            if self.running.expired is not None:
                self.finish(b"")
        self.flush_all()
        if os.WIFSIGNALED(status):
            end_by_signal(os.WTERMSIG(status))
        os._exit(os.WEXITSTATUS(status))

    def flush_all(self):
        os.set_blocking(self.sink, True)
        while self.pending:
            self.flush(self.sink)

    def abort(self, message):
        """Ends the worker and the keeper."""
        if message:
            os.write(2, (message + "\n").encode())
        self.kill()
        os._exit(70 if message else 0)

    def kill(self):
        for kill in (os.killpg, os.kill):
            try:
                kill(self.pid, signal.SIGKILL)
            except OSError:
                pass

    # Processor time.

    def timeout(self):
        """Returns how many milliseconds poll may wait."""
        running = self.running
        if not running or running.cpu is None:
            return None
        if running.expired is not None:
            left = running.expired + CPU_GRACE - time.monotonic()
        else:
            left = (running.cpu - self.cpu_time()) / (os.cpu_count() or 1)
        return min(max(left * 1000, 20), 1000)

    def watch_cpu(self):
        running = self.running
        if running.expired is not None:
            if time.monotonic() > running.expired + CPU_GRACE:
                self.kill()
        elif self.cpu_time() >= running.cpu:
            running.expired = time.monotonic()
            self.interrupt()

    def cpu_time(self):
        """Returns the seconds of processor time of the worker and its children that have ended."""
        try:
            with open("/proc/%d/stat" % self.pid, "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError, IndexError):
            return 0.0


def kill_started(worker, began):
    """Kills the processes that code has started since a time, and reports whether none is left.

    Those that lost their parent are children of the supervisor, as the keeper is. Processes of
    earlier requests stay, with what they start.
    """
    for _ in range(50):  # they may start others meanwhile
        left = started(worker, began)
        if not left:
            return True
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            except OSError:
                return False  # of another user
        time.sleep(0.002)
    return False


def started(worker, began):
    children = collections.defaultdict(list)
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open("/proc/%s/stat" % name, "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue  # it has ended
        if fields[0] not in b"ZX":
            children[int(fields[1])].append((int(name), int(fields[19])))
    since, keeper, found = int(began * os.sysconf("SC_CLK_TCK")), os.getpid(), []
    parents = [worker, os.getppid()]
    while parents:
        for pid, start in children.pop(parents.pop(), ()):
            if start >= since and pid not in (worker, keeper):
                found.append(pid)
                parents.append(pid)
    return found


def expired_reply(body):
    """Returns the reply to a request whose processor time was used up, whatever the worker says."""
    reply = {"ok": False, "code": 124, "error": {"message": "CPU time limit exceeded"},
             "usage": {"wall_ms": 0, "cpu_ms": 0, "memory_bytes": 0}}
    try:
        said = json.loads(bytes(body))
        reply["usage"] = said["usage"]
        reply["error"]["traceback"] = said["error"]["traceback"]
    except Exception:
        pass
    return memoryview(json.dumps(reply).encode())


def end_by_signal(number):
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)


class Bytes(io.BufferedWriter):
    """The bytes of stdout or stderr. The objects stay for all requests, because logging keeps them."""

    def write(self, data):
        if not _thread._count():
            return super().write(data)
        with _dray_threads.lock:
            if _dray_threads.is_stale():
                return len(data)
            return super().write(data)

    def flush(self):
        _flush(super().flush)

    def close(self):
        self.flush()


class Text(io.TextIOWrapper):
    """The text of stdout or stderr."""

    def write(self, text):
        if not _thread._count():
            return super().write(text)
        with _dray_threads.lock:
            if _dray_threads.is_stale():
                return len(text)
            return super().write(text)

    def flush(self):
        _flush(super().flush)

    def close(self):
        self.flush()


def _flush(flush):
    """Flushes a stream. A stale thread would drop what the main thread has just written to it."""
    if not _thread._count():
        flush()
        return
    with _dray_threads.lock:
        if not _dray_threads.is_stale():
            flush()


def output(fd, name, errors):
    raw = io.FileIO(fd, "w", closefd=False)
    raw.name = name
    return Text(Bytes(raw), "utf-8", errors, line_buffering=True)


class Worker:
    """Runs requests, one after the other. It is what core calls a runtime."""

    def __init__(self, sock, null, memory):
        self.sock, self.null, self.pid, self.loop = sock, null, os.getpid(), None
        os.setsid()  # signals to its group do not reach the keeper
        signal.signal(signal.SIGINT, ignore)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.register_at_fork(after_in_child=self.forget)
        _dray_threads.install(null)
        self.limits = None  # while user code runs, and while it does not
        if memory:
            self.limits = (memory, memory + RESERVE), (memory + RESERVE, memory + RESERVE)
            resource.setrlimit(resource.RLIMIT_DATA, self.limits[1])
        self.begun = False  # the code of the request
        self.stdin = None
        self.stdout = self.stderr = None
        self.make_outputs()
        sys.stdin = sys.__stdin__ = None
        sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr = self.stdout, self.stderr
        extend_path()
        for name in ("_dray_core", "_dray_values", "_dray_threads", "_dray_container"):
            sys.modules.pop(name, None)

    def explain(self, err):
        return None

    def run(self):
        session = _dray_core.Session(self)
        self.sock.sendall(b"ready")
        while True:
            request = self.receive()
            run = session.run(request)
            del request
            try:
                run.send(None)
            except StopIteration as end:
                reply = end.value.encode()
            if os.getpid() != self.pid:
                end_of_fork(reply)
            self.silence()
            self.sock.sendall(LENGTH.pack(len(reply)) + reply)
            del reply, run

    def receive(self):
        data, rights, _, _ = self.sock.recvmsg(BODY, _socket.CMSG_SPACE(FDS.size), CMSG_CLOEXEC)
        if not data:
            os._exit(0)
        fds = FDS.unpack(rights[0][2])
        size, = LENGTH.unpack_from(data)
        body = data[4:]
        if len(body) < size:
            rest = bytearray(size - len(body))
            view = memoryview(rest)
            while view:
                count = self.sock.recv_into(view)
                if not count:
                    os._exit(0)
                view = view[count:]
            body += rest
        self.attach(fds)
        return _dray_core.decode(body.decode())

    def attach(self, fds):
        """Makes the pipes of a request descriptors 0, 1 and 2."""
        self.begun = False
        with _dray_threads.lock:
            _dray_threads.begin()
            for stream in (self.stdout, self.stderr):
                try:
                    stream.flush()  # to /dev/null: a thread has written it between two requests
                except Exception:
                    self.make_outputs()  # user code has closed or detached it
            for number, fd in enumerate(fds):
                os.dup2(fd, number)
                os.close(fd)
        raw = io.FileIO(0, "r", closefd=False)
        raw.name = "<stdin>"
        self.stdin = io.TextIOWrapper(io.BufferedReader(raw), "utf-8", "surrogateescape")

    def silence(self):
        """Takes the pipes of the request away."""
        for fd in (0, 1, 2):
            os.dup2(self.null, fd)

    def make_outputs(self):
        self.stdout = output(1, "<stdout>", "surrogateescape")
        self.stderr = output(2, "<stderr>", "backslashreplace")

    def forget(self):
        """Is called in a process that user code has forked."""
        self.sock.close()

    # What core needs.

    def arm(self):
        if self.limits and not self.begun:
            resource.setrlimit(resource.RLIMIT_DATA, self.limits[0])
        self.begun = True
        _signal.signal(signal.SIGINT, _signal.default_int_handler)

    def disarm(self):
        _signal.signal(signal.SIGINT, ignore)
        if self.limits:
            resource.setrlimit(resource.RLIMIT_DATA, self.limits[1])

    def streams(self):
        return self.stdin, self.stdout, self.stderr

    def usage(self):
        own = resource.getrusage(resource.RUSAGE_SELF)
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
        return seconds * 1000, own.ru_maxrss * 1024

    async def drive(self, coroutine):
        """Runs a coroutine in the loop of the session. Tasks that it leaves are cancelled."""
        import asyncio

        if self.loop is None or self.loop.is_closed():
            self.loop = asyncio.new_event_loop()
        return _dray_core.run_to_end(self.loop, coroutine)


def ignore(number, frame):
    """Handles SIGINT while no user code runs."""


def end_of_fork(reply):
    """Ends a process that user code has forked, and that has run to the end of the code."""
    reply = json.loads(reply)
    error = reply.get("error") or {}
    text = error.get("traceback") or error.get("message", "") + "\n"
    if error:
        os.write(2, text.encode())
    os._exit(reply["code"])


def extend_path():
    """Adds what -I has left out of sys.path: PYTHONPATH, and the packages of the user."""
    import site

    if not os.environ.get("PYTHONNOUSERSITE") and sys.prefix == sys.base_prefix:
        folder = site.getusersitepackages()
        if os.path.isdir(folder):
            before = list(sys.path)
            site.addsitedir(folder)
            added = [name for name in sys.path if name not in before]
            place = next((i for i, name in enumerate(before)
                          if name.endswith(("site-packages", "dist-packages"))), len(before))
            sys.path[:] = before[:place] + added + before[place:]
    sys.path[:0] = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
