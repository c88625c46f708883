#!/bin/sh
# The story of a fleet in about a minute: a bad firmware is caught by the first step of its rollout and taken back, the fix reaches all,
# while the controllers and the hub are killed on the way. Needs kubectl.
set -eu
SETPOINT=${SETPOINT:-target/release/setpoint}
VEHICLES=${VEHICLES:-1000}
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

phase_is() { [ "$(kubectl get rollout "$1" -o 'jsonpath={.status.phase}')" = "$2" ]; }
counts() { kubectl get rollout "$1"; }

kill_hard() { # name: as a loss of power would; what it held is free once it is gone
    eval "pid=\$$1"
    kill -9 "$pid"
    wait "$pid" 2>/dev/null || true
    echo "$1 killed"
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
PORT=${PORT:-17443}
start server up --data-dir "$FOLDER/data" --listen 127.0.0.1:0 --no-hub --controllers '*,-vehicle,-rollout,-firmware'
export KUBECONFIG="$FOLDER/data/admin.kubeconfig"
until_true 30 kubectl get --raw /readyz
fleet_controllers
until_true 30 kubectl get vehicles
hub

title "$VEHICLES vehicles with firmware 1.0.0"
start simulator fleet simulate --vehicles "$VEHICLES" --hub "https://127.0.0.1:$PORT" --speed 10 --faults bad=2.0.0,broken=0.05,crash=0.01
connected() { [ "$(kubectl get vehicles -o 'jsonpath={.items[*].status.firmwareVersion}' | wc -w)" -ge "$VEHICLES" ]; }
until_true 120 connected
"$SETPOINT" fleet status

title "a rollout of 2.0.0, which is bad: the first step finds out, and it is taken back"
firmware 1.0.0 1
firmware 2.0.0 1
rollout bad 2.0.0
until_true 180 phase_is bad RolledBack
counts bad

title "2.0.1 mends it; the controllers are killed on the way, then the hub"
firmware 2.0.1 2
rollout fix 2.0.1
sleep 3
kill_hard controllers
fleet_controllers
sleep 3
kill_hard hub
hub
until_true 600 phase_is fix Completed
counts fix
"$SETPOINT" fleet status
tail -1 "$FOLDER/simulator.log"
