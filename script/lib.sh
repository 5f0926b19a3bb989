# lib.sh - shared by the scripts; sourced, from the root of the tree.

say() { printf '== %s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# as_root COMMAND...: as it is for root, through sudo otherwise.
as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	elif command -v sudo >/dev/null 2>&1; then
		sudo "$@"
	else
		die "installing packages needs root: run as root, or install sudo, or install by hand: $*"
	fi
}

# have WHAT: is the third column of script/packages there?
have() {
	case $1 in
	pkg:*) command -v pkg-config >/dev/null 2>&1 && pkg-config --exists "${1#pkg:}" ;;
	/*)    [ -e "$1" ] ;;
	*)     command -v "$1" >/dev/null 2>&1 ;;
	esac
}

# install_groups GROUP...: what is missing of these groups, in one apt-get call.
install_groups() {
	missing=
	while read -r group package what why; do
		case $group in ''|'#'*) continue ;; esac
		for g in "$@"; do
			[ "$g" = "$group" ] || continue
			have "$what" || missing="$missing $package"
		done
	done < script/packages
	[ -n "$missing" ] || return 0
	command -v apt-get >/dev/null 2>&1 ||
		die "these are missing and this is not a Debian system:$missing (script/packages says why each is needed)"
	say "installing:$missing"
	as_root apt-get update -qq >&2 || die "apt-get update failed"
	# shellcheck disable=SC2086 # a list of package names
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >&2 ||
		die "apt-get install failed:$missing"
}

# own_build DIR: removes a build folder that was configured for another checkout, as that of a copied tree is: Meson
# and Ninja would go on with the other's files.
own_build() {
	[ ! -f "$1/meson-info/meson-info.json" ] || grep -qF "\"source\": \"$(pwd -P)\"" "$1/meson-info/meson-info.json" || {
		say "$1 was configured for another checkout; it is made again"
		rm -rf "$1"
	}
}

# build_release: configures once and builds build/weft.
build_release() {
	own_build build
	[ -f build/build.ninja ] || meson setup build --buildtype=release >&2
	ninja -C build weft >&2
	[ -x build/weft ] || die "the build left no build/weft"
}

# setup_aarch64 OPTION...: configures build-aarch64 for the cross compiler, with tests to run under qemu.
setup_aarch64() {
	own_build build-aarch64
	script/sysroot build-aarch64/sysroot arm64
	root=$PWD/build-aarch64/sysroot
	libs=$root/usr/lib/aarch64-linux-gnu
	compiler="'aarch64-linux-gnu-gcc'"
	! command -v ccache > /dev/null 2>&1 || compiler="'ccache', $compiler"
	cat > build-aarch64/cross.ini <<-INI
		[binaries]
		c = [$compiler]
		ar = 'aarch64-linux-gnu-ar'
		strip = 'aarch64-linux-gnu-strip'
		pkgconfig = 'pkg-config'
		exe_wrapper = ['qemu-aarch64', '-L', '$root']
		[properties]
		sys_root = '$root'
		pkg_config_libdir = '$libs/pkgconfig:$root/usr/share/pkgconfig'
		[built-in options]
		c_args = ['--sysroot=$root']
		c_link_args = ['--sysroot=$root', '-Wl,-rpath-link,$libs']
		[host_machine]
		system = 'linux'
		cpu_family = 'aarch64'
		cpu = 'aarch64'
		endian = 'little'
	INI
	[ -f build-aarch64/build.ninja ] ||
		meson setup build-aarch64 --buildtype=release --cross-file build-aarch64/cross.ini "$@" >&2
}
