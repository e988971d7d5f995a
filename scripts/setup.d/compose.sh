# shellcheck shell=bash
# Step compose: Compose 2 as a plugin of the docker CLI, beside the 1.x of the system: the tests run with both. It is
# built from the Go module proxy, at the version in scripts/compose/go.mod, and found with DOCKER_CONFIG.

compose_path=$tools/compose/cli-plugins/docker-compose

setup_compose() {
	local recipe version
	has_command go || fail "Go is missing" "scripts/setup go compose"
	recipe=$(hash_of "$root/scripts/compose")
	version=$(awk '$1 == "github.com/docker/compose/v2" { print substr($2, 2) }' "$root/scripts/compose/go.mod")
	if ! is_stamped compose "$recipe" || ! [ -x "$compose_path" ]; then
		only_look "Compose $version is not built" compose
		build_compose "$version"
		stamp compose "$recipe"
	fi
	step_result="Compose $version"
}

build_compose() {
	mkdir -p "$(dirname "$compose_path")"
	run_logged "building Compose $1" env -C "$root/scripts/compose" go build -trimpath -o "$compose_path" \
		-ldflags "-s -w -X github.com/docker/compose/v2/internal.Version=$1" github.com/docker/compose/v2/cmd || {
		show_log
		fail "Compose $1 could not be built" \
			"check that go reaches its module proxy (go env GOPROXY), then run scripts/setup compose again"
	}
}
