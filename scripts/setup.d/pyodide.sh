# shellcheck shell=bash
# Step pyodide: Deno and Pyodide, at the versions and checksums that dray itself fetches (manifest.json), and wheels
# for the tests, pinned in scripts/requirements-pyodide.txt. The files are verified again by each test that uses them.
# strace shows the tests what Deno asks of the network.

pyodide_folder=$tools/pyodide
pyodide_manifest=$root/internal/python/assets/manifest.json

setup_pyodide() {
	local recipe
	recipe="$(hash_of "$pyodide_manifest") $(hash_of "$root/scripts/requirements-pyodide.txt")"
	if ! is_stamped pyodide "$recipe" || ! [ -x "$pyodide_folder/deno" ]; then
		only_look "Deno and Pyodide are not installed" pyodide
		[ -x "$tools/robot/bin/pip" ] || setup_robot # its environment has a pip
		install_pyodide
		stamp pyodide "$recipe"
	fi
	has_command strace || need_packages strace strace
	step_result="Deno $(pinned_version "@deno/.*"), Pyodide $(pinned_version pyodide)"
}

install_pyodide() {
	local wheels=$tools/pyodide-wheels
	rm -rf "$wheels"
	run_logged "downloading wheels for Pyodide" "$tools/robot/bin/pip" download --dest "$wheels" --require-hashes --no-deps \
		--only-binary :all: --platform pyemscripten_2026_0_wasm32 --python-version 3.14 --implementation cp --abi cp314 -r "$root/scripts/requirements-pyodide.txt" || {
		show_log
		fail "the wheels could not be downloaded" "check that pip reaches its index (pip download openpyxl), then run scripts/setup pyodide again"
	}
	run_logged "fetching Deno and Pyodide (49 MB)" go -C "$root" run ./scripts/fetchpython "$pyodide_folder" "$wheels" || {
		show_log
		fail "Deno and Pyodide could not be fetched" "check that https://registry.npmjs.org answers, then run scripts/setup pyodide again: it goes on where it was"
	}
	rm -rf "$wheels"
}

# pinned_version PACKAGE prints the first version that the manifest has for a package.
pinned_version() {
	grep -A1 "\"name\": \"$1\"" "$pyodide_manifest" | sed -n 's/.*"version": "\(.*\)".*/\1/p' | head -n 1
}
