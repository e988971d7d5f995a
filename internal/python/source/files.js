// The files of a session of the runtime pyodide: what the daemon stages, and what code has changed.
// Both are trees in the format of executor/files/tree (docs/adr/0040-files-of-a-pyodide-session.md).
//
// The files are nodes of Emscripten's MEMFS. A write sets the ctime of a node to a whole number of
// milliseconds, and code cannot set it to anything else. A change of the length makes another array
// for the content. So every node that is known to the daemon gets a ctime with a fraction of MARK, and
// a node without it, or with another array, has changed.
// @ts-check

const Bytes = Uint8Array;
const { floor } = Math;
const { hasOwn, keys } = Object;
const decoder = new TextDecoder();
const decode = decoder.decode.bind(decoder);
const encoder = new TextEncoder();
const encode = encoder.encode.bind(encoder);

const MARK = 0.5;
const FILES = 102; // f
const FILES_END = 70;
const DIR = 68; // D
const FILE = 70; // F
const PIECE = 67; // C
const END = 69; // E
const REFUSED = 82; // R
const DONE = 90; // Z
const ABORT = 88; // X
const MAGIC = [100, 114, 116, 49]; // drt1
const MAX_PIECE = 256 << 10;
// The lengths of names in bytes.
const MAX_NAME = 4095;
const MAX_ELEMENT = 255;
const BUFFER = 1 << 20;
// Indexes of codes in executor/files/tree/format.go.
const PATH_INVALID = 0;
const NOT_FOUND = 2;
const ABORT_LIMIT = 1;
const ABORT_PATH = 2;

/** Thrown when the daemon has ended a tree early. */
const truncated = {};

/**
 * @param {any} FS Emscripten's file system
 * @param {() => { kind: number, body: Uint8Array }} readFrame
 * @param {(last: boolean, body: Uint8Array) => void} sendFrame sends a frame t or T
 */
export function newFiles(FS, readFrame, sendFrame) {
  /** @type {any} */
  let settings = null; // of the request to come; null is none
  /** @type {Map<string, { node: any, content: any }>} what the daemon knows, by relative name */
  let known = new Map();
  let root = "";
  /** @type {Map<string, { node: any, content: any }>} files outside of the root, by path */
  let apart = new Map();
  /** @type {Map<string, string>} what the directories have that were made for these files */
  let apartDirs = new Map();

  // --- A tree from the daemon ---

  /** @type {Uint8Array} */
  let chunk = new Bytes(0);
  let at = 0;
  let last = false;

  function nextChunk() {
    do {
      if (last) throw truncated;
      const frame = readFrame();
      if (frame.kind !== FILES && frame.kind !== FILES_END) continue; // of an earlier request
      chunk = frame.body;
      at = 0;
      last = frame.kind === FILES_END;
    } while (at === chunk.length);
  }

  function byte() {
    if (at === chunk.length) nextChunk();
    return chunk[at++];
  }

  /** @param {Uint8Array} target */
  function fill(target) {
    for (let done = 0; done < target.length;) {
      if (at === chunk.length) nextChunk();
      const n = Math.min(target.length - done, chunk.length - at);
      target.set(chunk.subarray(at, at + n), done);
      done += n;
      at += n;
    }
    return target;
  }

  function number() {
    for (let n = 0, scale = 1;; scale *= 128) {
      const b = byte();
      n += (b & 127) * scale;
      if (b < 128) return n;
    }
  }

  const text = () => decode(fill(new Bytes(number())));

  /** Receives a tree. The first frame has settings as JSON, the others have the tree. */
  /** @param {{ kind: number, body: Uint8Array }} first */
  function receive(first) {
    settings = JSON.parse(decode(first.body));
    last = first.kind === FILES_END;
    chunk = new Bytes(0);
    at = 0;
    const ignored = FS.ignorePermissions;
    FS.ignorePermissions = true; // code may have taken them away
    FS.chdir("/");
    try {
      for (const path of [...apart.keys(), ...apartDirs.keys()]) remove(path);
      apart = new Map();
      apartDirs = new Map();
      if (settings.root !== root || settings.clear) {
        if (root !== "") remove(root);
        root = settings.root;
        if (root !== "") remove(root);
        known = new Map();
      }
      if (root !== "") FS.mkdirTree(root, 0o755);
      fill(new Bytes(MAGIC.length));
      while (record());
    } catch (err) {
      if (err !== truncated) throw err;
    } finally {
      FS.ignorePermissions = ignored;
    }
    while (!last) {
      const frame = readFrame();
      last = frame.kind === FILES_END;
    }
    mark();
  }

  /** Receives a record, and reports whether more follow. */
  function record() {
    const letter = byte();
    if (letter === DONE || letter === ABORT) return false;
    const name = text();
    const path = isApart(name) ? settings.apart[name] : root + "/" + name;
    switch (letter) {
      case REFUSED: // it is not there
        number();
        text();
        remove(path);
        return true;
      case DIR: {
        const mode = number();
        makeDir(path).mode = mode & 0o777 | 0o40000;
        return true;
      }
      default:
        file(name, path);
        return true;
    }
  }

  /** Reports whether a file is outside of the root. A file can have the name of what all objects have. */
  /** @param {string} name */
  const isApart = (name) => hasOwn(settings.apart, name);

  /** @param {string} name @param {string} path */
  function file(name, path) {
    const mode = number();
    const modified = +text();
    const content = new Bytes(number());
    number(); // the offset is 0
    for (let done = 0; byte() === PIECE;) {
      const n = byte() + byte() * 256 + byte() * 65536 + byte() * 16777216;
      fill(content.subarray(done, done + n));
      done += n;
    }
    const outside = isApart(name);
    if (outside && !lookup(parentOf(path))) {
      FS.mkdirTree(parentOf(path), 0o755);
      apartDirs.set(parentOf(path), "");
    }
    remove(path); // code may have the old one open
    const node = FS.create(path, mode & 0o777);
    node.contents = content;
    node.usedBytes = content.length;
    node.atime = node.mtime = modified;
    node.ctime = modified;
    if (outside) apart.set(path, marked(node));
  }

  /** @param {string} path */
  const parentOf = (path) => path.slice(0, path.lastIndexOf("/")) || "/";

  /** @param {string} path */
  function lookup(path) {
    try {
      return FS.lookupPath(path, { follow: false }).node;
    } catch {
      return null;
    }
  }

  /** @param {string} path */
  function makeDir(path) {
    const node = lookup(path);
    if (node && FS.isDir(node.mode)) return node;
    if (node) FS.unlink(path);
    FS.mkdirTree(path, 0o755);
    return lookup(path);
  }

  /** Removes a name with all beneath it. */
  /** @param {string} path */
  function remove(path) {
    const node = lookup(path);
    if (!node) return;
    if (!FS.isDir(node.mode)) return FS.unlink(path);
    for (const name of keys(node.contents)) remove(path + "/" + name);
    FS.rmdir(path);
  }

  // --- Changes ---

  /** @param {any} node */
  function marked(node) {
    node.ctime = floor(node.ctime) + MARK;
    return { node, content: node.contents };
  }

  /** @param {{ node: any, content: any } | undefined} before @param {any} node of a file */
  const changed = (before, node) => !before || before.node !== node ||
    before.content !== node.contents || node.ctime - floor(node.ctime) !== MARK;

  /** Calls visit for all nodes beneath a directory, for each before those beneath it. */
  /** @param {any} dir @param {string} prefix @param {(name: string, node: any) => void} visit */
  function walk(dir, prefix, visit) {
    for (const name of keys(dir.contents).sort()) {
      const node = dir.contents[name];
      visit(prefix + name, node);
      if (FS.isDir(node.mode)) walk(node, prefix + name + "/", visit);
    }
  }

  /** Makes the nodes that there are those that the daemon knows. */
  function mark() {
    known = new Map();
    const dir = root === "" ? null : lookup(root);
    if (dir && FS.isDir(dir.mode)) {
      walk(dir, "", (name, node) => {
        known.set(name, marked(node));
      });
    }
    for (const path of apartDirs.keys()) apartDirs.set(path, names(path));
  }

  /** @param {string} path */
  const names = (path) => keys(lookup(path)?.contents ?? {}).sort().join("/");

  /** Whether a host takes a name. Emscripten makes lone surrogates of bytes that are not UTF-8. */
  /** @param {any} name */
  const isFileName = (name) => name.isWellFormed() && encode(name).length <= MAX_NAME &&
    name.split("/").every((/** @type {string} */ element) => encode(element).length <= MAX_ELEMENT);

  /** Sends the changes since the last mark. */
  function sendChanges() {
    const dir = root === "" ? { contents: {}, mode: 0o40000 } : lookup(root);
    start();
    if (!dir || !FS.isDir(dir.mode)) {
      return abort(ABORT_PATH, "the code has removed or replaced its working directory");
    }
    /** @type {Map<string, any>} */
    const present = new Map();
    /** @type {string[]} */
    const added = [];
    let total = 0;
    walk(dir, "", (name, node) => {
      present.set(name, node);
      const before = known.get(name);
      if (FS.isDir(node.mode)) {
        if (before && FS.isDir(before.node.mode)) return;
      } else if (!changed(before, node)) {
        return;
      }
      added.push(name);
      if (FS.isFile(node.mode)) total += node.usedBytes;
    });
    const { max_file, max_total, max_entries } = settings;
    if (added.length > max_entries) {
      return abort(ABORT_LIMIT, "the code has changed more than " + max_entries +
        " files and directories");
    }
    for (const name of added) {
      if (!isFileName(name)) {
        return abort(ABORT_PATH, "the name " + name.slice(0, 200) + " is too long or not UTF-8");
      }
      const node = present.get(name);
      if (FS.isFile(node.mode) && node.usedBytes > max_file) {
        return abort(ABORT_LIMIT, name + " has " + node.usedBytes + " bytes (maximum " + max_file + ")");
      }
    }
    if (total > max_total) {
      return abort(ABORT_LIMIT, "the changed files have " + total + " bytes in total (maximum " +
        max_total + ")");
    }
    for (const name of known.keys()) {
      if (present.has(name)) continue;
      const slash = name.lastIndexOf("/");
      const above = slash < 0 ? dir : present.get(name.slice(0, slash));
      if (above && FS.isDir(above.mode)) sendRefused(name, NOT_FOUND, "");
    }
    for (const name of added) sendNode(name, present.get(name));
    for (const [path, before] of apart) {
      const node = lookup(path);
      if (!node || changed(before, node)) {
        return abort(ABORT_PATH, path + " was changed, and it is outside of the working directory");
      }
    }
    for (const [path, before] of apartDirs) {
      if (names(path) !== before) {
        return abort(ABORT_PATH, "files of " + path + " were changed, and it is outside of the " +
          "working directory");
      }
    }
    finish();
    mark();
  }

  // --- A tree to the daemon ---

  let out = new Bytes(0);
  let used = 0;
  let entries = 0;
  let bytes = 0;

  function start() {
    out = new Bytes(BUFFER);
    used = entries = bytes = 0;
    put(MAGIC);
  }

  function flush(last = false) {
    if (used > 0 || last) sendFrame(last, out.subarray(0, used));
    used = 0;
  }

  /** @param {ArrayLike<number>} b at most BUFFER */
  function put(b) {
    if (used + b.length > BUFFER) flush();
    out.set(b, used);
    used += b.length;
  }

  /** @param {number} n */
  function putNumber(n) {
    const b = [];
    for (; n >= 128; n = floor(n / 128)) b.push(n % 128 + 128);
    b.push(n);
    put(b);
  }

  /** @param {string} s */
  function putText(s) {
    const b = encode(s);
    putNumber(b.length);
    put(b);
  }

  /** @param {string} name @param {number} code @param {string} message */
  function sendRefused(name, code, message) {
    entries++;
    put([REFUSED]);
    putText(name);
    putNumber(code);
    putText(message);
  }

  /** @param {string} name @param {any} node */
  function sendNode(name, node) {
    if (!FS.isDir(node.mode) && !FS.isFile(node.mode)) {
      return sendRefused(name, PATH_INVALID, FS.isLink(node.mode) ? "symlink" : "device");
    }
    entries++;
    put([FS.isDir(node.mode) ? DIR : FILE]);
    putText(name);
    putNumber(node.mode & 0o777);
    if (FS.isDir(node.mode)) return;
    putText("");
    putNumber(node.usedBytes);
    putNumber(0);
    for (let done = 0; done < node.usedBytes;) {
      const n = Math.min(node.usedBytes - done, MAX_PIECE);
      put([PIECE, n & 255, n >> 8 & 255, n >> 16 & 255, n >>> 24]);
      put(node.contents.subarray(done, done + n));
      done += n;
    }
    bytes += node.usedBytes;
    put([END]);
  }

  function finish() {
    put([DONE]);
    putNumber(entries);
    putNumber(bytes);
    flush(true);
    out = new Bytes(0); // the worker may live for hours
  }

  /** Ends the tree without an effect. The daemon then clears the files before the next request. */
  /** @param {number} code @param {string} message */
  function abort(code, message) {
    put([ABORT]);
    putNumber(code);
    putText(message.slice(0, 250)); // at most 1 KiB
    flush(true);
    out = new Bytes(0);
  }

  return {
    receive,
    /** Sends the changes of the request that ends, if files were staged for it. */
    drain() {
      if (settings) sendChanges();
      settings = null;
    },
  };
}
