// Package files gives access to the files beneath one folder, in this process or, by the same
// operations over a pair of pipes, in a helper process that runs as another user inside a
// container.
//
// Every name is resolved beneath the root by the kernel (os.Root), one component after the other,
// so that a link that is swapped in meanwhile leads nowhere else. Only regular files are opened,
// decided on the open descriptor. Whole folders are collected by a walk that opens one element of a
// name after the other and follows no link at all; a helper streams them in the form of package
// tree, whose reader believes nothing. A tree is placed by package stage.
//
// Standard library only, because the agent links it.
package files
