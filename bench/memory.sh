#!/usr/bin/env bash
# Measures the memory of one node on this machine: idle, with objects, and at rest again after the objects were
# listed, changed and forgotten. `bench/memory.sh 1000000` makes a million ConfigMaps of 1 KiB; the
# default is 100,000.
# Resident memory is split into what is the process's own (anonymous) and pages of
# files, which are the program and state.db and which the kernel can take back.
set -euo pipefail
cd "$(dirname "$0")/.."

objects=${1:-100000}
rest=${REST:-45} # the newest versions are packed after 30 s
work=$(mktemp -d "${TMPDIR:-/tmp}/quorate-memory.XXXXXX")
cluster=$work/cluster
finish() {
	code=$?
	trap - EXIT
	[ ! -f "$cluster/cluster.json" ] || "$work/quorate" dev stop --data-dir "$cluster" >/dev/null || true
	rm -rf "$work"
	exit "$code"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

if [ -n "${QUORATE_BIN:-}" ]; then cp "$QUORATE_BIN" "$work/quorate"; else go build -trimpath -tags grpcnotrace -ldflags '-s -w' -o "$work/quorate" ./cmd/quorate; fi
go build -trimpath -tags grpcnotrace -o "$work/quorate-bench" ./cmd/quorate-bench

port=$((20000 + RANDOM % 10000))
"$work/quorate" dev --data-dir "$cluster" --nodes 1 --api-port "$port" --detach >/dev/null
pid=$(sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' "$cluster/cluster.json" | head -1)
api() { curl -s --cacert "$cluster/pki/api-ca.crt" --cert "$cluster/pki/admin.crt" --key "$cluster/pki/admin.key" "https://127.0.0.1:$port$1"; }
load() { "$work/quorate" bench load --data-dir "$cluster" --keep --namespace memory --objects "$objects" "$@" >/dev/null 2>&1; }
list=0
say() {
	awk -v what="$1" -v bytes="$list" '/^VmRSS/ {rss=$2} /^RssAnon/ {anon=$2} /^RssFile/ {file=$2} END {
		printf "%-34s %6d MiB resident = %d anonymous + %d of files", what, rss/1024, anon/1024, file/1024
		if (bytes > 0) printf "; %.2f bytes for each of %d MiB", rss*1024/bytes, bytes/1048576
		print "" }' "/proc/$pid/status"
}
idle() { # what the process uses in a minute at rest
	awk '{print $14+$15}' "/proc/$pid/stat"; awk '/^write_bytes/ {print $2}' "/proc/$pid/io"
}

sleep 15
say "idle"
before=($(idle))
sleep 60
after=($(idle))
echo "idle: $(((after[0] - before[0]) * 10000 / 60 / $(getconf CLK_TCK))) hundredths of a percent of a core, $(((after[1] - before[1]) * 60 / 1024)) KiB written an hour"
load --rows create
list=$(api "/api/v1/namespaces/memory/configmaps?limit=1000&pretty=false" | wc -c)
list=$((list * objects / (objects < 1000 ? objects : 1000)))
say "objects just made"
sleep "$rest"
say "objects, ${rest} s later"
load --rows get0,list0
say "listed"
sleep 12
say "12 s after the lists"
versions() { api /metrics | awk '/^quorate_history_versions/ {v=$2} /^quorate_history_bytes/ {b=$2} END {printf "%d %d\n", v, b}'; }
had=($(versions))
was=$(awk '/^VmRSS/ {print $2}' "/proc/$pid/status")
load --rows update --duration "${HISTORY:-30s}"
sleep "$rest"
has=($(versions))
now=$(awk '/^VmRSS/ {print $2}' "/proc/$pid/status")
say "changed, ${rest} s later"
awk -v n=$((has[0] - had[0])) -v kib=$((now - was)) -v per=$((list / objects)) 'BEGIN {
	if (n > 0) printf "%d superseded versions of %d bytes: %.2f bytes for each of theirs\n", n, per, kib*1024/(n*per) }'
