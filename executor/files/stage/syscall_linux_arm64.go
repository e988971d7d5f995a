package stage

// Numbers of system calls that package syscall does not know.
const (
	sysRenameat2    = 276
	sysSyncfs       = 267
	sysFremovexattr = 16
)
