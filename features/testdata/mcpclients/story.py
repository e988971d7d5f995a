"""The story that each Python client of MCP tells: build and test a small Go module in a container.

A client is a function that calls a tool: call(name, arguments, progress) returns a Result, where
progress is None or a function of a line. Cancelling the task cancels the call.
"""

import asyncio
import dataclasses
import json
import os
import re
import sys

CALC = "package calc\n\nfunc Add(a, b int) int { return a - b }\n"
CALC_TEST = """package calc

import "testing"

func TestAdd(t *testing.T) {
	if got := Add(2, 3); got != 5 {
		t.Fatalf("2 + 3 is %d", got)
	}
}
"""


@dataclasses.dataclass
class Result:
    text: str
    value: dict
    is_error: bool


class User:
    """User is the person at a client whose library can ask. The client gives answer the text of a
    question, and sends what it returns: accept, decline or cancel."""

    def __init__(self, given):
        self.given = given
        self.next = None  # what to answer
        self.asked = []  # questions, each with what was published by then

    def answer(self, question):
        self.asked.append((question, published(self.given)))
        return self.next


def parameters():
    """parameters returns the argument of the script: url, token, dir, folder, mark, why."""
    return json.loads(sys.argv[1])


def check(ok, what, result=None):
    if not ok:
        raise AssertionError(f"{what}: {result}")


async def tell(call, tools, given, user=None, cancels=True):
    """tell plays the story. tools are the names that the client lists. A client that cannot ask has
    no user; one that does not tell the server about a cancelled call uses cancel_call."""
    for name in ("exec", "shell", "write_file", "edit_file", "read_output", "cancel_call"):
        check(name in tools, "a tool is not listed", name)

    async def run(name, **arguments):
        if name not in ("read_output", "cancel_call"):
            arguments = {"cwd": given["dir"], **arguments}
        result = await call(name, arguments, None)
        check(not result.is_error, name, result)
        return result

    async def go(*arguments):
        return await run("exec", argv=["go", *arguments, "./..."], timeout_seconds=240)

    await run("write_file", path="go.mod", content="module calc\n\ngo 1.24\n")
    await run("write_file", path="calc.go", content=CALC)
    await run("write_file", path="calc_test.go", content=CALC_TEST)
    built = await go("build")
    check(built.text.startswith("[exit 0 "), "go build", built)
    failed = await go("test", "-vet=off")
    check(failed.text.startswith("[exit 1 ") and "2 + 3 is -1" in failed.text, "go test", failed)
    check("2 + 3 is -1" in json.dumps(failed.value), "the structured result", failed)
    await run("edit_file", path="calc.go", edits=[{"old": "a - b", "new": "a + b"}])
    passed = await go("test", "-vet=off")
    check(passed.text.startswith("[exit 0 ") and "ok" in passed.text, "go test", passed)
    missing = await call("exec", {"argv": ["no-such-program"], "cwd": given["dir"]}, None)
    check(missing.is_error and "executable_not_found" in missing.text, "a missing program", missing)
    await cut_output(run)
    await publish(call, given, user)
    await cancel(call, run, given, cancels)


async def cut_output(run):
    """cut_output reads all of an output that its result has only a part of."""
    result = await run("shell", command="seq 100000")
    check("output truncated" in result.text, "a long output", result.text[:200])
    text = ""
    while True:
        part = await run("read_output", id=result.value["id"], offset=len(text), limit=200_000)
        text += part.value["text"]
        if part.value["next_offset"] == part.value["size"]:
            break
    check(text.split() == [str(n) for n in range(1, 100_001)], "read_output", text[-100:])


async def publish(call, given, user):
    """publish makes calls that policy asks about. The user decides about the first two in the
    client. About the others, and those of a client that cannot ask, the test decides outside."""
    if user is None:
        await decided_outside(call, given, "1.0 beta", "approve")
        await decided_outside(call, given, "1.1 beta", "deny")
        return
    user.next = "accept"
    await publish_version(call, given, "1.0 beta", "approve")
    user.next = "decline"
    await publish_version(call, given, "1.1 beta", "deny")
    user.next = "cancel"
    await decided_outside(call, given, "1.2 beta", "approve")
    versions = ["1.0 beta", "1.1 beta", "1.2 beta"]
    check(len(user.asked) == len(versions), "the user is asked once about each", user.asked)
    for version, (question, before) in zip(versions, user.asked):
        lines = dict(line.split(": ", 1) for line in question.splitlines()[1:])
        directory = os.path.join(lines["workspace"], lines["directory"])
        shown = json.loads(lines["input"]), directory, lines["why"]
        want = {"argv": publication(version)}, given["folder"], given["why"]
        check(shown == want, "what the user sees", question)
        check(version not in before, "the call ran before the answer", question)


def publication(version):
    return ["sh", "-c", 'echo "$0" | tee -a published', version]


def published(given):
    path = os.path.join(given["folder"], "published")
    if not os.path.exists(path):
        return []
    with open(path) as file:
        return file.read().splitlines()


async def publish_version(call, given, version, decision):
    """publish_version makes a call that is decided about at once, or has been."""
    before = published(given)
    arguments = {"argv": publication(version), "cwd": given["dir"]}
    result = await call("exec", arguments, None)
    if decision == "approve":
        ok = not result.is_error and result.value["stdout"] == version + "\n"
        check(ok and published(given) == before + [version], "an approved call", result)
    else:
        ok = result.is_error and "(denied)" in result.text.splitlines()[0]
        check(ok and published(given) == before, "a denied call", result)


async def decided_outside(call, given, version, decision):
    """decided_outside makes a call that is pending, and repeats it when the test has decided."""
    before = published(given)
    arguments = {"argv": publication(version), "cwd": given["dir"]}
    pending = await call("exec", arguments, None)
    check(pending.is_error and "(approval_required)" in pending.text, "a pending call", pending)
    check(published(given) == before, "a pending call ran", pending)
    command = re.search("dray approvals approve ([0-9a-f-]{36})", pending.text)
    check(command, "the id of the approval", pending)
    print(decision, command[1], flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await publish_version(call, given, version, decision)


async def cancel(call, run, given, cancels):
    """cancel cancels a call while its process runs. The test looks for the process afterwards."""
    lines = asyncio.Queue()
    mark = given["mark"]
    command = f"echo started; touch started; sleep {mark} & sleep {mark}"
    arguments = {"cwd": given["dir"], "command": command, "idempotency_key": f"long-{mark}"}
    long = asyncio.ensure_future(call("shell", arguments, lines.put_nowait))
    check(await asyncio.wait_for(lines.get(), 30) == "started", "progress")
    while not os.path.exists(os.path.join(given["folder"], "started")):
        await asyncio.sleep(0.05)  # some clients do one call at a time, so no call can look
    if not cancels:
        # The key makes this the same call, whose id the first request has not returned yet.
        same = await run("shell", **{**arguments, "wait_ms": 10})
        await run("cancel_call", id=same.value["id"])
        ended = await long
        check(ended.is_error and "cancelled" in ended.text, "the cancelled call", ended)
        return
    long.cancel()
    try:
        await long
        check(False, "the cancelled call has a result")
    except asyncio.CancelledError:
        pass
    again = await run("shell", command="echo goes on")
    check("goes on" in again.text, "the call after a cancelled one", again)


def play(main):
    asyncio.run(asyncio.wait_for(main(parameters()), 300))
    print("done")
