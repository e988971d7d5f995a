# shellcheck shell=bash
# Running suites: scripts/test and scripts/soak run one after the other and report all of them at the end.

work=.tools/test
suite_lines=()  # one line for each suite that has ended
suite_failed=() # the names of those that failed
suite_logs=()   # the logs of all

[ -f .tools/env ] || { echo "$0: this machine is not set up; next: scripts/setup" >&2 && exit 1; }
# shellcheck source=/dev/null
. .tools/env
mkdir -p "$work"

# run_suite NAME COMMAND... runs the command, with its output in a log in .tools/test too, and notes how it ended.
run_suite() {
	local name=$1 log=$work/${1//\//_}.log started=$SECONDS status result=passed counts
	shift
	printf '\n== %s\n' "$name"
	# Not `... || status=$?`: behind it errexit would be off in the command.
	set +e
	(set -e; "$@") 2>&1 | tee "$log"
	status=${PIPESTATUS[0]}
	set -e
	suite_logs+=("$log")
	if [ "$status" != 0 ]; then
		result=FAILED
		suite_failed+=("$name")
	fi
	counts=$(grep -E '^(DONE |[0-9]+ tests?, )' "$log" | tail -n 1) || true
	suite_lines+=("$(printf '%-28s %-7s %6d s  %s' "$name" "$result" $((SECONDS - started)) "$counts")")
}

# go_tests NAME ARGUMENT... runs go test through gotestsum, which prints the packages as they end, then every skip with
# its reason, every failure with its output, and the counts. The events are in .tools/test/NAME.json. A program that is
# built with the race detector sleeps for a second before it exits, to catch late races; the tests start thousands.
go_tests() {
	local name=$1
	shift
	GORACE="atexit_sleep_ms=10 ${GORACE:-}" go tool -modfile=tools.mod gotestsum --format pkgname --format-hide-empty-pkg --format-icons text \
		--jsonfile "$work/${name//\//_}.json" -- \
		-race -count=1 -vet=off -ldflags=-w "$@"
}

# skipped prints the Go tests of a log that were skipped, each with its reason on one line.
skipped() {
	awk '/^=== SKIP: / { name = $3 " " $4; getline; sub(/^ +/, ""); print "  " name ": " $0 }' "$1" | sort -u
}

# must_run prints those of the skipped tests that prove the sandbox of Python: there is no reason to skip them.
must_run() {
	grep -E '^  internal/python[ /]' <<<"$1" || true
}

# end_suites prints one line for each suite, the skipped tests with their reasons, and ends the script.
end_suites() {
	local skips
	printf '\n'
	printf '%s\n' "${suite_lines[@]}"
	skips=$(for log in "${suite_logs[@]}"; do skipped "$log"; done)
	if [ -n "$skips" ]; then
		printf '\nskipped tests: %d\n%s\n' "$(wc -l <<<"$skips")" "$skips"
	fi
	if [ -n "$(must_run "$skips")" ]; then
		printf '\nthese must not be skipped:\n%s\n' "$(must_run "$skips")"
		suite_failed+=("skipped tests of the sandbox")
	fi
	if [ ${#suite_failed[@]} -gt 0 ]; then
		printf '\nfailed: %s\n' "${suite_failed[*]}"
		exit 1
	fi
	printf '\nall suites passed\n'
}
