"""Runs the built dray from outside: its command line, its HTTP interface over the unix socket, and the engine's own view of containers."""

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
    """How a command ended."""

    def __init__(self, code, stdout, stderr):
        self.code, self.stdout, self.stderr = code, stdout, stderr


class Live:
    """A command that runs. Its output is read line by line while it does."""

    def __init__(self, process):
        self.process = process
        self.pid = process.pid

    def line(self, within=20):
        """The next line of stdout, or an error if none comes in time."""
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
    """One state folder, one configuration, and the workspaces and daemons that a suite makes with them."""

    def __init__(self):
        self.root = None
        self.workspaces, self.running = [], []

    def _make_root(self):
        """The folder is made when it is first needed: Robot makes instances that it never uses."""
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="dray-robot-"))
        self.root.chmod(0o755)
        self.state = self.root / "state"
        self.config = self.root / "config.yaml"
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("DRAY_")}
        self.env |= {"DRAY_STATE": str(self.state), "DRAY_CONFIG": str(self.config), "HOME": str(self.root)}

    def _variable(self, name):
        return BuiltIn().get_variable_value("${%s}" % name)

    # Places

    @keyword
    def configure(self, text):
        """Writes the configuration; ROOT is the suite's folder. This comes before everything else."""
        if self.root is None:
            self._make_root()
        cli = f"devcontainer: {{cli: {self._variable('DEVCONTAINER_CLI')}, up_args: [--buildkit, never]}}\n"
        self.config.write_text(cli + text.replace("ROOT", str(self.root)) + "\n")

    @keyword
    def another_state(self, name):
        """Goes on with another state folder, and so with another daemon."""
        self.state = self.root / name
        self.env["DRAY_STATE"] = str(self.state)

    @keyword
    def root_folder(self):
        return str(self.root)

    @keyword
    def mode_of_state_folder(self):
        return oct(self.state.stat().st_mode & 0o777)

    @keyword
    def make_workspace(self, name, devcontainer):
        """Makes a folder with a devcontainer.json and gives its path."""
        folder = self.root / name
        (folder / ".devcontainer").mkdir(parents=True)
        text = devcontainer.replace("DEBIAN", self._variable("DEBIAN_IMAGE")).replace("BUSYBOX", self._variable("BUSYBOX_IMAGE"))
        (folder / ".devcontainer/devcontainer.json").write_text(text)
        self.workspaces.append(folder)
        return str(folder)

    @keyword
    def make_link(self, to, path):
        os.symlink(to, path)

    @keyword
    def read(self, path):
        return pathlib.Path(path).read_text()

    @keyword
    def make_folder(self, path, mode="755"):
        path = pathlib.Path(path)
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(int(mode, 8))

    @keyword
    def files_below(self, folder):
        """All files below a folder by their names in it: bytes and mode. Whatever is no file or folder is an error."""
        found = {}
        for path in sorted(pathlib.Path(folder).rglob("*")):
            if path.is_symlink() or not (path.is_dir() or path.is_file()):
                raise AssertionError(f"{path} is neither a file nor a folder")
            if path.is_file():
                found[str(path.relative_to(folder))] = (path.read_bytes(), f"{path.stat().st_mode & 0o7777:04o}")
        return found

    @keyword
    def remove_everything(self):
        """Ends what still runs and removes what the suite made."""
        for live in self.running:
            if live.process.poll() is None:
                live.process.kill()
        for pid in set(self.daemons()):
            self._end(pid)
        for folder in self.workspaces:
            self._remove_containers(folder)
        self._remove_volumes()
        shutil.rmtree(self.root, ignore_errors=True)

    def _end(self, pid):
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            return
        self.wait_until_gone(pid)

    def _remove_containers(self, folder):
        for container in self.containers(folder):
            image = self._docker("inspect", "--format", "{{.Config.Image}}", container).strip()
            self._docker("rm", "--force", "--volumes", container)
            if image.startswith("vsc-"):
                self._docker("rmi", image)

    def _remove_volumes(self):
        """Those that lead into the suite's folder: the agents' of its daemons."""
        for name in self._docker("volume", "ls", "--quiet", "--filter", "label=dev.dray.agent").split():
            try:
                device = self._docker("volume", "inspect", "--format", '{{index .Options "device"}}', name)
            except subprocess.CalledProcessError:
                continue  # somebody else's, and gone
            if device.startswith(f"{self.root}/"):
                self._docker("volume", "rm", name)

    # The command line

    def _start(self, args, cwd=None, **more):
        env = self.env | {k: str(v) for k, v in more.items()}
        return subprocess.Popen(
            [self._variable("DRAY"), *map(str, args)], env=env, cwd=cwd or self.root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    @keyword
    def dray(self, *args, stdin=b"", cwd=None, **env):
        """Runs dray to its end. Named arguments beyond stdin and cwd are variables of its environment."""
        process = self._start(args, cwd, **env)
        data = stdin if isinstance(stdin, bytes) else stdin.encode()
        stdout, stderr = process.communicate(data, timeout=90)
        result = Result(exit_code(process.returncode), stdout.decode("utf-8", "replace"), stderr.decode("utf-8", "replace"))
        logger.info(f"exit code {result.code}\nstdout: {result.stdout[:4000]}\nstderr: {result.stderr[:4000]}")
        return result

    @keyword
    def dray_bytes(self, *args, stdin=b"", cwd=None):
        """Runs dray to its end and gives the bytes of its stdout."""
        return self._start(args, cwd).communicate(stdin, timeout=90)[0]

    @keyword
    def start_dray(self, *args, cwd=None, **env):
        """Starts dray and goes on."""
        live = Live(self._start(args, cwd, **env))
        self.running.append(live)
        return live

    @keyword
    def dray_many_times(self, times, *args, cwd=None):
        """Runs so many at the same moment and gives all results."""
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
        """The newest invocation, from `dray audit list`."""
        return json.loads(self.dray("audit", "list", "--limit", "1", "--json").stdout)["items"][0]

    @keyword
    def trail_row(self, invocation):
        """What the SQLite file says of an invocation."""
        with sqlite3.connect(f"file:{self.state}/audit.db?mode=ro", uri=True) as db:
            query = "SELECT reason, exit_code, metadata_container FROM invocations WHERE id = ?"
            reason, code, container = db.execute(query, (invocation,)).fetchone()
        return {"reason": reason, "exit_code": code, "container": json.loads(container)}

    # Daemons

    @keyword
    def start_daemon(self, *args, **env):
        """Starts `dray serve` and waits for its ready line; its log is read from then on."""
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
        """The process ids of all daemons that were started in the background on any state folder of the suite."""
        pids = []
        for log in self.root.glob("*/daemon.log"):
            for line in log.read_text().splitlines():
                entry = json.loads(line)
                if entry["event"] == "ready":
                    pids.append(entry["pid"])
        return pids

    @keyword
    def background_daemon(self):
        """The last daemon of the present state folder."""
        lines = [json.loads(line) for line in (self.state / "daemon.log").read_text().splitlines()]
        return [line["pid"] for line in lines if line["event"] == "ready"][-1]

    @keyword
    def wait_until_gone(self, pid, within=20):
        deadline = time.monotonic() + float(within)
        while os.path.exists(f"/proc/{pid}") and pathlib.Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "Z":
            if time.monotonic() > deadline:
                raise AssertionError(f"process {pid} is still there")
            time.sleep(0.05)

    # HTTP

    def _client(self):
        transport = httpx.HTTPTransport(uds=str(self.state / "dray.sock"))
        return httpx.Client(transport=transport, base_url="http://localhost", timeout=60)

    @keyword
    def request(self, method, path, body=None, **headers):
        """One request; the answer has status_code, headers, content and, where it is JSON, json."""
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        if body is not None:
            headers.setdefault("Content-Type", "application/json")
        with self._client() as client:
            answer = client.request(method, path, content=body, headers=headers)
        logger.info(f"{method} {path}: {answer.status_code}\n{answer.text[:4000]}")
        return answer

    @keyword
    def call(self, tool, input, **more):
        """Calls a tool and gives the invocation when it has ended."""
        body = {"tool": tool, "input": self._value(input)} | {k: self._value(v) for k, v in more.items()}
        answer = self.request("POST", "/v1/invocations", body)
        if answer.status_code != 200:
            raise AssertionError(f"{answer.status_code}: {answer.text}")
        return answer.json()

    @keyword
    def start_call(self, tool, input, **more):
        """Starts a call, waits for its first line on stdout, and gives id and line."""
        body = {"tool": tool, "input": self._value(input)} | {k: self._value(v) for k, v in more.items()}
        answer = self.request("POST", "/v1/invocations?wait_ms=0", body)
        if answer.status_code != 202:
            raise AssertionError(f"{answer.status_code}: {answer.text}")
        invocation = answer.json()["id"]
        with self._client() as client, client.stream("GET", f"/v1/invocations/{invocation}/events", headers={"Accept": "application/x-ndjson"}) as events:
            for line in events.iter_lines():
                event = json.loads(line)
                if event["event"] == "stdout":
                    return invocation, event["text"].strip()
        raise AssertionError("it ended without a line")

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
        """Reads server-sent events to the end: a list of {id, event, data}."""
        headers = {name.replace("_", "-"): value for name, value in headers.items()} | {"Accept": "text/event-stream"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        method = "GET" if body is None else "POST"
        with self._client() as client, client.stream(method, path, content=body, headers=headers) as answer:
            if answer.headers["content-type"] != "text/event-stream":
                raise AssertionError(answer.headers["content-type"])
            text = "".join(answer.iter_text())
        blocks = [dict(line.split(": ", 1) for line in block.split("\n")) for block in text.strip().split("\n\n")]
        return [{"id": int(b["id"]), "event": b["event"], "data": json.loads(b["data"])} for b in blocks]

    @keyword
    def ndjson_events(self, path, body=None):
        """Reads events as lines of JSON to the end."""
        headers = {"Accept": "application/x-ndjson", "Content-Type": "application/json"}
        method = "GET" if body is None else "POST"
        with self._client() as client, client.stream(method, path, content=body, headers=headers) as answer:
            return [json.loads(line) for line in answer.iter_lines()]

    # The engine's view

    def _docker(self, *args):
        return subprocess.run(["docker", *args], check=True, capture_output=True, text=True, timeout=60).stdout

    @keyword
    def containers(self, workspace):
        return self._docker("ps", "--all", "--quiet", "--no-trunc", "--filter", f"label=devcontainer.local_folder={workspace}").split()

    @keyword
    def container_should_have(self, workspace, command):
        self._await_process(workspace, command, there=True, within=10)

    @keyword
    def container_should_not_have(self, workspace, command, within=0):
        """The engine asks the kernel for the processes, so that none can hide."""
        self._await_process(workspace, command, there=False, within=float(within))

    def _await_process(self, workspace, command, there, within):
        deadline = time.monotonic() + within
        while True:
            processes = self._docker("top", self.containers(workspace)[0], "-eo", "pid,args")
            if (re.search(command, processes) is not None) == there:
                return
            if time.monotonic() > deadline:
                raise AssertionError(processes)
            time.sleep(0.1)
