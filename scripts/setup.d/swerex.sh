# shellcheck shell=bash
# Step swerex, which only the bench asks for: the server that others run in a container, for the comparison. It goes
# into a folder of its own, for the Python of the Debian test image, and is shown to the bench's container from there.
# Versions and checksums are pinned in bench/requirements.txt.

swerex_folder=$tools/swerex

setup_swerex() {
	local recipe python
	[ -x "$tools/robot/bin/pip" ] || setup_robot # its environment has a pip
	python=$(image_python) || fail "the Debian test image cannot be asked for its Python" "scripts/setup engine images, then scripts/setup swerex"
	recipe="$(hash_of "$root/bench/requirements.txt") $python"
	if ! is_stamped swerex "$recipe" || ! [ -d "$swerex_folder/swerex" ]; then
		only_look "SWE-ReX is not installed" swerex
		install_swerex "$python"
		stamp swerex "$recipe"
	fi
	step_result="$(grep -o '^swe-rex==[^ ]*' "$root/bench/requirements.txt"), for Python $python"
}

# image_python prints the version (3.11) of the Python in the Debian image.
image_python() {
	docker run --rm --network none "$(image_tag debian)" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])'
}

install_swerex() {
	rm -rf "$swerex_folder"
	run_logged "installing SWE-ReX" "$tools/robot/bin/pip" install --target "$swerex_folder" --require-hashes --no-deps \
		--only-binary :all: --implementation cp --python-version "$1" --platform "manylinux2014_$(uname -m)" \
		-r "$root/bench/requirements.txt" || {
		show_log
		fail "SWE-ReX could not be installed" "check that pip reaches its index (pip download swe-rex), then run scripts/setup swerex again" \
			"or measure without it: the bench says so and goes on"
	}
}
