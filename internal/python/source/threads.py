"""What threads of earlier requests do, in the runtime container.

A thread that outlives its request goes on, with its variables and its files. It is stale then, and
so are the threads that it starts. What stale threads print, write to descriptors 1 and 2 with
os.write, and what the processes that they start write there, is dropped: it would be in the output
of a later request. Only C code, and another file object or descriptor that a stale thread makes of
1 or 2, still reach it.

The main thread runs the requests, so it is never stale.
"""

import _thread
import os
import posix
import stat
import sys

# A thread holds the lock from the question whether it is stale to the end of its write, or to the
# start of its process or thread. So nothing that began before a request ends in it.
lock = _thread.RLock()
stale = set()  # native ids
main = None  # the id of the main thread
null = None  # a descriptor of /dev/null
forking = False  # a stale thread forks


def install(devnull):
    """Replaces what threads write and start processes with, before user code runs."""
    global main, null
    main, null = _thread.get_ident(), devnull
    replace(_write, "write", posix, os)
    replace(_writev, "writev", posix, os)
    replace(_system, "system", posix, os)
    replace(_spawn, "posix_spawn", posix, os)
    replace(_spawn, "posix_spawnp", posix, os)
    for name in ("start_new_thread", "start_new", "start_joinable_thread"):
        replace(_start, name, _thread)
    threading, subprocess = sys.modules.get("threading"), sys.modules.get("subprocess")
    if threading:
        replace(_start, "_start_new_thread", threading)
        replace(_start, "_start_joinable_thread", threading)
    try:
        import _posixsubprocess
    except ImportError:
        pass  # an interpreter without subprocess
    else:
        replace(_fork_exec, "fork_exec", _posixsubprocess)
    if subprocess:
        replace(_fork_exec, "_fork_exec", subprocess)
    os.register_at_fork(before=before_fork, after_in_parent=after_fork, after_in_child=in_child)


def replace(wrap, name, *modules):
    """Replaces a function of modules, if they have it."""
    original = getattr(modules[0], name, None)
    if original is None:
        return
    made = wrap(original)
    for attribute in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(made, attribute, getattr(original, attribute))
    for module in modules:
        setattr(module, name, made)


def begin():
    """Makes all threads stale but this one, the main thread. The caller holds the lock."""
    stale.clear()
    if _thread._count():
        stale.update(_threads())


def _threads():
    own = _thread.get_native_id()
    try:
        return {int(name) for name in os.listdir("/proc/self/task")} - {own}
    except OSError:
        threads = sys.modules["threading"].enumerate() if "threading" in sys.modules else ()
        return {thread.native_id for thread in threads} - {own}


def is_stale():
    """Reports whether this thread is stale. The caller holds the lock."""
    return _thread.get_native_id() in stale


def _write(original):
    def write(fd, data, /):
        if fd not in (1, 2) or _thread.get_ident() == main:
            return original(fd, data)
        with lock:
            return memoryview(data).nbytes if is_stale() else original(fd, data)

    return write


def _writev(original):
    def writev(fd, buffers, /):
        if fd not in (1, 2) or _thread.get_ident() == main:
            return original(fd, buffers)
        with lock:
            if is_stale():
                return sum(memoryview(data).nbytes for data in buffers)
            return original(fd, buffers)

    return writev


def _start(original):
    def start(function, *args, **kwargs):
        if _thread.get_ident() == main:
            return original(function, *args, **kwargs)
        with lock:
            return original(_stale(function) if is_stale() else function, *args, **kwargs)

    return start


def _stale(function):
    """Returns a function that makes its thread stale."""

    def run(*args, **kwargs):
        own = _thread.get_native_id()
        stale.add(own)
        try:
            return function(*args, **kwargs)
        finally:
            stale.discard(own)

    return run


def _fork_exec(original):
    def fork_exec(*args):
        if _thread.get_ident() == main:
            return original(*args)
        with lock:
            if is_stale():
                args = list(args)
                for at in (9, 11):  # the stdout and stderr of the child; -1 is what this process has
                    if args[at] in (-1, 1, 2):
                        args[at] = null
            return original(*args)

    return fork_exec


def _spawn(original):
    def spawn(path, argv, env, /, *, file_actions=(), **kwargs):
        if _thread.get_ident() == main:
            return original(path, argv, env, file_actions=file_actions, **kwargs)
        with lock:
            if is_stale():
                file_actions = [(os.POSIX_SPAWN_DUP2, null, fd) for fd in (1, 2)] + list(file_actions)
            return original(path, argv, env, file_actions=file_actions, **kwargs)

    return spawn


def _system(original):
    def system(command):
        if _thread.get_ident() == main:
            return original(command)
        # The C function starts the process at a moment that no lock can include.
        import subprocess

        code = subprocess.call(command, shell=True, close_fds=False)
        return code << 8 if code >= 0 else -code

    return system


def before_fork():
    global forking
    if _thread.get_ident() != main:
        lock.acquire()
        forking = is_stale()


def after_fork():
    if _thread.get_ident() != main:
        lock.release()


def in_child():
    """Makes the only thread of a forked process its main thread."""
    global lock, main
    if _thread.get_ident() != main and forking:
        for fd in (1, 2):
            if stat.S_ISFIFO(os.fstat(fd).st_mode):  # it has a terminal after os.forkpty
                os.dup2(null, fd)
    lock = _thread.RLock()  # a thread that the process does not have may hold it
    main = _thread.get_ident()
    stale.clear()
