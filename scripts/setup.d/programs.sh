# shellcheck shell=bash
# Step programs: zsh and fish, whose completion the tests try, and ssh, by which they reach an engine. Where the
# packages cannot be installed, these tests are skipped, and the summary of the tests names them.

setup_programs() {
	local name missing=()
	for name in zsh fish; do has_command "$name" || missing+=("$name"); done
	has_command ssh || missing+=(openssh-client)
	if [ ${#missing[@]} -gt 0 ] && ! can_install; then
		step_result="not installed: ${missing[*]}; their tests are skipped"
		return
	fi
	[ ${#missing[@]} = 0 ] || need_packages "zsh, fish and ssh" "${missing[@]}"
	step_result="zsh, fish and ssh"
}
