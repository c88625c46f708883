#!/bin/sh
# Puts the JavaScript client for Kubernetes into target/tools/node.
set -eu
tools=$(cd "$(dirname "$0")" && pwd)
. "$tools/machine.sh"
version=1.4.0
installed=$TOOLS/node/node_modules/@kubernetes/client-node/package.json

if grep -qs "\"version\": \"$version\"" "$installed"; then
    exit 0
fi
need 'nodejs npm' sh -c 'node --version && npm --version'
npm install --silent --no-audit --no-fund --prefix "$TOOLS/node" "@kubernetes/client-node@$version"
grep '"version"' "$installed"
