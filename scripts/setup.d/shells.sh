# shellcheck shell=bash
# Step shells: zsh and fish, whose completion the tests try. Where the packages cannot be installed, these rows are
# skipped, and the summary of the tests names them.

setup_shells() {
	local name missing=()
	for name in zsh fish; do has_command "$name" || missing+=("$name"); done
	if [ ${#missing[@]} -gt 0 ] && ! can_install; then
		step_result="not installed: ${missing[*]}; their tests are skipped"
		return
	fi
	[ ${#missing[@]} = 0 ] || need_packages "zsh and fish" "${missing[@]}"
	step_result="zsh and fish"
}
