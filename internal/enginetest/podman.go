package enginetest

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// configurePodman writes Podman's two configuration files. Containers may open as many files as
// this process: only a process with CAP_SYS_RESOURCE may raise that to Podman's default. runc also
// runs where cgroup v1 and v2 are mounted side by side, which crun refuses. Containers get no
// network: one would change the machine's firewall.
func (e *Engine) configurePodman() error {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return err
	}
	containers := fmt.Sprintf(`[containers]
default_ulimits = ["nofile=%d:%[1]d", "nproc=4096:4096"]
netns = "none"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
`, files.Max)
	storage := fmt.Sprintf("[storage]\ndriver = \"overlay\"\ngraphroot = %q\nrunroot = %q\n",
		e.path("root"), e.path("run"))
	return errors.Join(os.WriteFile(e.path("containers.conf"), []byte(containers), 0o600),
		os.WriteFile(e.path("storage.conf"), []byte(storage), 0o600))
}

// podmanCommand returns the command line of Podman's service, and its environment.
func (e *Engine) podmanCommand() (args, env []string) {
	return []string{"podman", "system", "service", "--time=0", e.Host()}, append(os.Environ(),
		"CONTAINERS_CONF="+e.path("containers.conf"), "CONTAINERS_STORAGE_CONF="+e.path("storage.conf"))
}
