#!/bin/sh
# Puts the facts about the Go clients (client-go, controller-runtime) into target/tools/bin, as one program.
set -eu
tools=$(cd "$(dirname "$0")" && pwd)
. "$tools/machine.sh"
. "$tools/go.sh"
go_build "$ROOT/crates/setpoint/tests/clients/go" "$BIN/go-clients" -ldflags '-s -w'
