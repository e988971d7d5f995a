// Package pathmapper maps paths of the host to paths of a container and back: single paths, paths
// in JSON documents, and paths in text. It reads no file; its only question about the file system
// is [Options.HostExists].
//
// # Roots
//
// A [Mapping] consists of a host directory, its host root, and the container directory with the
// same files. [New] accepts configured mappings and refuses invalid ones. [FromMounts] adds a
// container's mounts, and skips those that cannot be mapped with a warning. A root is absolute and
// clean, not "/", and not an ancestor of the other root of its mapping, because such paths would be
// ambiguous. The two roots of a mapping may be equal.
//
// A path is under a root if it is the root or continues with a slash: /srv/sandboxevil is not under
// /srv/sandbox. The longest root decides, and of equal ones the earlier mapping. Configured
// mappings precede mounts.
//
// A mount hides what the container's directory had before. A host path that is covered by another
// mount in the container, for example a volume, is not mapped, because its name would refer to
// another file. Mapping to the container and back therefore returns the cleaned path, unless two
// mappings share their container root.
//
// # Cleaning
//
// Paths are compared and returned in one cleaned form ([Clean]):
//
//   - Repeated slashes count as one, also at the beginning. "." segments and a trailing slash are
//     removed.
//   - ".." segments are refused, not resolved, because their target depends on symlinks.
//   - NUL is refused.
//   - Windows paths (a drive letter with a separator, or \\server) are refused. Any other backslash
//     is a byte of a name.
//   - Bytes are compared unchanged. A path that is under a root only after Unicode normalization
//     (NFC) is unmapped, with a reason that says so.
//
// An unmapped path stays unchanged, byte for byte. In documents the end of a path is preserved,
// because "a", "a/" and "a/." differ for cp, rsync and ln. Only a root itself never gets a trailing
// slash.
//
// # Documents
//
// [Mapper.Input] maps the input of a call to the container. It refuses the whole input if a path is
// invalid, before anything has started. [Mapper.Output] maps a result to the host. It leaves an
// invalid path unchanged and lists its error. Both process objects and arrays to a depth of 64
// below the top, never change a key, and copy everything else byte for byte: digits, order, white
// space. The tool's schema marks the paths ([CompileMarks]). Without marks a heuristic decides for
// whole strings. Each mapped and unmapped path is listed with its JSON pointer.
//
// # Text
//
// A [Rewriter] replaces the roots of one side by those of the other in a stream of bytes: in paths,
// bare or in quotes and brackets, with or without line and column, and in file URIs. Only roots are
// replaced. Ambiguous text stays unchanged:
//
//   - A path begins at the beginning of the text, after white space and control characters, an
//     opening bracket or quote, one of : , ; = | > and after "\n", "\t" and "\r" in a quoted text;
//     after + and - at the beginning of a line (a diff), and after an option of one letter
//     (-I/usr/include). It does not begin after any other character: not in "a/workspace",
//     "~/workspace" or "$X/workspace".
//   - A root ends with its last segment: before a slash, white space, a quote, a closing bracket,
//     one of < | , ; : & the end of a sentence and the end of the text. /workspaceevil,
//     /workspace.bak and /workspace-2 are not under /workspace.
//   - URLs other than file:///p, file://localhost/p and file:/p with all their contents, the path
//     of a request line ("GET /workspace/x HTTP/1.1"), paths of another machine
//     (me@host:/workspace), of Windows (C:/workspace), and the end of an element (</workspace>)
//     stay unchanged.
//   - A path with a ".." segment stays unchanged. A quoted path ends with its quotes, another with
//     white space that has no backslash before it, a control character, a quote, one of < > | or
//     where the next path of a list begins. A path of 4096 bytes or more (PATH_MAX) stays
//     unchanged.
//   - Slashes written as "\/", as some JSON encoders do, are slashes, and the new root is written
//     in the same way. In URIs, percent encoding is decoded to compare, and the new root is
//     encoded. Other escapes are not decoded.
//   - Sequences that color or erase (ESC [ ... m, ESC [ ... K) are ignored: the text on both sides
//     is adjacent.
//   - The longest root decides, and a part that a volume or another mount hides is not mapped.
//     Slashes and "." segments in a root may be repeated. A directory with the same path on both
//     sides is not counted.
package pathmapper
