#!/usr/bin/env bash
# Measures what servers cost that nobody asks for anything: CPU time, resident memory, and what the kernel
# counts of their writes and syncs, of one node and of three, of three members of etcd, and of three of
# kube-apiserver on these, one after the other on this machine.
#
#	bench/idle.sh                # two minutes each, after half a minute of rest
#	bench/idle.sh --for 600      # seconds
#
# Needs strace and jq; etcd and kube-apiserver are built by make peers, and left out where they are not.
set -euo pipefail
cd "$(dirname "$0")/.."

for=120 rest=30
while [ $# -gt 0 ]; do
	case $1 in
	--for) for=$2; shift 2 ;;
	--rest) rest=$2; shift 2 ;;
	*) sed -n '2,9s/^# \{0,1\}//p' "$0"; [ "$1" = --help ]; exit ;;
	esac
done
work=$(mktemp -d "${TMPDIR:-/tmp}/quorate-idle.XXXXXX")
. bench/peer.sh
finish() {
	code=$?
	trap - EXIT
	stop
	rm -rf "$work"
	exit "$code"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

mkdir -p "$work/bin"
go build -trimpath -tags grpcnotrace -ldflags '-s -w' -o "$work/bin/quorate" ./cmd/quorate

# counters prints hundredths of a second of CPU time and bytes written, of all processes named.
counters() {
	local cpu=0 bytes=0 a b
	for p in "$@"; do
		a=$(awk '{print $14+$15}' "/proc/$p/stat")
		b=$(awk '/^write_bytes/ {print $2}' "/proc/$p/io")
		cpu=$((cpu + a * 100 / $(getconf CLK_TCK))) bytes=$((bytes + b))
	done
	echo "$cpu $bytes $(wc -l <"$work/trace")"
}
resident() { for p in "$@"; do awk '/^VmRSS/ {print $2}' "/proc/$p/status"; done | awk '{s+=$1} END {printf "%d", s/1024}'; }

# measure prints a row of processes that are alike.
measure() { # name, whether the syncs are theirs, processes
	local name=$1 syncs=$2 n after before
	shift 2
	n=$#
	sleep "$rest"
	before=($(counters "$@"))
	sleep "$for"
	after=($(counters "$@"))
	awk -v name="$name" -v n="$n" -v s="$for" -v cpu=$((after[0] - before[0])) -v b=$((after[1] - before[1])) -v y=$((after[2] - before[2])) -v own="$syncs" -v rss="$(resident "$@")" 'BEGIN {
		printf "%-32s each: %5.2f %% of a core, %4d MiB resident; all: %8d KiB written and %s syncs an hour\n", name, cpu/s/n, rss/n, b/1024*3600/s, own ? sprintf("%6d", y*3600/s) : "no" }'
}

quorate() { # nodes
	free_ports 3
	traced "$work/bin/quorate" dev --data-dir "$work/cluster" --nodes "$1" --api-port "$port" --detach >/dev/null 2>"$work/dev.log" &
	pids+=($!)
	wait_for "$work/bin/quorate" dev status --data-dir "$work/cluster"
	# shellcheck disable=SC2046
	measure "quorate, $1 node(s)" 1 $(jq '.nodes[].pid' "$work/cluster/cluster.json")
	stop
}

peers() {
	[ -x bin/etcd ] || { echo "bench: no bin/etcd: make peers builds it" >&2; return; }
	free_ports 9
	etcd_cluster 3 $((port + 3))
	(
		export work members clients port
		export -f etcd_member
		# shellcheck disable=SC2016
		traced bash -c 'for i in 0 1 2; do etcd_member $i 3 $((port + 3)); echo $! >>"$work/pids"; done; wait'
	) &
	pids+=($!)
	etcd_ready
	local members_pids apis=()
	mapfile -t members_pids <"$work/pids"
	measure "etcd, 3 members" 1 "${members_pids[@]}"
	if [ -x bin/kube-apiserver ]; then
		peer_certificates
		for i in 0 1 2; do
			apiserver $i $((port + i))
			pids+=($!) apis+=($!)
		done
		for i in 0 1 2; do wait_for ready $((port + i)); done
		# All six at the same time, in two rows.
		measure "etcd below 3 kube-apiservers" 1 "${members_pids[@]}" &
		local row=$!
		measure "kube-apiserver, 3 of them" '' "${apis[@]}"
		wait "$row"
	fi
	stop
}

quorate 1
quorate 3
peers
