# shellcheck shell=bash
# Step uv: the package manager that operation prepare runs in a container. The tests show it to their containers from
# .tools. Version and checksums are pinned in scripts/requirements-uv.txt.

uv_path=$tools/uv/bin/uv

setup_uv() {
	local recipe
	[ -x "$tools/robot/bin/pip" ] || setup_robot # its environment has a pip
	recipe="$(hash_of "$root/scripts/requirements-uv.txt") $tools"
	if ! is_stamped uv "$recipe" || ! [ -x "$uv_path" ]; then
		only_look "uv is not installed" uv
		install_uv
		stamp uv "$recipe"
	fi
	step_result="$(grep -o '^uv==[^ ]*' "$root/scripts/requirements-uv.txt")"
}

install_uv() {
	rm -rf "$tools/uv"
	run_logged "installing uv" "$tools/robot/bin/pip" install --target "$tools/uv" --require-hashes --no-deps --only-binary :all: \
		-r "$root/scripts/requirements-uv.txt" || {
		show_log
		fail "uv could not be installed" "check that pip reaches its index (pip download uv), then run scripts/setup uv again"
	}
}
