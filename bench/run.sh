#!/usr/bin/env bash
# Measures three nodes on this machine: starts a cluster in a temporary
# directory on free ports, runs bench/load against it, and stops it. Arguments
# go to bench/load (see `bench/run.sh --help`); its exit code is this one's.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d "${TMPDIR:-/tmp}/quorate-bench.XXXXXX")
cluster=$work/cluster
finish() {
	code=$?
	trap - EXIT
	if [ -f "$cluster/cluster.json" ]; then
		"$work/quorate" dev stop --data-dir "$cluster" >/dev/null || true
	fi
	rm -rf "$work"
	exit "$code"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

revision=$(git describe --always --dirty 2>/dev/null || echo unknown)
go build -trimpath -ldflags '-s -w' -o "$work/quorate" ./cmd/node
go build -trimpath -ldflags "-X main.revision=$revision" -o "$work/load" ./bench/load
case " $* " in *" --help "* | *" -h "*) "$work/load" --help; exit ;; esac

# free tells whether nobody listens on a port of loopback.
free() { ! (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# Node i has its API on port+i-1 and its peers' port 1000 higher.
for _ in $(seq 50); do
	port=$((20000 + RANDOM % 10000))
	for i in 0 1 2; do
		free $((port + i)) && free $((port + 1000 + i)) || { port=; break; }
	done
	[ -z "$port" ] || break
done
[ -n "$port" ] || { echo "bench: no free ports" >&2; exit 2; }

"$work/quorate" dev --data-dir "$cluster" --nodes 3 --api-port "$port" --detach >/dev/null
BENCH_COMMAND="bench/run.sh $*" "$work/load" --cluster "$cluster/cluster.json" --keep "$@"
