# shellcheck shell=bash
# Steps go and compiler: what `make build` needs.

wanted_go=1.26

# setup_go checks for Go. It is never installed from here: which Go a machine has is its owner's choice.
setup_go() {
	local next="install Go $wanted_go or later (https://go.dev/dl), put its bin folder on PATH, then run this again"
	local found
	has_command go || fail "Go $wanted_go is missing" "$next"
	# Asked inside the module, go names the toolchain that it would build with, and fails where it has none.
	found=$(cd "$root" && go env GOVERSION 2>&1) || fail "Go $wanted_go is missing: $found" "$next"
	version_at_least "${found#go}" "$wanted_go" || fail "$found is too old" "$next"
	step_result="$found"
}

# setup_compiler looks for a C compiler (SQLite is C) and git (workspaces and the version are read with it).
setup_compiler() {
	local compiler
	compiler=$(cd "$root" && go env CC 2>/dev/null || echo "${CC:-gcc}")
	can_compile "$compiler" || [ -n "${CC:-}" ] || need_packages "a C compiler" gcc libc6-dev
	can_compile "$compiler" ||
		fail "$compiler cannot build a C program" "unset CC, or set it to a compiler that can, then run this again"
	has_command git || need_packages "git" git
	step_result="$compiler $("${compiler%% *}" -dumpversion 2>/dev/null), $(git --version)"
}

# can_compile COMPILER says whether it makes a program of a C file with a standard header: a compiler without
# the C library's headers is the usual half of an installation.
can_compile() {
	has_command "${1%% *}" || return 1
	# CC may hold arguments, as the go command allows.
	# shellcheck disable=SC2086
	echo '#include <stdlib.h>
int main(void) { return EXIT_SUCCESS; }' | $1 -x c -o /dev/null - 2>/dev/null
}

# version_at_least FOUND WANTED compares MAJOR.MINOR; what follows (1.27rc1, 1.26.8) does not count.
version_at_least() {
	local major=${1%%.*} rest=${1#*.}
	local minor=${rest%%[!0-9]*}
	[ "$major" -gt "${2%%.*}" ] || { [ "$major" -eq "${2%%.*}" ] && [ "${minor:-0}" -ge "${2#*.}" ]; }
}
