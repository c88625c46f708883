#!/bin/sh
# Puts the Python client for Kubernetes into a virtual environment in target/tools/python.
set -eu
tools=$(cd "$(dirname "$0")" && pwd)
. "$tools/machine.sh"
version=36.0.3
python=$TOOLS/python/bin/python

if [ -x "$python" ] && "$python" -c "import kubernetes; assert kubernetes.__version__ == '$version'" 2>/dev/null; then
    exit 0
fi
need python3-venv python3 -c 'import ensurepip, venv'
python3 -m venv --clear "$TOOLS/python"
"$python" -m pip install --quiet "kubernetes==$version"
"$python" -c 'import kubernetes; print("kubernetes", kubernetes.__version__)'
