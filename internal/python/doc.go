// Package python runs the tool python: sessions whose globals stay between calls.
//
// A session is one worker process of a [Runtime]: CPython in the container of the call, or Pyodide
// in a Deno process on the host. [Sessions] finds the session of a call, waits for a slot, starts
// the worker, and makes the call look like a process: [Run] is a [dray.Process], so stdin, output,
// capture, limits, timeouts and cancelling are those of every other tool (package executor).
//
//	internal/tool    the tool python: input, output, schema
//	internal/python  Sessions: keys, slots, queue, idle sessions, lost state, permissions
//	                 conn: frames to and from a worker, checks of everything that comes back
//	                 Runtime: starts workers: Container, Pyodide
//	                 broker, fetcher: what code asks the daemon for (import dray)
//	                 Sessions.Prepare: packages and interpreters of sessions
//	  source/        the programs of workers, in Python and JavaScript
//	  assets/        Deno and Pyodide on disk
//	  pep508/        requirements and versions of packages
//	  pythontest/    the contract suite of both runtimes
//
// # Running code
//
// The tool passes the executor an environment whose Start calls [Sessions.Start]
// (sessionEnvironment of internal/tool), so that a call of a session is captured, limited and
// cancelled as a process is. Its caller calls [Run.Release] in any case, also after a panic.
//
// The runner decides once whether the code ended by itself. [Run.Commit] follows that decision, so
// a run whose files were committed is never reported as a timeout (PY-21).
//
// # Files
//
// The runtime pyodide stages the files below the working directory of a call, if the session may
// read them, and commits what the code has changed (PY-10, PY-18). The worker keeps its copy
// between calls, and the daemon sends what differs (workerFiles). What the code changed arrives
// before the reply (changes), is checked as a whole (changeSet), and is written by one WriteTree.
// See docs/adr/0040-files-of-a-pyodide-session.md.
//
// # Brokered calls
//
// Code of the runtime pyodide asks the daemon for files, requests to hosts and calls of tools with
// the module dray (source/dray.py). The worker sends one call and waits for its result; it reads no
// stdin meanwhile, so the daemon holds stdin back. A call has the members id and interrupts and one
// of read_text_file, fetch and call_tool: id counts the calls of the request, interrupts the
// interrupts that the worker has seen, so that none is lost that crosses a call. The daemon kills a
// worker that sends a malformed call, or two at a time. An interrupt and the end of the request end
// the call; the end of the request waits until its work has ended.
//
// # Frames
//
// The daemon writes frames to the stdin of the worker process and reads frames from its stdout; its
// stderr is text for the daemon's log. A frame consists of
//
//	length      uint32, big endian: the bytes that follow, 13 to 13 + 1 MiB
//	type        byte
//	generation  uint32: of the worker, from the first frame
//	request     uint32: counts the calls of the worker from 1; 0 is no call
//	sequence    uint32: counts the frames of one direction from 0
//	body        length - 13 bytes
//
// The daemon kills a worker that sends a frame that is malformed, too long, out of order or of
// another request, or a byte while no request runs. Bodies longer than 1 MiB are sent as several
// frames, of which the last has the upper-case type. Of the frames from the worker only T, C, R
// and L may have an empty body.
//
// The daemon sends q and f frames of a request, then the others in any order. Frames of a request
// that has ended may still arrive: the worker drops them. A reply has at most 9 MiB, of which the
// value has 4 MiB and the globals together 4 MiB; a brokered call has 4 MiB, a hello 64 KiB.
// In a value "$type" is the first member of a tagged value, and of nothing else. The text of an
// error has 64 KiB at most, its traceback 512 KiB.
//
//	to the worker    q Q  the request, JSON
//	                 i I  stdin; I is its end
//	                 x    interrupt: SIGINT for the code that runs
//	                 X    the same, and the processes that the code has started are killed when
//	                      it ends (runtime container)
//	                 f F  files to stage, before the request: settings as JSON in the first frame,
//	                      then a tree (executor/files/tree) in which a file's version is when it was
//	                      modified, in ms, and a name that is not_found is one to remove
//	                 b B  the result of a brokered call, JSON
//	from the worker  H    hello, JSON; the worker is ready
//	                 o e  stdout and stderr
//	                 c C  a brokered call, JSON
//	                 t T  files that changed, as a tree; a name that is not_found was removed. A
//	                      request for which files were staged has one, before its reply
//	                 r R  the reply, JSON; the request has ended
//	                 r L  the same, of code that has used up its processor time (runtime container,
//	                      whose keeper alone sends it)
//
// User code shares the process with the worker's code in both runtimes, so it can forge replies,
// and with Pyodide frames. A forged reply has no more effect than a hostile result: the daemon
// checks every reply as if user code had written it.
package python
