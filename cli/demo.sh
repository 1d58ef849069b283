#!/bin/sh
# demo.sh [RAFFLE [OPTIONS]] - what `make demo` runs: draws from the real rows in data/, in words.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
raffle=${1:-$root/build/cli/raffle}
[ $# -eq 0 ] || shift
exec "$raffle" demo "$root/data" "$@"
