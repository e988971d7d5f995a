# shellcheck shell=bash
# Step mcpclients: clients and a server of MCP that the tests run, in Python environments of their own. LangChain's adapter needs
# another version of the SDK than the other two. Versions and checksums are pinned in
# scripts/requirements-mcpclients.txt and scripts/requirements-langchain.txt. The TypeScript client is in step mcp.

mcpclients_path=$tools/mcpclients

setup_mcpclients() {
	local recipe
	python_runs_mcpclients || need_packages "Python 3.11 or later with venv" python3 python3-venv
	python_runs_mcpclients ||
		fail "$(python3 --version) is too old or cannot make virtual environments" "put Python 3.11 or later, with venv, first on PATH, then run this again"
	recipe="$(hash_of "$root/scripts/requirements-mcpclients.txt") $(hash_of "$root/scripts/requirements-langchain.txt") $tools"
	if ! is_stamped mcpclients "$recipe" || ! [ -x "$mcpclients_path/langchain/bin/python" ]; then
		only_look "the Python clients of MCP are not installed" mcpclients
		install_mcpclients sdk mcpclients
		install_mcpclients langchain langchain
		stamp mcpclients "$recipe"
	fi
	step_result="$(grep -ohE '^(mcp|mcp-server-git|openai-agents|langchain-mcp-adapters)==[^ ]*' "$root/scripts/requirements-mcpclients.txt" \
		"$root/scripts/requirements-langchain.txt" | paste -sd ' ')"
}

python_runs_mcpclients() {
	python3 -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

# install_mcpclients FOLDER REQUIREMENTS
install_mcpclients() {
	{ run_logged "making a Python environment" python3 -m venv --clear "$mcpclients_path/$1" &&
		run_logged "installing the Python clients of MCP" "$mcpclients_path/$1/bin/pip" install --require-hashes --no-deps \
			--only-binary :all: -r "$root/scripts/requirements-$2.txt"; } || {
		show_log
		fail "the Python clients of MCP could not be installed" "check that pip reaches its index (pip download mcp), then run scripts/setup mcpclients again"
	}
}
