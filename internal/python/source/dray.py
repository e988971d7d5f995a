"""Asks the daemon for what the permissions of the session allow.

    read_text_file(path)        the text of a file beneath the working directory of the call
    fetch(url, ...)             an HTTP request to a permitted host
    call_tool(name, input)      the output of a tool of dray

Each blocks until the daemon answers, and raises DrayError. Where a permission is missing that is a
PermissionError with errno EACCES; a function that the daemon does not offer fails with ENOSYS.
"""

import base64
import errno
import json

__name__ = "dray"
__all__ = ["DrayError", "Response", "call_tool", "fetch", "read_text_file"]

MAX_CALL = (4 << 20) - 128  # bytes of a call; the worker adds its number

_send = None  # sends a call as JSON and returns the result; None if an interrupt came first


class DrayError(OSError):
    """A call of the daemon failed. code is a code of dray or empty, hint the next step."""

    code = hint = errno_name = ""


def _kinds():
    kinds = {}
    for base, number in [
        (PermissionError, "EACCES"), (FileNotFoundError, "ENOENT"), (TimeoutError, "ETIMEDOUT"),
    ]:
        kinds[number] = type("DrayError", (DrayError, base), {
            "__module__": "dray", "__doc__": DrayError.__doc__,
        })
    return kinds


_KINDS = _kinds()


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def _call(function, arguments):
    arguments = json.loads(_encode(arguments))  # equal keys, such as 1 and "1", become one
    call = _encode({function: arguments})
    if len(call.encode()) > MAX_CALL:
        raise _error({"errno": "EMSGSIZE", "code": "ERR_PAYLOAD_TOO_LARGE",
                      "message": "the call is larger than %d bytes" % MAX_CALL, "hint": ""})
    result = None
    while result is None:
        result = _send(call)
    result = json.loads(result)
    if "error" in result:
        if result["error"]["errno"] == "ECANCELED":  # Python asks for the interrupt in a loop
            for _ in range(1 << 16):
                pass
        raise _error(result["error"])
    return result


def _error(found):
    name = found["errno"]
    text = found["message"]
    if found["hint"]:
        text += " (%s)" % found["hint"]
    err = _KINDS.get(name, DrayError)(getattr(errno, name, errno.EIO), text)
    err.code, err.hint, err.errno_name = found["code"], found["hint"], name
    return err


def read_text_file(path: str) -> str:
    """Returns the text of a file on the host as it is now, at most 3,000,000 bytes of UTF-8.

    path is relative to the working directory of the call, or absolute and beneath it. It needs the
    permission fs.
    """
    import os

    found = _call("read_text_file", {"path": os.fspath(path)})
    return base64.b64decode(found["content"]).decode()


class Response:
    """What a host answered: status, url, headers by lower-case name, and bytes, the body."""

    def __init__(self, status, url, headers, content):
        self.status, self.url, self.bytes = status, url, content
        self.headers = {}
        for name, value in headers:
            self.headers[name] = self.headers[name] + ", " + value if name in self.headers else value

    @property
    def ok(self) -> bool:
        """Whether the status is below 400."""
        return self.status < 400

    def text(self, encoding: str = "utf-8", errors: str = "replace") -> str:
        """Returns the body as text."""
        return self.bytes.decode(encoding, errors)

    def json(self):
        """Returns the body as JSON."""
        return json.loads(self.bytes)

    def __repr__(self):
        return "<Response %d, %d bytes>" % (self.status, len(self.bytes))


def fetch(url: str, *, method: str = "GET", headers: dict | None = None,
          body: bytes | str | None = None, timeout: float | None = None) -> Response:
    """Sends a request, follows at most 5 redirects, and returns the response, whatever its status.

    The host, and that of each redirect, needs the permission network and a public address. The body
    of the response has at most 3,000,000 bytes. timeout is in seconds, by default 30.
    """
    if isinstance(body, str):
        body = body.encode()
    found = _call("fetch", {
        "url": str(url), "method": method.upper(), "timeout": timeout or 0,
        "headers": [[str(k), str(v)] for k, v in (headers or {}).items()],
        "body": base64.b64encode(body or b"").decode(),
    })["response"]
    return Response(found["status"], found["url"], found["headers"],
                    base64.b64decode(found["content"]))


def call_tool(name: str, input: dict | None = None):
    """Calls a tool of dray in the workspace of this call, and returns its output.

    Of a tool without one, as exec, it returns exit_code, stdout and stderr. A tool that only reads
    needs the permission fs read, any other one fs write, and one that may use the network also
    hosts in network. python cannot be called.
    """
    return _call("call_tool", {"name": str(name), "input": {} if input is None else input})["output"]
