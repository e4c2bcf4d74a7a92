#!/usr/bin/env bash
# Measures three nodes of this commit on this machine beside the goals of bench/README.md:
# builds, and runs `quorate bench load` with a cluster of its own, which is gone afterwards.
# Arguments go to it (see `bench/run.sh --help`); its exit code is this one's.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d "${TMPDIR:-/tmp}/quorate-bench.XXXXXX")
finish() {
	code=$?
	trap - EXIT
	rm -rf "$work"
	exit "$code"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

revision=$(git describe --always --dirty 2>/dev/null || echo unknown)
go build -trimpath -tags grpcnotrace -ldflags "-s -w -X main.commit=$revision" -o "$work/quorate" ./cmd/quorate
go build -trimpath -tags grpcnotrace -ldflags "-s -w -X main.commit=$revision" -o "$work/quorate-bench" ./cmd/quorate-bench
BENCH_COMMAND="bench/run.sh $*" TMPDIR=$work "$work/quorate" bench load --goals --calibrate --keep "$@"
