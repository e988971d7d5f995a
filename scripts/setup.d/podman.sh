# shellcheck shell=bash
# Step podman: the second engine of the tests, which start one of their own. Podman's service is not started. Where
# the packages cannot be installed, these tests are skipped, and the summary of the tests names them.

podman_packages=(podman conmon runc catatonit containernetworking-plugins)

setup_podman() {
	if ! has_command podman && ! can_install; then
		step_result="not installed: the tests with Podman are skipped"
		return
	fi
	has_command podman || need_packages "Podman" "${podman_packages[@]}"
	step_result=$(podman --version)
}

can_install() {
	[ -z "$check_only" ] && [ "$(id -u)" = 0 ] && is_debian_like
}
