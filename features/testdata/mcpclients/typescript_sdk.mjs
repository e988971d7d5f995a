// The client of the official TypeScript SDK. It tells the story of story.py; with "restart" the
// daemon is restarted in the middle.

import { once } from "node:events";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const given = JSON.parse(process.argv[2]);
const load = createRequire(given.sdk + "/");
const { Client } = load("@modelcontextprotocol/sdk/client/index.js");
const { StreamableHTTPClientTransport } = load(
  "@modelcontextprotocol/sdk/client/streamableHttp.js",
);

const calc = "package calc\n\nfunc Add(a, b int) int { return a - b }\n";
const calcTest = `package calc

import "testing"

func TestAdd(t *testing.T) {
	if got := Add(2, 3); got != 5 {
		t.Fatalf("2 + 3 is %d", got)
	}
}
`;

const client = new Client({ name: "test", version: "1" });

function check(ok, what, result) {
  if (!ok) throw new Error(`${what}: ${JSON.stringify(result)}`);
}

async function call(name, args, options) {
  const result = await client.callTool(
    { name, arguments: name === "read_output" ? args : { cwd: given.dir, ...args } }, undefined, { timeout: 240_000, ...options });
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

// restart waits until the test has restarted the daemon.
async function restart() {
  const input = createInterface({ input: process.stdin });
  console.log("restart");
  await once(input, "line");
  input.close();
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
if (given.restart) await restart();
await run("edit_file", { path: "calc.go", edits: [{ old: "a - b", new: "a + b" }] });
const passed = await go("test", "-vet=off");
check(passed.text.startsWith("[exit 0 ") && passed.text.includes("ok"), "go test", passed);
const missing = await call("exec", { argv: ["no-such-program"] });
check(missing.isError && missing.text.includes("executable_not_found"), "a missing program", missing);
const long = await run("shell", { command: "seq 100000" });
check(long.text.includes("output truncated"), "a long output", long.text.slice(0, 200));
const lines = (await readAll(long.value.id)).trim().split("\n");
check(lines.length === 100_000 && lines.every((line, i) => line === String(i + 1)), "read_output");
await cancel();
const again = await run("shell", { command: "echo goes on" });
check(again.text.includes("goes on"), "the call after a cancelled one", again);
await client.close();
console.log("done");
