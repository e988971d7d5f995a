// Package stage writes a dray.Tree beneath a root directory, all of it or nothing.
//
// WriteTree writes the tree to a staging directory first, .dray-stage-RANDOM directly beneath the
// root. Then it writes a journal there, which lists every file and directory of the tree. When the
// journal is on the disk, the write is decided. The commit is a series of renames from the staging
// directory to the same names beneath the root. A directory that is new there is renamed with all
// its content. A file that replaces another is exchanged with it in one step, so that the old one
// is available until the end, and an error rolls all renames back.
//
//	receive   contents, sizes, digests         to the staging directory, without a lock
//	plan      what exists, what to rename      with the root locked
//	          syncfs; the journal; its fsync   from here on the tree will be written
//	commit    renames between open directories
//	          syncfs; remove the journal       then the root is unlocked
//	sweep     remove the staging directory, with the replaced files
//
// With expectations, each name must have what the caller expects, and files can be removed: they
// are renamed into the staging directory. What a rename has replaced or removed is compared once
// more there, where no other process changes it, and another content rolls all renames back.
// Directories are removed last, once they are empty.
//
// A process that dies leaves a staging directory without a lock. [Recover] completes those with a
// complete journal and removes the others. Every commit starts with it.
//
// Directories are opened from the root with openat2, without symlinks, mount points and "..", and
// used by fd. A symlink at the end of a name is replaced, not followed, and so is any other file
// that is no directory.
//
// The agent links this package.
package stage
