"""Makes virtual environments with uv, and says what an interpreter has installed (PY-14, PY-15).

It runs as `python3 -I -S -c SOURCE probe|find|build` in the environment of the session, as its user. The
request is one line of JSON on stdin, the answer is lines of JSON on stdout:

    {"progress": text}                               any number of them, a step of uv
    {"result": {executable, version, prefix, installed: {name: version}}}      {} if find has none
    {"error": {"kind": KIND, "message": text}}       the last line, in place of a result

No code of a package runs: interpreters start without the module site, and uv installs wheels. The
file needs Python 3.9; with 3.5 to 3.8 it says so.
"""

import errno
import fcntl
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile

MAX_PACKAGES = 20000
TAIL = 6 << 10  # characters of uv's output in an error
LINES = 2000  # of progress
SIGNALS = signal.SIGTERM, signal.SIGINT, signal.SIGHUP
MARK = "dray.json"  # the last file of a complete environment


class Failure(Exception):
    def __init__(self, kind, message):
        super().__init__(message)
        self.kind, self.message = kind, message


def say(**line):
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


# Probing.


def settings(name):
    """Returns the settings of a pyvenv.cfg, or None if there is none."""
    try:
        with open(name, encoding="utf-8", errors="replace") as f:
            lines = f.read(64 << 10).splitlines()
    except OSError:
        return None
    pairs = (line.partition("=") for line in lines)
    return {key.strip().lower(): value.strip() for key, _, value in pairs}


def venv_of(executable):
    """Returns the virtual environment of an interpreter and its settings, or (None, None)."""
    here = os.path.dirname(executable)
    for prefix in (os.path.dirname(here), here):
        found = settings(os.path.join(prefix, "pyvenv.cfg"))
        if found is not None:
            return prefix, found
    return None, None


def installed_in(folders):
    """Returns the versions of packages by normalized name. An earlier folder wins, as in sys.path."""
    found = {}
    for folder in folders:
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            continue
        for name in names:
            stem, kind = os.path.splitext(name)
            if kind not in (".dist-info", ".egg-info") or "-" not in stem:
                continue
            stem = re.sub(r"-py3(\.\d+)?$", "", stem)
            package, _, version = stem.rpartition("-")
            package = re.sub(r"[-_.]+", "-", package).lower()
            if package and len(found) < MAX_PACKAGES:
                found.setdefault(package, version)
    return found


def packages_of(prefix):
    """Returns the directories of packages of a virtual environment."""
    lib = os.path.join(prefix, "lib")
    return [os.path.join(lib, name, "site-packages") for name in sorted(os.listdir(lib))]


def probe(executable):
    """Describes the interpreter that runs this."""
    import site

    if sys.version_info < (3, 9):
        raise Failure("too_old", "Python %d.%d" % sys.version_info[:2])
    prefix, config = venv_of(executable)
    folders = [f for f in os.environ.get("PYTHONPATH", "").split(os.pathsep) if os.path.isabs(f)]
    if prefix:
        folders += packages_of(prefix)
    elif not os.environ.get("PYTHONNOUSERSITE"):
        folders.append(site.getusersitepackages())
    if not prefix or config.get("include-system-site-packages", "").lower() == "true":
        folders += site.getsitepackages()
    return {
        "executable": executable,
        "version": "%d.%d.%d" % sys.version_info[:3],
        "prefix": prefix or sys.base_prefix,
        "installed": installed_in(folders),
    }


# The directory of dray.


def candidates():
    """Yields directories that may hold environments, the best first."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(cache):
        yield os.path.join(cache, "dray", "python")
    home = os.environ.get("HOME", "")
    if os.path.isabs(home):
        yield os.path.join(home, ".cache", "dray", "python")
    for place in ("/var/tmp", os.environ.get("TMPDIR", ""), "/tmp"):
        if os.path.isabs(place):
            yield os.path.join(place, "dray-python-%d" % os.getuid())


def usable(folder):
    """Makes a private directory. Raises OSError if it cannot be used."""
    os.makedirs(folder, 0o700, exist_ok=True)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise OSError(errno.EPERM, "it belongs to another user, or is no directory")
    os.chmod(folder, 0o700)
    if os.statvfs(folder).f_flag & os.ST_NOEXEC:
        raise OSError(errno.EACCES, "it is mounted with noexec")
    os.rmdir(tempfile.mkdtemp(prefix=".try-", dir=folder))


def place():
    problems = []
    for folder in candidates():
        try:
            usable(folder)
            return os.path.realpath(folder)
        except OSError as e:
            problems.append("%s: %s" % (folder, e.strerror or e))
    raise Failure("no_place", "; ".join(problems) or "HOME is not set, and there is no /var/tmp")


# Building.


def find_uv():
    path = os.environ.get("PATH", os.defpath) + os.pathsep
    path += os.path.join(os.environ.get("HOME", "/nonexistent"), ".local", "bin")
    folders = [f for f in path.split(os.pathsep) if os.path.isabs(f)]
    found = shutil.which("uv", path=os.pathsep.join(folders))
    if not found:
        raise Failure("no_uv", "uv is not in the PATH of the session's user: " + path)
    return found


PASSED = (
    "HOME", "PATH", "LD_LIBRARY_PATH", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR",
    "UV_HTTP_RETRIES", "UV_HTTP_TIMEOUT",
)  # fmt: skip


def variables(folder, root, index):
    """Returns the variables of uv. Of those of the image only proxies and certificates configure it."""
    env = {name: os.environ[name] for name in PASSED if name in os.environ}
    env.update(
        LANG="C.UTF-8",
        NO_COLOR="1",
        TMPDIR=os.path.join(folder, "tmp"),
        UV_CACHE_DIR=os.path.join(root, "uv"),
        UV_NO_CONFIG="1",
        UV_NO_ENV_FILE="1",
        UV_PYTHON_DOWNLOADS="never",
    )
    if index:
        env["UV_DEFAULT_INDEX"] = index
    return env


class Uv:
    """Runs uv, and passes its output on as progress."""

    def __init__(self, folder, root, index):
        self.program = find_uv()
        self.folder, self.env, self.lines = folder, variables(folder, root, index), 0

    def run(self, *args):
        argv = [self.program, "--no-config", "--color", "never", *args]
        child = subprocess.Popen(
            argv, cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        tail = ""
        try:
            for line in iter(lambda: child.stderr.readline(4096), b""):
                line = line.decode("utf-8", "replace")
                tail = (tail + line)[-TAIL:]
                self.progress(line.rstrip())
            code = child.wait()
        finally:
            child.kill()
            child.wait()
        if code:
            start = max(("\n" + tail).find("\nerror:"), 0)  # without the steps before it
            raise Failure(kind_of(code, tail), tail[start:].strip() or "uv ended without a message")

    def progress(self, line):
        self.lines += 1
        if line and self.lines <= LINES:
            say(progress=line)


def kind_of(code, text):
    if "os error 28" in text or "No space left on device" in text:
        return "disk_full"
    if code < 0:
        return "killed"
    if "No interpreter found" in text:
        return "no_python"
    if "No solution found" in text:
        return "unsatisfiable"
    if "Failed to fetch" in text or "error sending request" in text or "Request failed" in text:
        return "network"
    return "failed"


def locked(folder):
    """Opens and locks a directory. Returns None if another process has the lock."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    return fd


def start_folder(root):
    """Makes and locks a new directory, and removes what killed builds have left."""
    guard = os.open(os.path.join(root, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(guard, fcntl.LOCK_EX)
        for name in os.listdir(root):
            if name.startswith(".new-"):
                remove(os.path.join(root, name))
        folder = tempfile.mkdtemp(prefix=".new-", dir=root)
        lock = locked(folder)
    finally:
        os.close(guard)
    os.mkdir(os.path.join(folder, "tmp"))
    return folder, lock


def remove(folder):
    """Removes an abandoned build."""
    try:
        lock = locked(folder)
    except OSError:
        return
    if lock is not None:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def interpreter(prefix):
    return os.path.join(prefix, "bin", "python")


def describe(prefix):
    """Describes a virtual environment without running it."""
    config = settings(os.path.join(prefix, "pyvenv.cfg")) or {}
    version = config.get("version_info") or config.get("version", "")
    return {
        "executable": interpreter(prefix),
        "version": ".".join(version.split(".")[:3]),
        "prefix": prefix,
        "installed": installed_in(packages_of(prefix)),
    }


def complete(root, request):
    """Returns an environment that was made for the same manifest and is as it was made, or None."""
    for name in sorted(os.listdir(root)):
        if not name.startswith(request["key"] + "-"):
            continue
        prefix = os.path.join(root, name)
        try:
            with open(os.path.join(prefix, MARK), encoding="utf-8") as f:
                made = json.load(f)
            found = describe(prefix)
        except (OSError, ValueError):
            continue
        base = os.path.realpath(interpreter(prefix))
        if made == dict(found, prefix="", executable="", base=base) and os.access(base, os.X_OK):
            return found
    return None


def find(request):
    """Returns an environment that build would not have to make, or None."""
    try:
        return complete(place(), request)
    except Failure:
        return None


def build(request):
    root = place()
    found = complete(root, request)
    if found:
        return found
    find_uv()
    folder, lock = start_folder(root)
    try:
        uv = Uv(folder, root, request["index"])
        prefix = os.path.join(folder, "venv")
        uv.run(
            "venv", "--no-project", "--relocatable", "--python",
            request["python_version"] or request["base"], prefix,
        )  # fmt: skip
        check_version(describe(prefix))
        if request["packages"]:
            only = [] if request["source_builds"] else ["--only-binary", ":all:"]
            uv.run("pip", "install", "--python", prefix, *only, "--", *request["packages"])
        return finish(root, prefix, request)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def check_version(found):
    if tuple(int(n) for n in found["version"].split(".")[:2]) < (3, 9):
        raise Failure("too_old", "Python " + found["version"])


def finish(root, prefix, request):
    """Makes a new environment visible, complete and under its final name."""
    found = describe(prefix)
    base = os.path.realpath(interpreter(prefix))
    with open(os.path.join(prefix, MARK), "w", encoding="utf-8") as f:
        json.dump(dict(found, prefix="", executable="", base=base), f)
    final = os.path.join(root, "%s-%s" % (request["key"], os.urandom(4).hex()))
    os.rename(prefix, final)
    return describe(final)


def stop(*_):
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # nothing interrupts the removal
    raise Failure("stopped", "prepare was stopped")


def main():
    for number in SIGNALS:
        signal.signal(number, stop)
    request = json.loads(sys.stdin.readline())
    try:
        if sys.argv[1] == "probe":
            say(result=probe(request["executable"] or sys.executable))
        elif sys.argv[1] == "find":
            say(result=find(request) or {})
        else:
            say(result=build(dict(request, base=sys.executable)))
    except Failure as e:
        say(error={"kind": e.kind, "message": e.message})
    except OSError as e:
        kind = "disk_full" if e.errno in (errno.ENOSPC, errno.EDQUOT) else "failed"
        say(error={"kind": kind, "message": str(e)})


main()
