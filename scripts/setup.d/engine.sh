# shellcheck shell=bash
# Step engine: a Docker-compatible engine that answers. One that already runs is used as it is, wherever the
# docker CLI finds it. Only where none is configured and none answers, Debian's own is installed and started.

engine_packages=(docker.io containerd runc iptables)
engine_patience=60 # seconds

setup_engine() {
	has_command docker || need_packages "an engine" "${engine_packages[@]}"
	has_command docker || need_packages "the docker command" docker-cli # a package of its own since Debian 13
	if ! engine_answers; then
		engine_may_be_ours
		has_command dockerd || need_packages "an engine" "${engine_packages[@]}"
		engine_answers || start_engine # installing the package starts it where there is an init system
	fi
	ensure_compose
	step_result="Docker $engine_version at $(engine_address)"
}

# engine_answers sets engine_version, or engine_error and fails.
engine_answers() {
	local said
	if said=$(timeout 10 docker version --format '{{.Server.Version}}' 2>&1); then
		engine_version=${said##*$'\n'}
	else
		engine_error=$said
		return 1
	fi
}

# engine_address prints where the docker CLI looks for the engine.
engine_address() {
	docker context inspect --format '{{.Endpoints.docker.Host}}' 2>/dev/null || echo "${DOCKER_HOST:-unknown}"
}

# engine_may_be_ours ends the set-up unless an engine of our own is what the user would expect.
engine_may_be_ours() {
	local address
	address=$(engine_address)
	case $engine_error in
	*"permission denied"*)
		fail "$(id -un) may not use the engine at $address" \
			"as root: usermod --append --groups docker $(id -un), then log in again; or run the set-up as root"
		;;
	esac
	[ "$address" = unix:///var/run/docker.sock ] ||
		fail "the engine at $address does not answer" \
			"start it; or unset DOCKER_HOST and DOCKER_CONTEXT and choose the default context: docker context use default"
	only_look "no engine answers at $address" engine
	[ "$(uname -s)" = Linux ] || fail "no engine answers" "start Docker Desktop or another engine, then run this again"
	[ "$(id -u)" = 0 ] ||
		fail "no engine answers at $address" \
			"as root, where the engine is installed: systemctl start docker" "as root, where it is not: scripts/setup engine"
}

# start_engine starts dockerd as the init system would, or by itself where there is none.
start_engine() {
	if [ -d /run/systemd/system ]; then
		run_logged "starting the engine" systemctl start docker || true
	elif ! is_running dockerd; then
		remove_stale_pid /var/run/docker.pid dockerd
		remove_stale_pid /var/run/docker/containerd/containerd.pid containerd
		launch_dockerd
	fi
	wait_for_engine
}

# is_running says whether a process of that name runs.
is_running() {
	grep -qsx "$1" /proc/[0-9]*/comm
}

# launch_dockerd starts dockerd in a session of its own, so that it outlives this shell and its terminal. The
# set-up's lock is not passed on: the engine would hold it for ever.
launch_dockerd() {
	log=$log_dir/dockerd.log
	mkdir -p "$log_dir"
	: >"$log"
	say "starting the engine ..."
	setsid dockerd >>"$log" 2>&1 </dev/null 9>&- &
	disown
}

# remove_stale_pid FILE NAME removes a pid file whose process is not NAME: after a crash the number may have
# been given to somebody else, and dockerd would refuse to start or wait for a stranger.
remove_stale_pid() {
	local pid
	pid=$(cat "$1" 2>/dev/null) || return 0
	[ "$(cat "/proc/$pid/comm" 2>/dev/null)" = "$2" ] || rm -f "$1"
}

wait_for_engine() {
	local started waited=0
	started=$(now_ms)
	until engine_answers; do
		waited=$((waited + 1))
		# Two seconds are enough to exec; after them a missing process is one that gave up.
		if [ $waited -gt 4 ] && ! is_running dockerd; then engine_gave_up "dockerd ended at once"; fi
		if [ $waited -gt $((engine_patience * 2)) ]; then engine_gave_up "no answer within $engine_patience s"; fi
		if [ $((waited % 10)) = 0 ]; then say "waiting for the engine ... $(seconds_since "$started")"; fi
		sleep 0.5
	done
}

engine_gave_up() {
	printf '\n%s\n' "$engine_error" >&2
	if [ -s "$log" ]; then show_log; fi
	fail "the engine did not start: $1" \
		"repair the cause above, then run scripts/setup engine again" \
		"or use an engine elsewhere: export DOCKER_HOST=unix:///path/to/docker.sock"
}

# ensure_compose looks for Compose as plugin or program: the devcontainer CLI takes either.
ensure_compose() {
	docker compose version >/dev/null 2>&1 || has_command docker-compose || need_packages "Compose" docker-compose
}
