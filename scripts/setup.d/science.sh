# shellcheck shell=bash
# Step science: pandas, openpyxl and matplotlib as wheels, in a folder that is a package index (PEP 503), for the Python of
# the Debian test image. Versions and checksums are pinned in scripts/requirements-science.txt.

science_folder=$tools/science

setup_science() {
	local recipe python
	[ -x "$tools/robot/bin/pip" ] || setup_robot # its environment has a pip
	recipe="$(hash_of "$root/scripts/requirements-science.txt") $(image_tag debian)"
	if ! is_stamped science "$recipe" || ! [ -d "$science_folder/pandas" ]; then
		only_look "the wheels are not downloaded" science
		python=$(image_python) || fail "the Debian test image cannot be asked for its Python" "scripts/setup engine images, then scripts/setup science"
		download_science "$python"
		stamp science "$recipe"
	fi
	step_result="$(grep -cE '^[a-z]' "$root/scripts/requirements-science.txt") wheels, $(du -sm "$science_folder" | cut -f1) MB"
}

download_science() {
	local wheel name
	rm -rf "$science_folder"
	mkdir -p "$science_folder"
	run_logged "downloading wheels" "$tools/robot/bin/pip" download --dest "$science_folder" --require-hashes --no-deps \
		--only-binary :all: --implementation cp --python-version "$1" --platform "manylinux_2_28_$(uname -m)" \
		--platform "manylinux_2_27_$(uname -m)" --platform "manylinux_2_26_$(uname -m)" \
		--platform "manylinux_2_24_$(uname -m)" --platform "manylinux_2_17_$(uname -m)" \
		--platform "manylinux2014_$(uname -m)" -r "$root/scripts/requirements-science.txt" || {
		show_log
		fail "the wheels could not be downloaded" "check that pip reaches its index (pip download pandas), then run scripts/setup science again"
	}
	for wheel in "$science_folder"/*.whl; do
		name=$(basename "$wheel")
		name=$(printf %s "${name%%-*}" | tr '[:upper:]_.' '[:lower:]--')
		mkdir -p "$science_folder/$name"
		mv "$wheel" "$science_folder/$name/"
		printf '<a href="%s">%s</a>\n' "$(basename "$wheel")" "$(basename "$wheel")" >>"$science_folder/$name/index.html"
	done
}
