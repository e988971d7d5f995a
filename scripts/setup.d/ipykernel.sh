# shellcheck shell=bash
# Step ipykernel, which only the bench asks for: the kernel that others run Python in, for the comparison with Python
# sessions. Versions are pinned in bench/requirements-ipykernel.txt.

ipykernel_folder=$tools/ipykernel

setup_ipykernel() {
	local recipe
	recipe="$(hash_of "$root/bench/requirements-ipykernel.txt") $tools"
	if ! is_stamped ipykernel "$recipe" || ! [ -x "$ipykernel_folder/bin/python" ]; then
		only_look "ipykernel is not installed" ipykernel
		install_ipykernel
		stamp ipykernel "$recipe"
	fi
	step_result=$(grep -o '^ipykernel==[^ ]*' "$root/bench/requirements-ipykernel.txt")
}

install_ipykernel() {
	rm -rf "$ipykernel_folder"
	{ python3 -m venv "$ipykernel_folder" &&
		run_logged "installing ipykernel" "$ipykernel_folder/bin/pip" install --no-deps --only-binary :all: \
			-r "$root/bench/requirements-ipykernel.txt"; } || {
		show_log
		fail "ipykernel could not be installed" "check that pip reaches its index (pip download ipykernel), then run scripts/setup ipykernel again" \
			"or measure without it: the bench says so and goes on"
	}
}
