# shellcheck shell=bash
# Step cli: the reference devcontainer CLI, which dray runs for `up` and is compared with in the tests. Its
# version and checksum are pinned in scripts/package-lock.json.

wanted_node=20.0
cli_path=$tools/node_modules/.bin/devcontainer

setup_cli() {
	local recipe
	require_node
	recipe=$(hash_of "$root/scripts/package-lock.json")
	if ! is_stamped cli "$recipe" || ! [ -x "$cli_path" ]; then
		only_look "the devcontainer CLI is not installed" cli
		install_cli
		stamp cli "$recipe"
	fi
	step_result="@devcontainers/cli $(cli_version), node $(node --version)"
}

# require_node checks for Node.js and npm. They are installed only where Debian's own are new enough.
require_node() {
	if ! has_command node && debian_node_is_enough; then
		need_packages "Node.js" nodejs npm
	fi
	has_command node || fail "Node.js is missing" "install Node.js $wanted_node or later with npm (https://nodejs.org), then run this again"
	version_at_least "$(node --version | tr -d v)" "$wanted_node" ||
		fail "Node.js $(node --version) is too old" "install Node.js $wanted_node or later (https://nodejs.org), then run this again"
	has_command npm || need_packages "npm" npm
}

# debian_node_is_enough says whether apt offers a Node.js that the CLI runs on.
debian_node_is_enough() {
	is_debian_like || return 1
	if [ "$(id -u)" = 0 ] && [ -z "$check_only" ]; then update_lists_once; fi
	local offered
	offered=$(apt-cache policy nodejs | awk '/Candidate:/ { print $2 }')
	version_at_least "${offered%%[!0-9.]*}" "$wanted_node" 2>/dev/null
}

install_cli() {
	cp "$root/scripts/package.json" "$root/scripts/package-lock.json" "$tools/"
	run_logged "installing the devcontainer CLI" npm ci --prefix "$tools" --no-audit --no-fund || {
		show_log
		fail "npm could not install the devcontainer CLI" "check that npm reaches its registry (npm ping), then run scripts/setup cli again"
	}
}

cli_version() {
	sed -n 's/.*"@devcontainers\/cli": "\(.*\)".*/\1/p' "$root/scripts/package.json"
}
