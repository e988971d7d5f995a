// Package stage writes a dray.Tree beneath one root folder so that it comes as a whole or not at
// all.
//
// Everything is written to a folder of its own first, .dray-stage-RANDOM directly beneath the root,
// laid out as it shall be. What has to happen then is put into a journal there; the journal on the
// disk is the point from which the tree comes, whatever happens. The commit is a series of renames:
// a folder that the destination does not have moves as one, with all that it holds; a file that
// replaces another changes places with it in one step, so that the old one is there until the last,
// and everything can be taken back.
//
//	receive   contents, sizes, digests           into the stage folder, any time it takes, no lock
//	plan      what is there now, what moves      under the root's lock
//	          syncfs; the journal; its fsync     from here on the tree comes
//	commit    renames between held descriptors
//	          syncfs; the journal goes           the lock is let go
//	sweep     the stage folder, with what was replaced in it
//
// Who dies leaves a stage folder that nobody holds a lock on. [Recover] finishes those that have a
// whole journal and removes the others, and every commit begins with it.
//
// No name is followed: each folder is opened from the root with openat2 and without links, mount
// points or "..", and used by its descriptor. A link at the end of a name is replaced, not written
// through, and so is whatever else lies there and is no folder.
//
// Standard library only, because the agent links it.
package stage
