package stage

// Numbers of system calls that package syscall does not know.
const (
	sysRenameat2    = 316
	sysSyncfs       = 306
	sysFremovexattr = 199
)
