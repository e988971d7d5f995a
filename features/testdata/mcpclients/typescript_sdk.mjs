// The client of the official TypeScript SDK: of version 2 if the revision is given, else of version
// 1. It tells the story of story.py; with "restart" the daemon is restarted in the middle.

import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const given = JSON.parse(process.argv[2]);
const load = createRequire(given.sdk + "/");
const { Client, StreamableHTTPClientTransport, elicitation } = given.revision
  ? { ...load("@modelcontextprotocol/client"), elicitation: "elicitation/create" }
  : {
    ...load("@modelcontextprotocol/sdk/client/index.js"),
    ...load("@modelcontextprotocol/sdk/client/streamableHttp.js"),
    elicitation: load("@modelcontextprotocol/sdk/types.js").ElicitRequestSchema,
  };

const calc = "package calc\n\nfunc Add(a, b int) int { return a - b }\n";
const calcTest = `package calc

import "testing"

func TestAdd(t *testing.T) {
	if got := Add(2, 3); got != 5 {
		t.Fatalf("2 + 3 is %d", got)
	}
}
`;

const client = new Client({ name: "test", version: "1" }, {
  capabilities: { elicitation: {} },
  versionNegotiation: { mode: given.revision ? { pin: given.revision } : "legacy" },
});
const input = createInterface({ input: process.stdin });

function check(ok, what, result) {
  if (!ok) throw new Error(`${what}: ${JSON.stringify(result)}`);
}

async function call(name, args, options) {
  const request = { name, arguments: name === "read_output" ? args : { cwd: given.dir, ...args } };
  const more = { timeout: 240_000, ...options };
  const result = await (given.revision
    ? client.callTool(request, more) : client.callTool(request, undefined, more));
  return { text: result.content[0].text, value: result.structuredContent, isError: result.isError };
}

async function run(name, args) {
  const result = await call(name, args);
  check(!result.isError, name, result);
  return result;
}

const go = (...command) => run("exec", { argv: ["go", ...command, "./..."], timeout_seconds: 240 });

async function readAll(id) {
  let text = "";
  for (;;) {
    const { value } = await run("read_output", { id, offset: text.length, limit: 200_000 });
    text += value.text;
    if (value.next_offset === value.size) return text;
  }
}

// tellTest has the test do something, such as restart the daemon, and waits until it is done.
async function tellTest(what) {
  console.log(what);
  await once(input, "line");
}

// The user answers next, and remembers the questions, each with what was published by then.
const user = { next: "", asked: [] };
client.setRequestHandler(elicitation, ({ params }) => {
  user.asked.push({ question: params.message, before: published() });
  return { action: user.next, ...(user.next === "accept" && { content: {} }) };
});

const publication = (version) => ["sh", "-c", 'echo "$0" | tee -a published', version];

function published() {
  const path = given.folder + "/published";
  return existsSync(path) ? readFileSync(path, "utf8").trim().split("\n") : [];
}

// publishVersion makes a call that is decided about at once, or has been.
async function publishVersion(version, decision) {
  const want = decision === "approve" ? [...published(), version] : published();
  const result = await call("exec", { argv: publication(version) });
  const ok = decision === "approve"
    ? !result.isError && result.value.stdout === version + "\n"
    : result.isError && result.text.split("\n")[0].includes("(denied)");
  check(ok && String(published()) === String(want), "a call that was decided about", result);
}

// decidedOutside makes a call that is pending, and repeats it when the test has decided.
async function decidedOutside(version, decision) {
  const pending = await call("exec", { argv: publication(version) });
  check(pending.isError && pending.text.includes("(approval_required)"), "a pending call", pending);
  check(!published().includes(version), "a pending call ran", pending);
  const [, id] = pending.text.match(/dray approvals approve ([0-9a-f-]{36})/);
  await tellTest(decision + " " + id);
  await publishVersion(version, decision);
}

// publish makes calls that policy asks about. The user decides about the first two in the client.
// About the others, and those of a client that the daemon cannot ask, the test decides outside.
async function publish() {
  if (!given.asks) {
    await decidedOutside("1.0 beta", "approve");
    await decidedOutside("1.1 beta", "deny");
    check(user.asked.length === 0, "the user was asked", user.asked);
    return;
  }
  user.next = "accept";
  await publishVersion("1.0 beta", "approve");
  user.next = "decline";
  await publishVersion("1.1 beta", "deny");
  user.next = "cancel";
  await decidedOutside("1.2 beta", "approve");
  check(user.asked.length === 3, "the user is asked once about each", user.asked);
  ["1.0 beta", "1.1 beta", "1.2 beta"].forEach((version, i) => {
    const { question, before } = user.asked[i];
    const lines = Object.fromEntries(question.split("\n").slice(1).map((line) => {
      const [name, ...text] = line.split(": ");
      return [name, text.join(": ")];
    }));
    const directory = lines.workspace + "/" + lines.directory;
    const shown = JSON.stringify([JSON.parse(lines.input), directory, lines.why]);
    const want = JSON.stringify([{ argv: publication(version) }, given.folder, given.why]);
    check(shown === want, "what the user sees", question);
    check(!before.includes(version), "the call ran before the answer", question);
  });
}

async function cancel() {
  const abort = new AbortController();
  let started;
  const progress = new Promise((resolve) => { started = resolve; });
  const long = call(
    "shell", { command: `echo started; sleep ${given.mark} & sleep ${given.mark}` },
    { signal: abort.signal, onprogress: ({ message }) => started(message) });
  const rejected = long.then(() => "a result", () => "rejected");
  const first = await progress;
  check(first === "started", "progress", first);
  abort.abort("enough");
  const end = await rejected;
  check(end === "rejected", "the cancelled call", end);
}

await client.connect(new StreamableHTTPClientTransport(new URL(given.url), {
  requestInit: { headers: { Authorization: "Bearer " + given.token } },
}));
const names = (await client.listTools()).tools.map((tool) => tool.name);
for (const name of ["exec", "shell", "write_file", "edit_file", "read_output", "cancel_call"]) {
  check(names.includes(name), "a tool is not listed", name);
}
await run("write_file", { path: "go.mod", content: "module calc\n\ngo 1.24\n" });
await run("write_file", { path: "calc.go", content: calc });
await run("write_file", { path: "calc_test.go", content: calcTest });
const built = await go("build");
check(built.text.startsWith("[exit 0 "), "go build", built);
const failed = await go("test", "-vet=off");
check(failed.text.startsWith("[exit 1 ") && failed.text.includes("2 + 3 is -1"), "go test", failed);
if (given.restart) await tellTest("restart");
await run("edit_file", { path: "calc.go", edits: [{ old: "a - b", new: "a + b" }] });
const passed = await go("test", "-vet=off");
check(passed.text.startsWith("[exit 0 ") && passed.text.includes("ok"), "go test", passed);
const missing = await call("exec", { argv: ["no-such-program"] });
check(
  missing.isError && missing.text.includes("executable_not_found"), "a missing program", missing);
const long = await run("shell", { command: "seq 100000" });
check(long.text.includes("output truncated"), "a long output", long.text.slice(0, 200));
const lines = (await readAll(long.value.id)).trim().split("\n");
check(lines.length === 100_000 && lines.every((line, i) => line === String(i + 1)), "read_output");
await publish();
await cancel();
const again = await run("shell", { command: "echo goes on" });
check(again.text.includes("goes on"), "the call after a cancelled one", again);
await client.close();
input.close();
console.log("done");
