#!/usr/bin/env bash
# Counts, in the kernel, the syncs of a write: of one node and of three, of three members
# of etcd, and of kube-apiserver on these, one after the other on this machine, with one client and with 32. With a delay it makes
# each sync take so much longer, for all of them alike, and compares latencies.
#
#	bench/syncs.sh                        # the syncs
#	bench/syncs.sh --delay 2000 --rounds 3    # each sync takes 2,000 µs (on a file system in memory)
#
# Needs strace and jq; etcd, and kube-apiserver if it is to be compared, are built by make peers.
set -euo pipefail
cd "$(dirname "$0")/.."

delay=0 rounds=1 writes=500
while [ $# -gt 0 ]; do
	case $1 in
	--delay) delay=$2; shift 2 ;;
	--rounds) rounds=$2; shift 2 ;;
	--writes) writes=$2; shift 2 ;;
	*) sed -n '2,10s/^# \{0,1\}//p' "$0"; [ "$1" = --help ]; exit ;;
	esac
done
base=${TMPDIR:-/tmp}
[ "$delay" -eq 0 ] || [ ! -w /dev/shm ] || base=/dev/shm # the delay is all that a sync takes
work=$(mktemp -d "$base/quorate-syncs.XXXXXX")
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
go build -trimpath -tags grpcnotrace -o "$work/bin/quorate-bench" ./cmd/quorate-bench

# api asks a server of the Kubernetes API, as its administrator.
api() { curl -sf --max-time 10 --cacert "$pki_ca" --cert "$pki_cert.crt" --key "$pki_cert.key" "$@"; }

# batches prints how many writes of its log a server counts. kube-apiserver has none.
batches() { { if [ "$kind" = etcd ]; then curl -sf "$leader/metrics"; else api "$leader/metrics"; fi; } | awk '/^etcd_disk_wal_fsync_duration_seconds_count / {n=$2} END {printf "%d\n", n}'; }

# creates makes so many objects, each a new one, at the leader. What a namespace needs is there before.
creates() { # workers, objects
	local name=syncs-$RANDOM$RANDOM
	local flags=(--rows create --workers "$1" --connections 1 --objects "$2" --keep --namespace "$name" -o json)
	if [ "$kind" = etcd ]; then
		flags+=(--etcd "$leader")
	else
		api -X POST -H 'Content-Type: application/json' -d "{\"metadata\":{\"name\":\"$name\"}}" "$leader/api/v1/namespaces" >/dev/null
		flags+=(--kubeconfig "$work/kubeconfig")
		sleep 1 # for what controllers make in it
	fi
	before=$(batches) began=$(date +%s%N)
	"$work/bin/quorate" bench load "${flags[@]}" >"$work/result.json" 2>"$work/load.log" || { tail -n 5 "$work/load.log" >&2; exit 2; }
	ended=$(date +%s%N) after=$(batches)
}

# measure makes writes, and prints a row. The syncs are counted by the file's place.
measure() { # name, workers
	local name=$1 workers=$2
	creates "$workers" 100 # they do not count
	creates "$workers" $((writes * (workers > 1 ? 4 : 1)))
	sleep 0.3 # the trace is written behind its calls
	python3 - "$work/result.json" "$work/trace" "$name" "$workers" "$work/rows" "$began" "$ended" $((after - before)) <<'PY'
import collections, json, re, sys
r = json.load(open(sys.argv[1]))["rows"][0]
began, ended, b = (int(x) for x in sys.argv[6:])
by, nodes = collections.Counter(), collections.defaultdict(collections.Counter)
for line in open(sys.argv[2], errors="replace"):
    m = re.match(r"\d+ +([\d.]+) (\w+)\(\d+<([^>]*)>", line)
    if not m or not began <= float(m[1]) * 1e9 <= ended:
        continue
    path = m[3]
    node = re.search(r"/(n\d+|e\d)/", path)
    what = next((w for w in ("raft-log", "raft.db", "state.db", "member/wal", "member/snap") if w in path), "other")
    by[what] += 1
    nodes[node[1] if node else "?"][what] += 1
w, l = r["operations"], r["latency"]
log = {n: c["raft-log"] + c["raft.db"] + c["member/wal"] for n, c in nodes.items()}
most = max(log.values(), default=0)
row = {"name": sys.argv[3], "workers": int(sys.argv[4]), "writes": w, "perSecond": r["operationsPerSecond"], "batches": b, "logOfOne": most,
       "all": sum(by.values()), "by": dict(by), "p50": l["p50Ms"], "p99": l["p99Ms"], "mean": l["meanMs"]}
open(sys.argv[5], "a").write(json.dumps(row) + "\n")
print(f"{row['name']:34} {row['workers']:3} clients  {row['perSecond']:7.0f}/s  p50 {row['p50']:6.2f}  p99 {row['p99']:6.2f} ms"
      f"  log's syncs on one node: {most / b if b else float('nan'):.2f} a batch, {most / w:.2f} a write"
      f"  all syncs: {row['all'] / w:.2f} a write ({', '.join(f'{k} {v / w:.2f}' for k, v in sorted(by.items()))})", flush=True)
PY
}

# kubernetes says how an API is asked, server which server leads.
kubernetes() { kind=kubernetes pki_ca=$1 pki_cert=$2; } # CA, certificate without its ending
server() {
	leader=$1
	cat >"$work/kubeconfig" <<-END
		apiVersion: v1
		kind: Config
		current-context: c
		clusters: [{name: c, cluster: {server: "$1", certificate-authority: $pki_ca}}]
		contexts: [{name: c, context: {cluster: c, user: u}}]
		users: [{name: u, user: {client-certificate: $pki_cert.crt, client-key: $pki_cert.key}}]
	END
}

quorate() { # nodes
	free_ports 3
	traced "$work/bin/quorate" dev --data-dir "$work/cluster" --nodes "$1" --api-port "$port" --detach >/dev/null 2>"$work/dev.log" &
	pids+=($!)
	wait_for "$work/bin/quorate" dev status --data-dir "$work/cluster"
	local u pki=$work/cluster/pki
	kubernetes "$pki/api-ca.crt" "$pki/admin"
	for u in $(jq -r '.nodes[].api' "$work/cluster/cluster.json"); do
		! api -o /dev/null -D - "$u/version" | grep -qi '^x-quorate-role: leader' || server "$u"
	done
	for w in 1 32; do measure "quorate, $1 node(s)" $w; done
	stop
}

etcd() { # members
	free_ports 7
	etcd_cluster "$1" $((port + 1))
	(
		export work members clients port
		export -f etcd_member
		# shellcheck disable=SC2016
		traced bash -c 'for i in $(seq 0 $(($1 - 1))); do etcd_member $i $1 $((port + 1)); echo $! >>"$work/pids"; done; wait' etcd "$1"
	) &
	pids+=($!)
	etcd_ready
	local u
	kind=etcd
	for u in ${clients//,/ }; do
		! curl -sf -d '{}' "$u/v3/maintenance/status" | jq -e '.leader == .header.member_id' >/dev/null || leader=$u
	done
	for w in 1 32; do measure "etcd, $1 member(s)" $w; done
	if [ "$1" = 3 ] && [ -x bin/kube-apiserver ]; then
		[ -d "$work/pki" ] || peer_certificates
		apiserver 0 "$port"
		pids+=($!)
		wait_for ready "$port"
		kubernetes "$pki/ca.crt" "$pki/admin"
		server "https://127.0.0.1:$port"
		for w in 1 32; do measure "kube-apiserver on these" $w; done
	fi
	stop
}

for _ in $(seq "$rounds"); do
	if [ "$delay" -eq 0 ]; then
		quorate 1
	fi
	etcd 3
	quorate 3
done
[ "$rounds" -eq 1 ] || python3 - "$work/rows" <<'PY'
import collections, json, statistics, sys
rows = collections.defaultdict(list)
for line in open(sys.argv[1]):
    r = json.loads(line)
    rows[r["name"], r["workers"]].append(r)
print("\nmedians of the rounds, and the range of p50")
for (name, workers), l in rows.items():
    p = [r["p50"] for r in l]
    print(f"{name:34} {workers:3} clients  {statistics.median(r['perSecond'] for r in l):7.0f}/s  p50 {statistics.median(p):6.2f} ({min(p):.2f} to {max(p):.2f})"
          f"  p99 {statistics.median(r['p99'] for r in l):6.2f}  mean {statistics.median(r['mean'] for r in l):6.2f} ms")
PY
