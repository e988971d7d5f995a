# shellcheck shell=bash
# Step bwrap: bubblewrap, in which dray runs Deno. The tests of that sandbox are not skipped, so it has to work.

setup_bwrap() {
	has_command bwrap || need_packages "bubblewrap" bubblewrap
	bwrap --unshare-user --unshare-pid --unshare-net --unshare-cgroup --ro-bind / / true 2>/dev/null ||
		fail "bubblewrap cannot create namespaces here" \
			"permit unprivileged user namespaces (sysctl user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns), then run this again"
	step_result=$(bwrap --version)
}
