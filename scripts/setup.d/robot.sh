# shellcheck shell=bash
# Step robot: Robot Framework and an HTTP client that speaks over unix sockets, in an environment of their own.
# Versions and checksums are pinned in scripts/requirements.txt.

robot_path=$tools/robot/bin/robot

setup_robot() {
	local recipe
	python_can_make_venvs || need_packages "Python with venv" python3 python3-venv
	python_can_make_venvs ||
		fail "$(python3 --version) cannot make virtual environments" "put Python 3.10 or later, with venv, first on PATH, then run this again"
	# A virtual environment names its own path in its programs: it does not survive a move of the checkout.
	recipe="$(hash_of "$root/scripts/requirements.txt") $tools"
	if ! is_stamped robot "$recipe" || ! [ -x "$tools/robot/bin/python" ]; then
		only_look "Robot Framework is not installed" robot
		install_robot
		stamp robot "$recipe"
	fi
	step_result="$(grep -o '^robotframework==[^ ]*' "$root/scripts/requirements.txt"), $(python3 --version)"
}

# python_can_make_venvs also asks for the oldest Python that the pinned packages run on.
python_can_make_venvs() {
	python3 -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 10))' 2>/dev/null
}

install_robot() {
	run_logged "making a Python environment" python3 -m venv --clear "$tools/robot" || robot_failed
	run_logged "installing Robot Framework" \
		"$tools/robot/bin/pip" install --require-hashes --no-deps --only-binary :all: -r "$root/scripts/requirements.txt" || robot_failed
}

robot_failed() {
	show_log
	fail "Robot Framework could not be installed" "check that pip reaches its index (pip download robotframework), then run scripts/setup robot again"
}
