#!/bin/sh
# The story of a fleet in about a minute: a bad firmware is caught by the first step of its rollout and taken back, the fix reaches all,
# while the controllers and the hub are killed on the way. Needs kubectl. Ends with 1 if anything of this is not so.
set -eu
SETPOINT=${SETPOINT:-target/release/setpoint} # the binary
VEHICLES=${VEHICLES:-1000}
SPEED=${SPEED:-10}                            # 1 for vehicles that take half a minute
PORT=${PORT:-17443}                           # of the hub
FOLDER=$(mktemp -d)
PIDS=
trap 'kill $PIDS 2>/dev/null || true; rm -rf "$FOLDER"' EXIT INT TERM

title() { printf '\n== %s\n' "$*"; }

start() { # name, arguments
    name=$1; shift
    "$SETPOINT" "$@" >"$FOLDER/$name.log" 2>&1 &
    eval "$name=$!"
    PIDS="$PIDS $!"
}

until_true() { # seconds, command
    left=$(($1 * 2)); shift
    until "$@" >/dev/null 2>&1; do
        left=$((left - 1))
        [ $left -gt 0 ] || { echo "it took too long: $*"; tail -5 "$FOLDER"/*.log; exit 1; }
        sleep 0.5
    done
}

of() { kubectl get "$1" "$2" -o "jsonpath={$3}"; }
phase_is() { [ "$(of rollout "$1" .status.phase)" = "$2" ]; }
is_at_step() { [ "$(of rollout "$1" .status.step)" -ge "$2" ] && [ "$(of rollout "$1" .status.counts.released)" -gt 0 ]; }
counts() { kubectl get rollout "$1"; }
running() { kubectl get vehicles -o 'jsonpath={range .items[*]}{.status.firmwareVersion}{"\n"}{end}' | grep -cx "$1" || true; }

must() { # what, command
    what=$1; shift
    "$@" || { echo "not so: $what"; exit 1; }
    echo "so it is: $what"
}

kill_hard() { # name: as a loss of power would; what it held is free once it is gone
    eval "pid=\$$1"
    phase=$(of rollout fix .status.phase)
    kill -9 "$pid"
    wait "$pid" 2>/dev/null || true
    echo "$1 killed while fix was $phase, at step $(of rollout fix .status.stepText)"
    [ "$phase" != Completed ] || { echo "too late: nothing was left to survive"; exit 1; }
}

fleet_controllers() {
    start controllers controllers --controllers vehicle,rollout,firmware --no-leader-election \
        --listen 127.0.0.1:0 --kubeconfig "$KUBECONFIG"
}

hub() { start hub hub --name demo --listen "127.0.0.1:$PORT" --probes 127.0.0.1:0 --kubeconfig "$KUBECONFIG"; }

firmware() { # version, counter
    kubectl apply -f - <<YAML
apiVersion: fleet.setpoint.dev/v1alpha1
kind: Firmware
metadata: {name: "$1"}
spec:
  version: "$1"
  releaseCounter: $2
  hardwareIds: [sim-1]
  healthChecks: [{name: self, timeout: 30s}]
  artifacts: [{url: "https://firmware.example/$1", size: 50000000, sha256: "$(printf %s "$1" | sha256sum | cut -d' ' -f1)"}]
YAML
}

rollout() { # name, version
    kubectl apply -f - <<YAML
apiVersion: fleet.setpoint.dev/v1alpha1
kind: Rollout
metadata: {name: "$1"}
spec:
  selector: {}
  firmwareRef: {name: "$2"}
  steps: [{limit: 2%, soak: 2s}, {limit: 25%, soak: 2s}]
  maxConcurrent: 40%
  maxFailures: 3
  onFailure: Rollback
YAML
}

title "a control plane, the fleet's controllers and a hub, each a process"
start server up --data-dir "$FOLDER/data" --listen 127.0.0.1:0 --no-hub --controllers '*,-vehicle,-rollout,-firmware'
export KUBECONFIG="$FOLDER/data/admin.kubeconfig"
until_true 30 kubectl get --raw /readyz
fleet_controllers
until_true 30 kubectl get vehicles
hub

title "$VEHICLES vehicles with firmware 1.0.0"
start simulator fleet simulate --vehicles "$VEHICLES" --hub "https://127.0.0.1:$PORT" --speed "$SPEED" --faults bad=2.0.0,broken=0.05,crash=0.01
connected() { [ "$(kubectl get vehicles -o 'jsonpath={.items[*].status.firmwareVersion}' | wc -w)" -ge "$VEHICLES" ]; }
until_true 120 connected
"$SETPOINT" fleet status

title "a rollout of 2.0.0, which is bad: the first step finds out, and it is taken back"
firmware 1.0.0 1
firmware 2.0.0 1
rollout bad 2.0.0
until_true 180 phase_is bad RolledBack
counts bad
"$SETPOINT" events --for rollout/bad | tail -1
must "nobody runs 2.0.0" [ "$(running 2.0.0)" -eq 0 ]
must "all run 1.0.0 again" [ "$(running 1.0.0)" -eq "$VEHICLES" ]

title "2.0.1 mends it; the controllers are killed on the way, then the hub"
firmware 2.0.1 2
rollout fix 2.0.1
until_true 120 is_at_step fix 1
kill_hard controllers
fleet_controllers
until_true 180 is_at_step fix 2
kill_hard hub
hub
until_true 600 phase_is fix Completed
counts fix
"$SETPOINT" fleet status
must "all run 2.0.1" [ "$(running 2.0.1)" -eq "$VEHICLES" ]
tail -1 "$FOLDER/simulator.log"
