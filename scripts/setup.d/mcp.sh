# shellcheck shell=bash
# Step mcp: the conformance suite, the inspector, the TypeScript SDK and two servers of MCP, and a Node.js that they run on. Versions and checksums are
# pinned in scripts/mcp/package-lock.json.

mcp_path=$tools/mcp

setup_mcp() {
	local recipe
	require_node # for npm
	recipe="$(hash_of "$root/scripts/mcp/package-lock.json") $tools"
	if ! is_stamped mcp "$recipe" || ! [ -d "$mcp_path/node_modules" ]; then
		only_look "the conformance suite of MCP is not installed" mcp
		install_mcp
		stamp mcp "$recipe"
	fi
	step_result="conformance $(mcp_version conformance), inspector $(mcp_version inspector)"
}

# mcp_version NAME prints the pinned version of a package of the protocol's maintainers.
mcp_version() {
	sed -n "s/.*\"@modelcontextprotocol\/$1\": \"\(.*\)\".*/\1/p" "$root/scripts/mcp/package.json"
}

install_mcp() {
	rm -rf "$mcp_path"
	mkdir -p "$mcp_path"
	cp "$root/scripts/mcp/package.json" "$root/scripts/mcp/package-lock.json" "$mcp_path/"
	run_logged "installing the conformance suite of MCP" npm ci --prefix "$mcp_path" --no-audit --no-fund --ignore-scripts || {
		show_log
		fail "npm could not install the conformance suite of MCP" "check that npm reaches its registry (npm ping), then run scripts/setup mcp again"
	}
}
