#!/usr/bin/env bash
# Measures kube-apiserver with etcd, three of each, and three nodes of Quorate, one
# after the other on this machine with the same load, and prints both side by side.
# The peer is built from its Go modules (make peers). Arguments go to `quorate bench load`, or to
# `quorate bench modes` if the first one is modes; the exit code is that of Quorate's run.
set -euo pipefail
cd "$(dirname "$0")/.."

what=load
if [ "${1:-}" = modes ]; then
	what=modes
	shift
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/quorate-peers.XXXXXX")
. bench/peer.sh
finish() {
	code=$?
	trap - EXIT
	end_peers
	rm -rf "$work"
	exit "$code"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

mkdir -p "$work/bin"
go build -trimpath -tags grpcnotrace -o "$work/bin/quorate" ./cmd/quorate
go build -trimpath -tags grpcnotrace -o "$work/bin/quorate-bench" ./cmd/quorate-bench
case " $* " in *" --help "* | *" -h "*) "$work/bin/quorate" bench $what --help; exit ;; esac

free_ports 9
peer_certificates
echo "starting kube-apiserver and etcd, three of each" >&2
nodes=''
etcd_cluster 3 $((port + 3))
for i in 0 1 2; do
	etcd_member $i 3 $((port + 3))
	pids+=($!)
	nodes+="{\"name\":\"e$i\",\"pid\":$!},"
done
etcd_ready
for i in 0 1 2; do
	apiserver $i $((port + i))
	pids+=($!)
	nodes+="{\"name\":\"a$i\",\"pid\":$!,\"api\":\"https://127.0.0.1:$((port + i))\"},"
done
for i in 0 1 2; do wait_for ready $((port + i)); done
peer_json "${nodes%,}" >"$work/peer.json"
if [ $what = modes ]; then
	dir='' last=''
	for a in "$@"; do
		[ "$last" != --output-dir ] || dir=$a/peer
		last=$a
	done
	"$work/bin/quorate" bench modes --cluster "$work/peer.json" "$@" ${dir:+--output-dir "$dir"} || [ $? -eq 1 ]
	end_peers
	"$work/bin/quorate" bench modes --nonvoters 0 "$@"
	exit
fi
"$work/bin/quorate" bench load --goals --calibrate --cluster "$work/peer.json" --keep "$@" -o json >"$work/result.json" || [ $? -eq 1 ]
end_peers
bench/run.sh --against "$work/result.json" "$@"
