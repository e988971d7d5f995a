# shellcheck shell=bash
# How the scripts speak: one line per step with its time, a sign of life in long ones, and a failure that
# ends with what to do next. Nothing here knows what the steps do.

step=checkout               # the step that speaks
step_result=                # what the step found or made; said when it ends
log_dir=$tools/log
log=$log_dir/setup.log

# now_ms prints milliseconds of an arbitrary clock; whole seconds where bash is older than 5.
now_ms() {
	local now=${EPOCHREALTIME:-$SECONDS.000000}
	now=${now/[.,]/}
	echo $((now / 1000))
}

# seconds_since START_MS prints the time since then in seconds with one digit.
seconds_since() {
	local elapsed=$(($(now_ms) - $1))
	printf '%d.%d s' $((elapsed / 1000)) $((elapsed % 1000 / 100))
}

# say TEXT prints a line of progress of the current step.
say() {
	printf '  %-9s %s\n' "$step" "$1"
}

# run_step NAME runs the function setup_NAME and prints its closing line.
run_step() {
	local started
	started=$(now_ms)
	step=$1
	step_result=
	log=$log_dir/$step.log
	"setup_$step"
	printf '  %-9s %-62s %8s\n' "$step" "$step_result" "$(seconds_since "$started")"
}

# fail PROBLEM NEXT... ends the set-up; each NEXT is one line of advice.
fail() {
	local problem=$1
	shift
	{
		printf '\nsetup: %s: %s\n' "$step" "$problem"
		printf '  next: %s\n' "$@"
	} >&2
	exit 1
}

# show_log prints the end of the step's log, for a failure that its words explain best.
show_log() {
	{
		printf '\nthe last lines of %s:\n' "$log"
		tail -n 20 "$log" | sed 's/^/  | /'
	} >&2
}

# run_logged WHAT COMMAND... runs the command with its output in the step's log and says every five
# seconds that it is still at it. It returns the command's status.
run_logged() {
	local what=$1 status=0 beat
	shift
	mkdir -p "$log_dir"
	printf '\n# %s\n' "$*" >>"$log"
	say "$what ..."
	heartbeat "$what" &
	beat=$!
	# The set-up's lock (9) is not passed on: a daemon that the command leaves behind would keep it.
	"$@" >>"$log" 2>&1 </dev/null 9>&- || status=$?
	kill "$beat" 2>/dev/null || true
	wait "$beat" 2>/dev/null || true
	return "$status"
}

# heartbeat WHAT speaks until it is killed. It waits inside the shell: a sleep would outlive the kill and
# hold our caller's pipe open. It ends by itself if the script dies without killing it.
heartbeat() {
	local started never
	started=$(now_ms)
	exec {never}<> <(:)
	while kill -0 $$ 2>/dev/null; do
		read -rt 5 -u "$never" || true
		say "$1 ... $(seconds_since "$started")"
	done
}

# only_look ends the set-up if it was asked to change nothing: WHAT is missing, STEP would make it.
only_look() {
	[ -z "$check_only" ] || fail "$1" "scripts/setup $2"
}
