#!/bin/sh
# install_kubectl.sh TARGET RELEASE: kubectl 1.27 or later at TARGET. A link to the one in PATH if that is new enough,
# else the program from the package of another Debian release, whose mirror is the one this machine uses.
set -eu
target=$1 release=$2

new_enough() { # PROGRAM
    minor=$("$1" version --client -o json 2>/dev/null | sed -n 's/.*"minor": *"\([0-9]*\).*/\1/p')
    [ "${minor:-0}" -ge 27 ]
}

own=$(command -v kubectl || true)
if [ -n "$own" ] && new_enough "$own"; then
    ln -sfn "$own" "$target"
    exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. /etc/os-release
: >"$work/status"
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/parts"
for list in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
    case $list in
    *.list | *.sources) [ -f "$list" ] && sed "s/\b$VERSION_CODENAME\b/$release/g" "$list" >"$work/parts/${list##*/}" ;;
    esac
done
apt="-o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts=$work/parts -o Dir::State::lists=$work/lists
     -o Dir::State::status=$work/status -o Dir::Cache=$work/cache -o APT::Sandbox::User=root"
# shellcheck disable=SC2086
apt-get $apt update -qq >/dev/null 2>&1 || true # security and update suites of the other release may not exist
# shellcheck disable=SC2086
(cd "$work" && apt-get $apt download -qq kubectl >/dev/null)
dpkg-deb -x "$work"/kubectl_*.deb "$work/root"
new_enough "$work/root/usr/bin/kubectl"
install -m 755 "$work/root/usr/bin/kubectl" "$target"
