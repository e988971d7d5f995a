// Package pathmapper turns the host's names of files into the container's and back: single paths,
// and the paths inside JSON documents. It is pure: it reads no file, and asks the one question that
// it has about the file system through [Options.HostExists].
//
// # Roots
//
// A [Mapping] joins a host folder, its host root, to the container folder that shows the same
// files. [New] takes configured mappings and refuses what is wrong with them; [FromMounts] adds a
// container's real mounts, skips those that cannot be mapped, and says so. A root is absolute and
// clean, not "/", and not an ancestor of the other root of its mapping: then a path could be read
// in both ways. The two roots of one mapping may be equal.
//
// A path lies under a root if it is the root or goes on with a slash: /srv/sandboxevil is not under
// /srv/sandbox. Of several roots the longest decides. Of equal ones the earlier mapping does,
// configured ones being before mounts, so one folder may have several names on either side.
//
// A mount hides what the container's folder held before. A host path whose place in the container
// is covered by another mount, be it a volume, is therefore not mapped there: the same name would
// lead to another file. In return, mapping to the container and back always gives the cleaned path
// again, unless two mappings share their container root.
//
// # Cleaning
//
// Paths are compared, and handed on, in one cleaned form ([Clean]):
//
//   - Repeated slashes count as one, also at the beginning; "." segments and a trailing slash go.
//   - ".." segments are refused, never resolved: what they lead to depends on links, which only the file system knows.
//   - NUL is refused.
//   - Windows paths (a drive letter with a separator, or \\server) are refused. Any other backslash is a byte of a name, as on Linux.
//   - Bytes are compared as they are. Where a path lies under a root only after both are brought to Unicode's normal form C, it is
//     unmapped, and the reason says so.
//
// A path that is not mapped stays as it was, byte for byte: nothing is cleaned that is not
// rewritten. Inside documents the end of a path is kept, because to cp, rsync and ln "a", "a/" and
// "a/." are three things; only the root itself never gets a trailing slash.
//
// # Documents
//
// [Mapper.Input] maps a call's input to the container and refuses it as a whole if any path in it
// is bad, before anything has started. [Mapper.Output] maps a result to the host; the work is done
// by then, so a bad path stays raw and its error is listed. Both walk objects and arrays to a depth
// of 64 containers below the top, never touch a key, and copy all that they do not rewrite byte for
// byte: digits, order, white space. What is a path is said by the tool's schema ([CompileMarks])
// or, where that marks nothing, guessed from the whole string; each rewrite and each decline is
// listed by its JSON pointer.
//
// # Texts
//
// A [Rewriter] finds the roots of one side in a stream of bytes and replaces them by those of the
// other: in paths, bare or within quotes and brackets, with a line and a column behind them or not,
// and in file URIs. Nothing but roots is replaced; what follows one stays as it was written. Where
// a text might mean something else, it stays, too:
//
//   - A path begins at the beginning of the text, behind white space and control characters, an opening bracket or quote, one of
//     : , ; = | > and behind "\n", "\t" and "\r" of a text within a text; behind + and - at the beginning of a line (a diff), and
//     behind an option of one letter (-I/usr/include). It does not begin behind any other character: not in "a/workspace",
//     "~/workspace" or "$X/workspace".
//   - A root ends with its last segment: before a slash, white space, a quote, a closing bracket, one of < | , ; : & the end of a
//     sentence and the end of the text. /workspaceevil, /workspace.bak and /workspace-2 are not under /workspace.
//   - URLs other than file:///p, file://localhost/p and file:/p, whatever stands in them, the path of a request line ("GET /workspace/x
//     HTTP/1.1"), paths of another machine (me@host:/workspace), of Windows (C:/workspace), and the end of an element (</workspace>)
//     stay.
//   - A path with a ".." segment stays, as cleaning refuses it. In quotes it ends with them, elsewhere with white space that has no
//     backslash before it, a control character, a quote, one of < > | or where the next path begins directly, as in a list. So does a
//     path of 4096 bytes or more (PATH_MAX).
//   - Slashes written as "\/", as some encoders of JSON do, are slashes; the new root is written in the same way. In URIs percent signs
//     are decoded to compare, and the new root is encoded. Other escapes are not known.
//   - Sequences that colour or erase (ESC [ ... m, ESC [ ... K) count for nothing: what stands on both sides of one stands together.
//   - As everywhere, the longest root decides, and a part that a volume or another mount hides is not mapped. Slashes and "." segments
//     within a root may be repeated. A folder that has the same name on both sides is not counted.
package pathmapper
