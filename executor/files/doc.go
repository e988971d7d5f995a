// Package files accesses the files beneath one root directory: in this process (Local), or through
// a helper process that runs as another user inside a container (Client and Serve, over a pair of
// pipes).
//
// os.Root and openat resolve every name beneath the root, so that a symlink that is swapped in
// cannot lead out of it. Only regular files are opened, decided by fstat. Trees are read without
// following any symlink. A helper sends them in the format of package tree, whose reader validates
// everything. Trees are written by package stage.
//
// The agent links this package.
package files
