// Runs Pyodide in Deno for one Python session: the worker of the runtime pyodide.
//
//     deno run FLAGS pyodide.js OPTIONS
//
// OPTIONS is JSON: mode ("make" writes a memory snapshot to stdout, "run" is a worker), pyodide
// (the folder of Pyodide), folder (that of this file, the Python sources and the snapshot), interrupts
// (a file, see pollInterrupt), snapshot (whether to load it), generation, memory (a bound of
// Python's memory in bytes), lockdown, preload (packages to import before the hello). Its paths are
// names in the working directory.
//
// Deno's permissions are the boundary: they deny everything but reading these. Lock-down
// makes the boundary hard to reach. It removes what Deno adds to JavaScript, and V8 is started so
// that it compiles no text: code in Python cannot become code in JavaScript. What this file needs
// later is taken before any code of a user runs, so a patched prototype changes no frame.
// @ts-check

import { newFiles } from "./files.js";

const D = /** @type {any} */ (globalThis).Deno;
const G = /** @type {any} */ (globalThis);
const options = JSON.parse(D.args[0]);

const { readFileSync, exit } = D;
const now = performance.now.bind(performance);
const wait = Atomics.wait;
const readStdin = D.stdin.readSync.bind(D.stdin);
const writeStdout = D.stdout.writeSync.bind(D.stdout);
const writeStderr = D.stderr.writeSync.bind(D.stderr);
const WasmMemory = WebAssembly.Memory;
const Bytes = Uint8Array;
const JSString = String;
const uncurry = Function.prototype.bind.bind(Function.prototype.call);
const subarray = uncurry(Bytes.prototype.subarray);
const slice = uncurry(Bytes.prototype.slice);
const setBytes = uncurry(Bytes.prototype.set);
const encoder = new TextEncoder();
const encode = encoder.encode.bind(encoder);
const decoder = new TextDecoder();
const decode = decoder.decode.bind(decoder);

// --- Frames (doc.go) ---

const HEADER = 17;
const FIXED = 13;
const MAX_BODY = 1 << 20;
const INTERRUPT = 120; // x
const STDIN = 105; // i
const STDIN_END = 73;
const REQUEST = 113; // q
const REQUEST_END = 81;
const FILES = 102; // f
const FILES_END = 70;
const RESULT = 98; // b
const RESULT_END = 66;

let sentFrames = 0;
let receivedFrames = 0;
let request = 0; // that runs; 0 is none
let broken = false; // the interpreter can run no more code

/** @param {Uint8Array} b */
function writeAll(b, write = writeStdout) {
  for (let done = 0; done < b.length;) done += write(subarray(b, done));
}

/** @param {Uint8Array} b @param {number} at @param {number} n */
function putUint32(b, at, n) {
  b[at] = n >>> 24;
  b[at + 1] = n >>> 16;
  b[at + 2] = n >>> 8;
  b[at + 3] = n;
}

/** @param {Uint8Array} b @param {number} at */
function uint32(b, at) {
  return ((b[at] << 24) | (b[at + 1] << 16) | (b[at + 2] << 8) | b[at + 3]) >>> 0;
}

/** Sends a body in frames. part is the type of all but the last. */
/** @param {string} part @param {string} last @param {Uint8Array} body */
function send(part, last, body) {
  let rest = body;
  do {
    const n = rest.length < MAX_BODY ? rest.length : MAX_BODY;
    const frame = new Bytes(HEADER + n);
    putUint32(frame, 0, FIXED + n);
    frame[4] = (n < rest.length ? part : last).charCodeAt(0);
    putUint32(frame, 5, options.generation);
    putUint32(frame, 9, request);
    putUint32(frame, 13, sentFrames++);
    setBytes(frame, subarray(rest, 0, n), HEADER);
    writeAll(frame);
    rest = subarray(rest, n);
  } while (rest.length > 0);
}

/** Reads n bytes. The worker ends with its stdin. */
/** @param {number} n */
function readExactly(n) {
  const b = new Bytes(n);
  for (let done = 0; done < n;) {
    const got = readStdin(subarray(b, done));
    if (got === null) exit(0);
    done += got;
  }
  return b;
}

/** Reads a frame. The daemon is trusted: what it cannot have sent ends the worker. */
function readFrame() {
  const head = readExactly(HEADER);
  const size = uint32(head, 0) - FIXED;
  if (size < 0 || size > MAX_BODY || uint32(head, 5) !== options.generation ||
    uint32(head, 13) !== receivedFrames++) fail("a frame from the daemon is wrong");
  return { kind: head[4], request: uint32(head, 9), body: readExactly(size) };
}

/** @param {string} text */
function log(text) {
  writeAll(encode(text + "\n"), writeStderr);
}

/** Ends the worker with a text for the daemon's log. */
/** @param {string} text @returns {never} */
function fail(text) {
  log(text);
  exit(1);
  throw text;
}

// --- Streams of the code ---

/** @type {Uint8Array} */
let stdinRest = new Bytes(0);
let stdinEnded = true;
let interrupted = false;
let interruptFrames = 0; // of the request
let interruptRecords = 0; // of the request, in the file
let interruptsSeen = 0; // of the request, by frame or file

/** Frames of stdin that came while the code waited for a result. They are few: the daemon sends */
/** none while it has a call. */
/** @type {any[]} */
let stdinFrames = [];
let nextStdin = 0; // of stdinFrames

/** Reads stdin of the request that runs. */
/** @param {Uint8Array} buffer */
function readCodeStdin(buffer) {
  while (stdinRest.length === 0 && !stdinEnded) {
    const frame = nextStdin < stdinFrames.length ? stdinFrames[nextStdin++] : readFrame();
    if (frame.request !== request) continue; // stdin of an earlier request
    if (frame.kind === STDIN) stdinRest = frame.body;
    if (frame.kind === STDIN_END) stdinEnded = true;
    if (frame.kind === INTERRUPT && ++interruptFrames > interruptsSeen) {
      interruptsSeen = interruptFrames;
      interrupted = true;
      throw new python._module.FS.ErrnoError(27); // EINTR: Python asks for signals, then repeats
    }
  }
  const n = stdinRest.length < buffer.length ? stdinRest.length : buffer.length;
  setBytes(buffer, subarray(stdinRest, 0, n));
  stdinRest = subarray(stdinRest, n);
  return n;
}

let brokered = 0; // calls of the request

/** Sends a call to the daemon and waits for the result; both are JSON. An interrupt makes the daemon */
/** answer at once. One that comes before the call is sent makes it return null: Python asks for */
/** signals, then repeats. call is an object without its first brace. */
/** @param {string} call */
function broker(call) {
  if (request === 0) fail("a call while no request runs");
  nextPoll = 0;
  if (!interrupted) pollInterrupt();
  if (interrupted) return null;
  const id = ++brokered;
  send("c", "C", encode('{"id":' + id + ',"interrupts":' + interruptsSeen + "," + call));
  if (nextStdin === stdinFrames.length) {
    stdinFrames = [];
    nextStdin = 0;
  }
  /** @type {Uint8Array[]} */
  const parts = [];
  for (let n = 0;;) {
    const frame = readFrame();
    if (frame.request !== request) continue;
    if (frame.kind === STDIN || frame.kind === STDIN_END) stdinFrames[stdinFrames.length] = frame;
    if (frame.kind === INTERRUPT && ++interruptFrames > interruptsSeen) {
      interruptsSeen = interruptFrames;
      interrupted = true;
    }
    if (frame.kind === RESULT || frame.kind === RESULT_END) parts[n++] = frame.body;
    if (frame.kind !== RESULT_END) continue;
    nextPoll = 0;
    if (!interrupted) pollInterrupt(); // the daemon recorded it before it answered
    return decode(join(parts));
  }
}

/** @param {string} kind */
function codeOutput(kind) {
  return {
    isatty: false,
    /** @param {Uint8Array} buffer */
    write(buffer) {
      if (broken) writeAll(slice(buffer), writeStderr); // Pyodide prints where the code was
      else if (request !== 0 && buffer.length > 0) send(kind, kind, slice(buffer));
      return buffer.length;
    },
  };
}

const POLL_MS = 50;
let nextPoll = 0;

const interruptFile = options.interrupts ? D.openSync(options.interrupts) : null;
const readInterrupts = interruptFile?.readSync.bind(interruptFile);
const interruptRecord = new Bytes(4);

/** Reads interrupts while code runs and nothing reads frames: the daemon appends the number of the */
/** request to a file. */
function pollInterrupt() {
  const time = now();
  if (time < nextPoll) return;
  nextPoll = time + POLL_MS;
  while (readInterrupts(interruptRecord) === 4) {
    if (uint32(interruptRecord, 0) !== request || ++interruptRecords <= interruptsSeen) continue;
    interruptsSeen = interruptRecords;
    interrupted = true;
  }
}

// Python reads an element now and then while code runs, and sets it to 0.
let reads = 0;
const signals = {
  get 0() {
    if (!interrupted && (++reads & 63) === 0) pollInterrupt();
    if (!interrupted) return 0;
    interrupted = false;
    return 2; // SIGINT
  },
  set 0(_) {},
};

const sleepCell = new Int32Array(new SharedArrayBuffer(4));

/** Blocks for at most POLL_MS, and reports whether an interrupt has come. */
/** @param {number} ms */
function sleep(ms) {
  wait(sleepCell, 0, 0, ms < POLL_MS ? ms : POLL_MS);
  if (!interrupted) pollInterrupt();
  return interrupted;
}

// --- Pyodide ---

/** @type {any} */
let python;
/** @type {any} */
let files;

// Pyodide finds out where it runs: with these three it is a plain JavaScript shell, and uses neither
// Deno nor Node. The shell of Emscripten has no source of random bytes but this program.
function pretendShell() {
  const random = crypto.getRandomValues.bind(crypto);
  const toText = JSString.fromCharCode;
  const base64 = btoa;
  delete G.process;
  G.load = G.read = (/** @type {string} */ name) => fail("Pyodide loads " + name);
  G.readbuffer = (/** @type {string} */ name) => {
    const b = readFileSync(name);
    return name.endsWith("/pyodide.asm.wasm") ? boundMemory(b) : b;
  };
  G.os = {
    system(/** @type {string} */ _, /** @type {string[]} */ args) {
      const n = +(/head -c(\d+)/.exec(args[1])?.[1] ?? 0);
      return base64(toText(...random(new Bytes(n))));
    },
  };
  for (const name of ["log", "info", "warn", "error", "debug"]) {
    G.console[name] = (/** @type {any[]} */ ...words) => {
      if (JSString(words[0]).startsWith("Pyodide has suffered a fatal error")) broken = true;
      log(words.map(JSString).join(" "));
    };
  }
}

/** Writes a bound into the memory section of the program: above it, Python gets MemoryError. */
/** @param {Uint8Array} wasm */
function boundMemory(wasm) {
  let at = 8;
  const number = () => {
    for (let n = 0, shift = 0;; shift += 7) {
      n |= (wasm[at] & 127) << shift;
      if (wasm[at++] < 128) return n >>> 0;
    }
  };
  for (;;) {
    const section = wasm[at++];
    const end = number() + at;
    if (section !== 5) {
      at = end;
      continue;
    }
    at += 2; // one memory, with a maximum
    const initial = number();
    const pages = Math.max(initial, Math.floor(options.memory / 65536));
    if (end - at !== 3) fail("pyodide.asm.wasm has another memory section");
    if (pages < 65536) {
      wasm[at] = pages & 127 | 128;
      wasm[at + 1] = pages >> 7 & 127 | 128;
      wasm[at + 2] = pages >> 14;
    }
    return wasm;
  }
}

/** @param {string} name */
function text(name) {
  return decode(readFileSync(options.folder + "/" + name));
}

async function load() {
  pretendShell();
  const module = (/** @type {string} */ name) =>
    import.meta.resolve("../" + options.pyodide + "/" + name);
  const createPyodideModule = (await import(module("pyodide.asm.mjs"))).default;
  const { loadPyodide } = await import(module("pyodide.mjs"));
  const lock = JSON.parse(decode(readFileSync(options.pyodide + "/pyodide-lock.json")));
  const { setTimeout, clearTimeout } = G;
  const bare = {
    setTimeout: (/** @type {any} */ f, /** @type {number} */ ms) => setTimeout(f, ms),
    clearTimeout: (/** @type {any} */ id) => clearTimeout(id),
  };
  python = await loadPyodide({
    indexURL: options.pyodide + "/", createPyodideModule,
    jsglobals: options.lockdown ? bare : G,
    lockFileContents: { info: lock.info, packages: {} }, packageBaseUrl: "/nowhere/",
    env: { HOME: "/home/user", PYTHONINSPECT: "", MPLBACKEND: "agg" },
    enableRunUntilComplete: false, fullStdLib: false,
    _makeSnapshot: options.mode === "make",
    _loadSnapshot: options.snapshot ? readFileSync(options.folder + "/snapshot.bin") : undefined,
  });
  // Pyodide would keep the snapshot and the program as long as it lives.
  python._api.config._loadSnapshot = undefined;
  python._module.instantiateWasm = undefined;
  if (!options.snapshot) {
    for (const name of ["values", "core", "packages", "dray", "pyodide"]) {
      python.globals.set("_dray_source", text(name + ".py"));
      python.runPython(LOAD.replaceAll("NAME", name));
    }
    python.globals.set("_dray_source", text("packages.json"));
    python.runPython(LOAD_INDEX);
  }
}

// A module is made from code with a file name that tracebacks leave out.
const LOAD = `
import sys, types
_dray_module = types.ModuleType("_dray_NAME")
sys.modules["_dray_NAME"] = _dray_module
exec(compile(_dray_source, "<dray NAME.py>", "exec", 0, True), _dray_module.__dict__)
del _dray_module, _dray_source, sys, types
`;

const LOAD_INDEX = `
import json, _dray_packages
_dray_packages.INDEX[:] = json.loads(_dray_source)
del _dray_packages, _dray_source, json
`;

/** Returns a function that copies the file of a package to Python's file system. */
function packageReader() {
  /** @type {string[]} */
  const files = JSON.parse(text("packages.json")).map((/** @type {any} */ one) => one.file);
  const count = files.length;
  const { FS } = python._module;
  /** @param {number} number @param {string} path */
  return (number, path) => {
    if (!(number >= 0 && number < count)) throw new RangeError("there is no such package");
    FS.writeFile(path, readFileSync(options.pyodide + "/" + files[number >>> 0]), { canOwn: true });
  };
}

// The stack in Python's memory has 10 MiB. Functions in C that recurse use several times as much of
// V8's own stack, which would be full first, and that ends the session. With this bound in bytes
// Python raises RecursionError before. It cannot bound functions that use none of its stack, as
// the deallocation of nested lists and hash() of nested tuples.
const PYTHON_STACK = 2 << 20;

function boundStack() {
  const { _PyThreadState_Get, _PyUnstable_ThreadState_SetStackProtection,
    _emscripten_stack_get_base } = python._module;
  if (_PyUnstable_ThreadState_SetStackProtection(_PyThreadState_Get(),
    _emscripten_stack_get_base() - PYTHON_STACK, PYTHON_STACK) !== 0) fail("cannot bound the stack");
}

// --- Lock-down ---

// What remains of the global object besides the language. Pyodide uses it while Python runs.
const KEPT = new Set([
  "AbortController", "AbortSignal", "TextDecoder", "TextEncoder", "URL", "clearTimeout", "console",
  "crypto", "os", "performance", "queueMicrotask", "setTimeout",
]);
const LANGUAGE = new Set([
  "AggregateError", "Array", "ArrayBuffer", "AsyncDisposableStack", "Atomics", "BigInt",
  "BigInt64Array", "BigUint64Array", "Boolean", "DataView", "Date", "DisposableStack", "Error",
  "EvalError", "FinalizationRegistry", "Float16Array", "Float32Array", "Float64Array", "Function",
  "Infinity", "Int16Array", "Int32Array", "Int8Array", "Intl", "Iterator", "JSON", "Map", "Math",
  "NaN", "Number", "Object", "Promise", "Proxy", "RangeError", "ReferenceError", "Reflect", "RegExp",
  "Set", "SharedArrayBuffer", "String", "SuppressedError", "Symbol", "SyntaxError", "TypeError",
  "URIError", "Uint16Array", "Uint32Array", "Uint8Array", "Uint8ClampedArray", "WeakMap", "WeakRef",
  "WeakSet", "WebAssembly", "decodeURI", "decodeURIComponent", "encodeURI", "encodeURIComponent",
  "escape", "eval", "globalThis", "isFinite", "isNaN", "parseFloat", "parseInt", "undefined",
  "unescape", "Temporal",
]);

function lockDown() {
  for (const key of Object.getOwnPropertyNames(G)) {
    if (KEPT.has(key) || LANGUAGE.has(key)) continue;
    if (!Reflect.deleteProperty(G, key)) {
      const was = Reflect.getOwnPropertyDescriptor(G, key);
      if (was?.writable) G[key] = undefined;
    }
  }
}

/** Refuses to start unless the restrictions hold. */
async function selfTest() {
  const wrong = [];
  for (const key of Object.getOwnPropertyNames(G)) {
    if (!KEPT.has(key) && !LANGUAGE.has(key) && G[key] !== undefined) wrong.push("global " + key);
  }
  for (const make of [() => (0, eval)("1"), () => new Function("return 1"),
    () => (async () => {}).constructor("return 1")]) {
    try {
      make();
      wrong.push("code from text");
    } catch (err) {
      if (!(err instanceof EvalError)) throw err;
    }
  }
  const denied = D.errors.NotCapable;
  for (const attempt of [
    () => D.readTextFileSync("/etc/hostname"), () => D.writeTextFileSync("/tmp/dray", ""),
    () => D.env.get("HOME"), () => D.hostname(), () => new D.Command("/bin/true").outputSync(),
    () => D.listen({ port: 0 }), () => D.dlopen("/lib64/libc.so.6", {}),
  ]) {
    try {
      attempt();
      wrong.push("permission: " + attempt);
    } catch (err) {
      if (!(err instanceof denied)) throw err;
    }
  }
  if (wrong.length) fail("the self-test failed: " + wrong.join(", "));
}

// --- Main ---

/** Reads frames until a request is complete. Frames of earlier requests are dropped. */
function nextRequest() {
  /** @type {Uint8Array[]} */
  const parts = [];
  for (;;) {
    const frame = readFrame();
    if (frame.kind === FILES || frame.kind === FILES_END) files.receive(frame);
    if (frame.kind !== REQUEST && frame.kind !== REQUEST_END) continue;
    parts.push(frame.body);
    if (frame.kind === REQUEST_END) {
      request = frame.request;
      return join(parts);
    }
  }
}

/** @param {Uint8Array[]} parts */
function join(parts) {
  if (parts.length === 1) return parts[0];
  let size = 0;
  for (const p of parts) size += p.length;
  const whole = new Bytes(size);
  let at = 0;
  for (const p of parts) {
    setBytes(whole, p, at);
    at += p.length;
  }
  return whole;
}

const STACK_OVERFLOW = '{"ok":false,"code":1,"error":{"code":"limit_exceeded","message":' +
  '"the stack of the interpreter is too small for this; the session has ended"},' +
  '"usage":{"wall_ms":0,"cpu_ms":0,"memory_bytes":0}}';

/** @param {any} execute */
async function serve(execute) {
  for (;;) {
    const body = nextRequest();
    stdinRest = new Bytes(0);
    stdinFrames = [];
    nextStdin = brokered = 0;
    stdinEnded = interrupted = false;
    interruptFrames = interruptRecords = interruptsSeen = 0;
    let reply;
    try {
      reply = execute(decode(body));
    } catch (err) {
      const status = /** @type {any} */ (err)?.status;
      if (typeof status === "number") exit(status & 255); // os._exit
      if (!(err instanceof RangeError)) fail("Python ended: " + describe(err));
      send("r", "R", encode(STACK_OVERFLOW)); // this interpreter can run no more code
      exit(1);
    }
    files.drain();
    send("r", "R", encode(reply));
    request = 0;
    // In a session nothing asynchronous ever goes on. The tests of Deno's permissions need it.
    if (!options.lockdown) await new Promise((done) => setTimeout(done, 250));
  }
}

/** @param {any} err */
function describe(err) {
  try {
    return JSString(err?.stack ?? err).slice(0, 2000);
  } catch {
    return "an error without a description";
  }
}

async function main() {
  await load();
  if (options.mode === "make") {
    const snapshot = python.makeMemorySnapshot();
    let end = snapshot.length; // memory without content need not be kept
    while (snapshot[end - 1] === 0) end--;
    writeAll(subarray(snapshot, 0, end + 3 & ~3));
    exit(0);
  }
  boundStack();
  files = newFiles(python._module.FS, readFrame,
    (last, body) => send(last ? "T" : "t", last ? "T" : "t", body));
  python.setStdin({ read: readCodeStdin });
  python.setStdout(codeOutput("o"));
  python.setStderr(codeOutput("e"));
  python.setInterruptBuffer(signals);
  const [hello, execute] = python.pyimport("_dray_pyodide").start({
    locked: options.lockdown, sleep, broker, memory: () => python._module.HEAP8.length,
    readPackage: packageReader(), packageLimit: options.memory,
    preload: JSON.stringify(options.preload ?? []), fail,
  });
  const collect = G.gc;
  if (options.lockdown) {
    lockDown();
    await selfTest();
  }
  collect?.(); // the snapshot and the program were read into memory
  send("H", "H", encode(hello));
  await serve(execute);
}

await main().catch((err) => fail("cannot start: " + describe(err)));
