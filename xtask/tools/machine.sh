# Sourced by the scripts beside it: where tools go, and how a missing Debian package gets here.
ROOT=$(cd "$tools/../.." && pwd)
TOOLS=${SETPOINT_TOOLS:-$ROOT/target/tools}
BIN=$TOOLS/bin
mkdir -p "$BIN"

# need PACKAGES COMMAND...: installs the Debian packages unless the command already works.
need() {
    packages=$1
    shift
    if "$@" >/dev/null 2>&1; then
        return
    fi
    as_root=
    [ "$(id -u)" = 0 ] || as_root=sudo
    # The first install fails on a machine that has never fetched its package lists.
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y --no-install-recommends $packages >/dev/null ||
        { $as_root apt-get update >/dev/null && DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y --no-install-recommends $packages >/dev/null; }
    "$@" >/dev/null 2>&1 || { echo "$(basename "$0"): installed $packages, but \`$*\` still fails" >&2; return 1; }
}
