// Package pathmapper turns the host's names of files into the container's and back: single paths, and the paths inside JSON
// documents. It is pure: it reads no file, and asks the one question that it has about the file system through [Options.Exists].
//
// # Roots
//
// A [Mapping] joins a host folder, its host root, to the container folder that shows the same files. [New] takes configured
// mappings and refuses what is wrong with them; [FromMounts] adds a container's real mounts, skips those that cannot be mapped, and
// says so. A root is absolute and clean, not "/", and not an ancestor of the other root of its mapping: then a path could be read in
// both ways. The two roots of one mapping may be equal.
//
// A path lies under a root if it is the root or goes on with a slash: /srv/sandboxevil is not under /srv/sandbox. Of several roots
// the longest decides. Of equal ones the earlier mapping does, configured ones being before mounts, so one folder may have several
// names on either side.
//
// A mount hides what the container's folder held before. A host path whose place in the container is covered by another mount, be it
// a volume, is therefore not mapped there: the same name would lead to another file. In return, mapping to the container and back
// always gives the cleaned path again, unless two mappings share their container root.
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
// A path that is not mapped stays as it was, byte for byte: nothing is cleaned that is not rewritten. Inside documents the end of a
// path is kept, because to cp, rsync and ln "a", "a/" and "a/." are three things; only the root itself never gets a trailing slash.
//
// # Documents
//
// [Mapper.Input] maps a call's input to the container and refuses it as a whole if any path in it is bad, before anything has
// started. [Mapper.Output] maps a result to the host; the work is done by then, so a bad path stays raw and its error is listed.
// Both walk objects and arrays to a depth of 64 containers below the top, never touch a key, and copy all that they do not rewrite
// byte for byte: digits, order, white space. What is a path is said by the tool's schema ([CompileMarks]) or, where that marks
// nothing, guessed from the whole string; each rewrite and each decline is listed by its JSON pointer.
package pathmapper
