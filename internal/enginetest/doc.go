// Package enginetest starts container engines for tests that restart, stop, kill or configure one.
// The machine's own engine is shared, and these tests do not change it.
//
// Each engine is a dockerd or Podman, with its own directory (configuration, data, sockets, log). A
// dockerd has its own bridge. The end of the test removes the engine with its containers, mounts
// and bridge. If the test binary was killed before that, the next Start removes what remains: the
// directory of a running test is locked, and that of a killed one is not.
//
// Start needs root, and dockerd with ip, or podman with conmon and runc. Without them the test is
// skipped, and the summary of the tests names what was not tested.
//
// SSHHost makes an ssh host of this machine.
//
// Only tests import this package.
package enginetest
