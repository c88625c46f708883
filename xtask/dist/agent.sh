#!/bin/sh
# Builds the agent of vehicles, stripped and static, so that it runs on whatever a vehicle has; prints where it is.
set -eu
cd "$(dirname "$0")/../.."
folder=${CARGO_TARGET_DIR:-target}
host=$(rustc -vV | sed -n 's/^host: //p')
# Named as a target of its own: build scripts and macros are loaded by the compiler, and can't be static.
RUSTFLAGS="${RUSTFLAGS:-} -C target-feature=+crt-static" \
    cargo build --quiet --profile packaged --package setpoint-edge-agent --target "$host" --target-dir "$folder" >&2
echo "$folder/$host/packaged/setpoint-edge-agent"
