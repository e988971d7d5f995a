// Package enginetest starts container engines for tests that restart, stop, kill or configure one:
// the machine's own engine is shared by all who work there, and is never touched.
//
// Each engine is a dockerd with a folder of its own (configuration, data, sockets, log) and a
// bridge of its own. It is removed at the end of the test, containers, mounts and bridge included,
// whatever became of the test. Where even that was cut off, by a KILL of the test binary, the next
// engine that starts removes what is left: the folder is locked by whoever tests with it, and a
// lock nobody holds is left over.
//
// It takes root, dockerd and ip. A machine without them is a gap: the test is skipped, and the
// summary of the tests names the gap.
//
// Only tests import it.
package enginetest
