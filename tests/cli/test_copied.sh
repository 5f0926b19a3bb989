#!/bin/sh
# A copied checkout brings a build folder that was configured for the original: own_build of script/lib.sh removes that one,
# and no other.
set -eu
cd "$(dirname "$0")/../.."
. script/lib.sh
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
top=$(pwd -P)

# made_for FOLDER BUILD: a build folder as Meson leaves it.
made_for() {
	mkdir -p "$2/meson-info"
	printf '{"directories": {"source": "%s", "build": "%s"}}' "$1" "$2" > "$2/meson-info/meson-info.json"
	: > "$2/build.ninja"
}

made_for "$top" "$dir/own"
made_for "$top-original" "$dir/copied"
made_for "${top%?}" "$dir/shorter"
mkdir "$dir/other"
for b in own copied shorter other missing; do own_build "$dir/$b" 2> "$dir/said"; done
[ -f "$dir/own/build.ninja" ] || die "the build of this checkout is gone"
[ -d "$dir/other" ] || die "a folder that is no build is gone"
[ ! -e "$dir/copied" ] && [ ! -e "$dir/shorter" ] || die "the build of another checkout is there"
echo ok
