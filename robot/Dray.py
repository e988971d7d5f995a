"""Robot keywords for the built dray: its command line, its HTTP interface over the unix socket, and the engine's view of containers."""

import json
import os
import pathlib
import re
import select
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import threading
import time

import httpx
from robot.api import logger
from robot.api.deco import keyword, library
from robot.libraries.BuiltIn import BuiltIn


class Result:
    """The exit code and the output of a command."""

    def __init__(self, code, stdout, stderr):
        self.code, self.stdout, self.stderr = code, stdout, stderr


class Live:
    """A running command, whose output is read line by line."""

    def __init__(self, process):
        self.process = process
        self.pid = process.pid

    def line(self, within=20):
        """Returns the next line of stdout. Fails if there is none within the time."""
        ready, _, _ = select.select([self.process.stdout], [], [], within)
        if not ready:
            raise AssertionError(f"no line within {within} s")
        return self.process.stdout.readline().decode().rstrip("\n")

    def end(self, within=30):
        stdout, stderr = self.process.communicate(timeout=within)
        return Result(exit_code(self.process.returncode), stdout.decode("utf-8", "replace"), stderr.decode("utf-8", "replace"))


def exit_code(returncode):
    return 128 - returncode if returncode < 0 else returncode


@library(scope="SUITE", auto_keywords=False)
class Dray:
    """The state directory, the configuration, the workspaces and the daemons of a suite."""

    def __init__(self):
        self.root = None
        self.workspaces, self.running = [], []

    def _make_root(self):
        """Creates the directory on first use: Robot creates instances that it never uses."""
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="dray-robot-"))
        self.root.chmod(0o755)
        self.state = self.root / "state"
        self.config = self.root / "config.yaml"
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("DRAY_")}
        self.env |= {"DRAY_STATE": str(self.state), "DRAY_CONFIG": str(self.config), "HOME": str(self.root)}

    def _variable(self, name):
        return BuiltIn().get_variable_value("${%s}" % name)

    # Directories

    @keyword
    def configure(self, text):
        """Writes the configuration, with ROOT replaced by the suite's directory. Call it first."""
        if self.root is None:
            self._make_root()
        cli = f"devcontainer: {{cli: {self._variable('DEVCONTAINER_CLI')}, up_args: [--buildkit, never]}}\n"
        self.config.write_text(cli + text.replace("ROOT", str(self.root)) + "\n")

    @keyword
    def use_state_directory(self, name):
        """Switches to another state directory, and so to another daemon."""
        self.state = self.root / name
        self.env["DRAY_STATE"] = str(self.state)

    @keyword
    def root_directory(self):
        return str(self.root)

    @keyword
    def mode_of_state_directory(self):
        return oct(self.state.stat().st_mode & 0o777)

    @keyword
    def make_workspace(self, name, devcontainer):
        """Creates a directory with a devcontainer.json and returns its path."""
        directory = self.root / name
        (directory / ".devcontainer").mkdir(parents=True)
        text = devcontainer.replace("DEBIAN", self._variable("DEBIAN_IMAGE")).replace("BUSYBOX", self._variable("BUSYBOX_IMAGE"))
        (directory / ".devcontainer/devcontainer.json").write_text(text)
        self.workspaces.append(directory)
        return str(directory)

    @keyword
    def make_symlink(self, to, path):
        os.symlink(to, path)

    @keyword
    def read(self, path):
        return pathlib.Path(path).read_text()

    @keyword
    def make_directory(self, path, mode="755"):
        path = pathlib.Path(path)
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(int(mode, 8))

    @keyword
    def files_below(self, directory):
        """Returns content and mode of all files below a directory, by relative path. Fails for other types of files."""
        found = {}
        for path in sorted(pathlib.Path(directory).rglob("*")):
            if path.is_symlink() or not (path.is_dir() or path.is_file()):
                raise AssertionError(f"{path} is neither a file nor a directory")
            if path.is_file():
                found[str(path.relative_to(directory))] = (path.read_bytes(), f"{path.stat().st_mode & 0o7777:04o}")
        return found

    @keyword
    def remove_everything(self):
        """Stops commands and daemons, and removes what the suite created."""
        for live in self.running:
            if live.process.poll() is None:
                live.process.kill()
        for pid in set(self.daemons()):
            self._end(pid)
        for directory in self.workspaces:
            self._remove_containers(directory)
        shutil.rmtree(self.root, ignore_errors=True)

    def _end(self, pid):
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            return
        self.wait_until_gone(pid)

    def _remove_containers(self, directory):
        for container in self.containers(directory):
            image = self._docker("inspect", "--format", "{{.Config.Image}}", container).strip()
            self._docker("rm", "--force", "--volumes", container)
            if image.startswith("vsc-"):
                self._docker("rmi", image)

    # The command line

    def _start(self, args, cwd=None, **more):
        env = self.env | {k: str(v) for k, v in more.items()}
        return subprocess.Popen(
            [self._variable("DRAY"), *map(str, args)], env=env, cwd=cwd or self.root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    @keyword
    def dray(self, *args, stdin=b"", cwd=None, **env):
        """Runs dray and waits for its end. Other named arguments are environment variables."""
        process = self._start(args, cwd, **env)
        data = stdin if isinstance(stdin, bytes) else stdin.encode()
        stdout, stderr = process.communicate(data, timeout=90)
        result = Result(exit_code(process.returncode), stdout.decode("utf-8", "replace"), stderr.decode("utf-8", "replace"))
        logger.info(f"exit code {result.code}\nstdout: {result.stdout[:4000]}\nstderr: {result.stderr[:4000]}")
        return result

    @keyword
    def dray_bytes(self, *args, stdin=b"", cwd=None):
        """Runs dray, waits for its end and returns the bytes of its stdout."""
        return self._start(args, cwd).communicate(stdin, timeout=90)[0]

    @keyword
    def start_dray(self, *args, cwd=None, **env):
        """Starts dray without waiting for its end."""
        live = Live(self._start(args, cwd, **env))
        self.running.append(live)
        return live

    @keyword
    def dray_many_times(self, times, *args, cwd=None):
        """Runs several commands at the same time and returns their results."""
        processes = [self._start(args, cwd) for _ in range(int(times))]
        results = []
        for p in processes:
            stdout, stderr = p.communicate(timeout=90)
            results.append(Result(exit_code(p.returncode), stdout.decode(), stderr.decode()))
        return results

    @keyword
    def line_of(self, live):
        return live.line()

    @keyword
    def send_to(self, live, text):
        live.process.stdin.write(text.encode())
        live.process.stdin.flush()

    @keyword
    def end_of(self, live):
        return live.end()

    @keyword
    def signal_process(self, name, pid):
        os.kill(int(pid), getattr(signal, name))

    @keyword
    def last_call(self):
        """Returns the newest invocation, from `dray audit list`."""
        return json.loads(self.dray("audit", "list", "--limit", "1", "--json").stdout)["items"][0]

    @keyword
    def audit_row(self, invocation):
        """Returns the columns of an invocation from the SQLite file."""
        with sqlite3.connect(f"file:{self.state}/audit.db?mode=ro", uri=True) as db:
            query = "SELECT reason, exit_code, metadata_container FROM invocations WHERE id = ?"
            reason, code, container = db.execute(query, (invocation,)).fetchone()
        return {"reason": reason, "exit_code": code, "container": json.loads(container)}

    # Daemons

    @keyword
    def start_daemon(self, *args, **env):
        """Starts `dray serve`, reads its log in the background and waits for its ready line."""
        process = self._start(["serve", *args], **env)
        daemon = Live(process)
        self.running.append(daemon)
        daemon.log = []
        ready = threading.Event()

        def read():
            for line in process.stderr:
                daemon.log.append(json.loads(line))
                if daemon.log[-1]["event"] == "ready":
                    ready.set()

        daemon.reader = threading.Thread(target=read, daemon=True)
        daemon.reader.start()
        if not ready.wait(20):
            raise AssertionError(f"the daemon is not ready: {daemon.log}")
        return daemon

    @keyword
    def exit_code_of_daemon(self, daemon, within=30):
        code = daemon.process.wait(within)
        daemon.reader.join(5)
        return exit_code(code)

    @keyword
    def events_logged_by(self, daemon):
        return [line["event"] for line in daemon.log]

    @keyword
    def daemons(self):
        """Returns the pids of all daemons that commands started on the state directories of the suite."""
        pids = []
        for log in self.root.glob("*/daemon.log"):
            for line in log.read_text().splitlines():
                entry = json.loads(line)
                if entry["event"] == "ready":
                    pids.append(entry["pid"])
        return pids

    @keyword
    def background_daemon(self):
        """Returns the pid of the newest daemon of the current state directory."""
        lines = [json.loads(line) for line in (self.state / "daemon.log").read_text().splitlines()]
        return [line["pid"] for line in lines if line["event"] == "ready"][-1]

    @keyword
    def wait_until_gone(self, pid, within=20):
        deadline = time.monotonic() + float(within)
        while os.path.exists(f"/proc/{pid}") and pathlib.Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "Z":
            if time.monotonic() > deadline:
                raise AssertionError(f"process {pid} still exists")
            time.sleep(0.05)

    # HTTP

    def _client(self):
        transport = httpx.HTTPTransport(uds=str(self.state / "dray.sock"))
        return httpx.Client(transport=transport, base_url="http://localhost", timeout=60)

    @keyword
    def request(self, method, path, body=None, **headers):
        """Sends one request and returns the response of httpx."""
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        if body is not None:
            headers.setdefault("Content-Type", "application/json")
        with self._client() as client:
            response = client.request(method, path, content=body, headers=headers)
        logger.info(f"{method} {path}: {response.status_code}\n{response.text[:4000]}")
        return response

    @keyword
    def call(self, tool, input, **more):
        """Calls a tool, waits for the end and returns the invocation."""
        body = {"tool": tool, "input": self._value(input)} | {k: self._value(v) for k, v in more.items()}
        response = self.request("POST", "/v1/invocations", body)
        if response.status_code != 200:
            raise AssertionError(f"{response.status_code}: {response.text}")
        return response.json()

    @keyword
    def start_call(self, tool, input, **more):
        """Starts a call, waits for its first line on stdout, and returns id and line."""
        body = {"tool": tool, "input": self._value(input)} | {k: self._value(v) for k, v in more.items()}
        response = self.request("POST", "/v1/invocations?wait_ms=0", body)
        if response.status_code != 202:
            raise AssertionError(f"{response.status_code}: {response.text}")
        invocation = response.json()["id"]
        with self._client() as client, client.stream("GET", f"/v1/invocations/{invocation}/events", headers={"Accept": "application/x-ndjson"}) as events:
            for line in events.iter_lines():
                event = json.loads(line)
                if event["event"] == "stdout":
                    return invocation, event["text"].strip()
        raise AssertionError("the call ended without a line")

    @staticmethod
    def _value(v):
        if not isinstance(v, str):
            return v
        try:
            return json.loads(v)
        except json.JSONDecodeError:
            return v

    @keyword
    def sse_events(self, path, body=None, **headers):
        """Reads server-sent events to the end and returns a list of {id, event, data}."""
        headers = {name.replace("_", "-"): value for name, value in headers.items()} | {"Accept": "text/event-stream"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        method = "GET" if body is None else "POST"
        with self._client() as client, client.stream(method, path, content=body, headers=headers) as response:
            if response.headers["content-type"] != "text/event-stream":
                raise AssertionError(response.headers["content-type"])
            text = "".join(response.iter_text())
        blocks = [dict(line.split(": ", 1) for line in block.split("\n")) for block in text.strip().split("\n\n")]
        return [{"id": int(b["id"]), "event": b["event"], "data": json.loads(b["data"])} for b in blocks]

    @keyword
    def ndjson_events(self, path, body=None):
        """Reads events as lines of JSON to the end and returns them."""
        headers = {"Accept": "application/x-ndjson", "Content-Type": "application/json"}
        method = "GET" if body is None else "POST"
        with self._client() as client, client.stream(method, path, content=body, headers=headers) as response:
            return [json.loads(line) for line in response.iter_lines()]

    # The engine's view

    def _docker(self, *args):
        return subprocess.run(["docker", *args], check=True, capture_output=True, text=True, timeout=60).stdout

    @keyword
    def containers(self, workspace):
        return self._docker("ps", "--all", "--quiet", "--no-trunc", "--filter", f"label=devcontainer.local_folder={workspace}").split()

    @keyword
    def container_should_have(self, workspace, command):
        self._await_process(workspace, command, present=True, within=10)

    @keyword
    def container_should_not_have(self, workspace, command, within=0):
        """Reads the processes from the engine, since a tool could hide them from programs in the container."""
        self._await_process(workspace, command, present=False, within=float(within))

    def _await_process(self, workspace, command, present, within):
        deadline = time.monotonic() + within
        while True:
            processes = self._docker("top", self.containers(workspace)[0], "-eo", "pid,args")
            if (re.search(command, processes) is not None) == present:
                return
            if time.monotonic() > deadline:
                raise AssertionError(processes)
            time.sleep(0.1)
