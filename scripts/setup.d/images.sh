# shellcheck shell=bash
# Step images: the two images that the demo and the tests run containers of, made on this machine without any
# registry. Each is tagged with the hash of its recipe, so it is built again exactly when the recipe changes,
# and as latest. Older ones are left alone: they may be in use.

image_names="busybox debian"

setup_images() {
	local name
	engine_answers || fail "no engine answers" "scripts/setup engine images"
	for name in $image_names; do
		ensure_image "$name"
		step_result+="${step_result:+, }$(image_tag "$name")"
	done
}

image_hash() {
	hash_of "$root/scripts/images/$1"
}

image_tag() {
	echo "dray-test/$1:$(image_hash "$1")"
}

# ensure_image NAME builds the image unless it is there, and points its latest tag at it.
ensure_image() {
	local tag latest=dray-test/$1:latest
	tag=$(image_tag "$1")
	if ! [ "$(image_id "$tag")" ]; then
		only_look "the image $tag is not built" images
		build_image "$1" "$tag"
	fi
	[ "$(image_id "$tag")" = "$(image_id "$latest")" ] || docker tag "$tag" "$latest"
}

# image_id REFERENCE prints the image's id, or nothing.
image_id() {
	docker image inspect --format '{{.Id}}' "$1" 2>/dev/null || true
}

# build_image NAME TAG makes the root file system as an archive and imports it. The engine gets it only whole.
build_image() {
	local archive=$tools/image-$1.tar started
	started=$(now_ms)
	"need_for_$1"
	run_logged "building the $1 image" "$root/scripts/images/$1/build" "$archive" || image_failed "$1"
	import_image "$1" "$2" "$archive" || image_failed "$1"
	rm -f "$archive"
	say "built $2 in $(seconds_since "$started")"
}

import_image() {
	local change options=()
	while read -r change; do
		options+=(--change "$change")
	done <"$root/scripts/images/$1/changes"
	run_logged "importing the $1 image" docker import "${options[@]}" "$3" "$2"
}

image_failed() {
	rm -f "$tools/image-$1.tar"
	show_log
	fail "the $1 image could not be built" "repair the cause above, then run scripts/setup images again"
}

# need_for_busybox wants a busybox that runs without any library.
need_for_busybox() {
	local binary
	binary=$(command -v busybox || true)
	if [ -z "$binary" ] || ldd "$binary" >/dev/null 2>&1; then
		need_packages "a static busybox" busybox-static
	fi
}

# need_for_debian wants mmdebstrap, and root: without it the owners of files need user namespaces and id ranges
# that many machines do not give.
need_for_debian() {
	is_debian_like ||
		fail "the debian image can only be built on Debian or Ubuntu" \
			"on such a machine: scripts/setup images && docker save $(image_tag debian) >debian.tar; here: docker load <debian.tar"
	[ "$(id -u)" = 0 ] || fail "the debian image is not built yet, and building it takes root" "as root: scripts/setup images"
	has_command mmdebstrap || need_packages "mmdebstrap" mmdebstrap
	# Without lists apt cannot say whose its archives are. (Not grep -q: it would end apt-get by SIGPIPE.)
	apt-get indextargets --format "\$(ORIGIN)" | grep -cxE 'Debian|Ubuntu' >/dev/null || update_lists_once
}
