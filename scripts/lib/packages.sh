# shellcheck shell=bash
# Debian packages, installed only where that is certain to be right: by root, on a system with apt.

# is_debian_like says whether this system has Debian's package tools.
is_debian_like() {
	command -v apt-get >/dev/null && command -v dpkg-query >/dev/null
}

# has_command NAME says whether NAME can be run.
has_command() {
	command -v "$1" >/dev/null
}

# need_packages WHAT PACKAGE... installs the packages that give WHAT, or says who has to do it and how.
need_packages() {
	local what=$1
	shift
	is_debian_like ||
		fail "$what is missing" "install it with your system's package manager (Debian's names: $*), then run scripts/setup $step again"
	if [ -n "$check_only" ] || [ "$(id -u)" != 0 ]; then
		fail "$what is missing" "as root: apt-get update && apt-get install --no-install-recommends $*"
	fi
	update_lists_once
	run_logged "installing $what" \
		env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "$@" || {
		show_log
		fail "apt-get could not install $what" "repair the cause above, then run scripts/setup $step again"
	}
	hash -r
}

lists_updated=

# update_lists_once refreshes apt's lists, at most once per run.
update_lists_once() {
	[ -z "$lists_updated" ] || return 0
	run_logged "refreshing the package lists" apt-get update || {
		show_log
		fail "apt-get update failed" "check /etc/apt/sources.list.d and the network, then run scripts/setup $step again"
	}
	lists_updated=1
}
