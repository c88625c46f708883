#!/bin/sh
# A whole cluster on this machine: three members of etcd, two API servers on it, two managers of controllers, two schedulers and
# some simulated nodes. Everything is in a folder of its own, and ends with Ctrl-C.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
setpoint=${SETPOINT:-${CARGO_TARGET_DIR:-$root/target}/release/setpoint}
etcd=${SETPOINT_ETCD:-$root/target/tools/bin/etcd}
data=${SETPOINT_CLUSTER:-$root/target/cluster}
first=${SETPOINT_CLUSTER_PORT:-26380} # the first of ten ports
for program in "$setpoint" "$etcd"; do
    [ -x "$program" ] || { echo "$program is not there: \`make cluster\` makes it" >&2; exit 1; }
done
mkdir -p "$data/log"

running=
stop() {
    trap - INT TERM EXIT
    # In the order in which they need each other: servers and etcd last.
    for process in $running; do
        kill "$process" 2>/dev/null || true
    done
    for process in $running; do
        wait "$process" 2>/dev/null || true
    done
    echo "stopped; what was written is in $data"
}
trap stop INT TERM EXIT

# run NAME COMMAND...: in the background, with its output in a file.
run() {
    name=$1
    shift
    "$@" >"$data/log/$name" 2>&1 &
    running="$! $running"
}

# until_ready WHAT COMMAND...: asks again and again, for half a minute.
until_ready() {
    what=$1
    shift
    tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ "$tries" -lt 150 ] || { echo "$what did not get ready; see $data/log" >&2; exit 1; }
        sleep 0.2
    done
}

peers=
members=
for n in 0 1 2; do
    peers=$peers,m$n=http://127.0.0.1:$((first + 3 + n))
    members=$members,127.0.0.1:$((first + n))
done
for n in 0 1 2; do
    run etcd-$n "$etcd" --name=m$n --data-dir="$data/etcd-$n" \
        --listen-client-urls=http://127.0.0.1:$((first + n)) --advertise-client-urls=http://127.0.0.1:$((first + n)) \
        --listen-peer-urls=http://127.0.0.1:$((first + 3 + n)) \
        --initial-advertise-peer-urls=http://127.0.0.1:$((first + 3 + n)) \
        --initial-cluster="${peers#,}" --initial-cluster-state=new --log-level=warn
done
for n in 0 1; do
    run server-$n "$setpoint" server --data-dir "$data/server-$n" --listen 127.0.0.1:$((first + 6 + n)) \
        --store "etcd://${members#,}"
    until_ready "server $n" grep -q '^ready' "$data/log/server-$n"
done
for n in 0 1; do
    run controllers-$n "$setpoint" controllers --kubeconfig "$data/server-$n/admin.kubeconfig" \
        --cluster-signing-cert-file "$data/server-$n/pki/ca.pem" --listen 127.0.0.1:$((first + 8 + n))
    run scheduler-$n "$setpoint" scheduler --kubeconfig "$data/server-$n/admin.kubeconfig" --listen 127.0.0.1:0
done
run nodes "$setpoint" node --simulated 3 --kubeconfig "$data/server-0/admin.kubeconfig" --listen 127.0.0.1:0
for n in 0 1; do
    until_ready "controllers $n" grep -q '^running' "$data/log/controllers-$n"
done

cat <<READY
ready https://127.0.0.1:$((first + 6)) https://127.0.0.1:$((first + 7))

  export KUBECONFIG=$data/server-0/admin.kubeconfig
  kubectl get nodes

three members of etcd, two servers, two managers of controllers and two schedulers; Ctrl-C stops them
READY
wait
