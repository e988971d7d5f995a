# shellcheck shell=bash
# Step schemathesis: the fuzzer for OpenAPI descriptions, in an environment of its own. Versions are pinned in
# scripts/requirements-openapi.txt.

schemathesis_path=$tools/schemathesis/bin/schemathesis

setup_schemathesis() {
	local recipe
	python_can_make_venvs || need_packages "Python with venv" python3 python3-venv
	python_can_make_venvs ||
		fail "$(python3 --version) cannot make virtual environments" "put Python 3.10 or later, with venv, first on PATH, then run this again"
	recipe="$(hash_of "$root/scripts/requirements-openapi.txt") $tools"
	if ! is_stamped schemathesis "$recipe" || ! [ -x "$schemathesis_path" ]; then
		only_look "schemathesis is not installed" schemathesis
		install_schemathesis
		stamp schemathesis "$recipe"
	fi
	step_result="$(grep -o '^schemathesis==[^ ]*' "$root/scripts/requirements-openapi.txt")"
}

install_schemathesis() {
	run_logged "making a Python environment" python3 -m venv --clear "$tools/schemathesis" || schemathesis_failed
	run_logged "installing schemathesis" "$tools/schemathesis/bin/pip" install --no-deps --only-binary :all: \
		-r "$root/scripts/requirements-openapi.txt" || schemathesis_failed
}

schemathesis_failed() {
	show_log
	fail "schemathesis could not be installed" "check that pip reaches its index (pip download schemathesis), then run scripts/setup schemathesis again"
}
