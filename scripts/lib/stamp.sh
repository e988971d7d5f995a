# shellcheck shell=bash
# Stamps remember from which recipe a thing in .tools was made, so that a second run has nothing to do.

# hash_of FILE_OR_FOLDER prints 12 hexadecimal digits over names and contents beneath it.
hash_of() {
	(
		cd "$(dirname "$1")"
		find "$(basename "$1")" -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
	) | sha256sum | cut -c1-12
}

# is_stamped NAME VALUE says whether NAME was last made from VALUE.
is_stamped() {
	[ "$(cat "$tools/stamps/$1" 2>/dev/null)" = "$2" ]
}

# stamp NAME VALUE notes that NAME is made from VALUE.
stamp() {
	mkdir -p "$tools/stamps"
	printf '%s\n' "$2" >"$tools/stamps/$1"
}
