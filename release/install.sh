#!/bin/sh
# Installs a release of Millrace after it has checked the archive's sum.
#
#	MILLRACE_RELEASES  directory or URL of the release's files (default: this script's directory)
#	MILLRACE_VERSION   version (default: that of this script)
#	PREFIX             where to install (default: /usr/local as root, ~/.local otherwise)
#
# Nothing is started. As root it also copies the systemd units, and does not enable them.
set -eu

version=${MILLRACE_VERSION:-@VERSION@}
from=${MILLRACE_RELEASES:-$(cd "$(dirname "$0")" && pwd)}
if [ "$(id -u)" = 0 ]; then
	prefix=${PREFIX:-/usr/local}
else
	prefix=${PREFIX:-$HOME/.local}
fi

fail() {
	echo "install.sh: $*" >&2
	exit 1
}

[ "$(uname -s)" = Linux ] || fail "Millrace runs on Linux only, and this is $(uname -s)"
case $(uname -m) in
x86_64) arch=amd64 ;;
aarch64) arch=arm64 ;;
*) fail "no release for $(uname -m)" ;;
esac
command -v sha256sum >/dev/null || fail "sha256sum is not installed"

# get NAME copies a file of the release to the current directory.
get() {
	case $from in
	http://* | https://*)
		if command -v curl >/dev/null; then
			curl -fsSLO "$from/$1"
		elif command -v wget >/dev/null; then
			wget -q "$from/$1"
		else
			fail "neither curl nor wget is installed"
		fi
		;;
	*) cp "$from/$1" . ;;
	esac || fail "cannot get $from/$1"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

name=millrace-$version-linux-$arch
get SHA256SUMS
get "$name.tar.gz"
grep "  $name.tar.gz\$" SHA256SUMS >sum || fail "SHA256SUMS does not list $name.tar.gz"
sha256sum -c --status sum || fail "$name.tar.gz does not match its sum: the download is damaged, or not from the release"
tar xzf "$name.tar.gz"

mkdir -p "$prefix/bin" "$prefix/share"
for program in "$name"/bin/*; do
	# A program that runs keeps its file.
	cp "$program" "$prefix/bin/.new-millrace"
	chmod 755 "$prefix/bin/.new-millrace"
	mv -f "$prefix/bin/.new-millrace" "$prefix/bin/${program##*/}"
done
cp -R "$name"/share/. "$prefix/share/"

if [ "$(id -u)" = 0 ] && [ "$prefix" = /usr/local ] && [ -d /etc/systemd/system ]; then
	cp "$name"/lib/systemd/system/* /etc/systemd/system/
	if [ -d /etc/sysctl.d ]; then
		cp "$name"/lib/sysctl.d/90-millrace.conf /etc/sysctl.d/
	fi
	echo "The systemd units are installed. Start everything on this machine: systemctl enable --now millrace-up"
fi

echo "Millrace $version is installed in $prefix/bin. Try: millrace up"
case :$PATH: in
*":$prefix/bin:"*) ;;
*) echo "$prefix/bin is not in PATH." ;;
esac
