#!/usr/bin/env bash
# Runs the load tools of other projects (kube-burner, kperf, ClusterLoader2) on three nodes of Quorate
# and on three kube-apiservers with three members of etcd, each tool with new servers, and prints what
# each load cost both. Run it with 'make judge-load TOOLS=DIR', which builds the servers into bin/.
#
#   run.sh [--tools DIR] [--runs N] [--busy N] [--only quorate|peer] [--tool NAME] [--row TEXT] [--output FILE] [--keep DIR]
#
#   --tools    directory with the tools (default ~/.cache/quorate/load-tools); without them it says how to get them
#   --runs     how many times, in turns (default 1)
#   --busy     how many loops keep processors busy beside the load (default 0)
#   --only     one side alone
#   --tool     one tool alone: kube-burner, kperf or clusterloader2
#   --row      loads whose names contain this
#   --output   add the results to this file, as lines of JSON
#   --keep     directory for what the tools and the servers said
#
# kube-controller-manager deletes what is in namespaces and what owners leave, beside the peer; its CPU is not
# counted. Exit codes: 0 Quorate stood all loads; 1 with it operations failed, an answer was 5xx, or
# there was an election; 2 the loads could not be run.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
tools='' runs=1 busy=0 only='' tool='' row='' output='' keep=''
usage() { sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p}' "$here/run.sh"; exit "${1:-0}"; }
die() { echo "load: $*" >&2; exit 2; }
while [ $# -gt 0 ]; do
	case $1 in
	-h | --help) usage ;;
	--tools | --runs | --busy | --only | --tool | --row | --output | --keep) [ -n "${2:-}" ] || die "$1 needs a value" ;;
	*) usage 2 >&2 ;;
	esac
	case $1 in
	--tools | --output | --keep) declare "${1#--}=$(realpath -m "$2")" ;;
	*) declare "${1#--}=$2" ;;
	esac
	shift 2
done
cd "$here/../../.."
case $only in '' | quorate | peer) ;; *) die "--only $only: it is quorate or peer" ;; esac
case $tool in '' | kube-burner | kperf | clusterloader2) ;; *) die "--tool $tool: it is kube-burner, kperf or clusterloader2" ;; esac
[[ $runs =~ ^[1-9][0-9]?$ && $busy =~ ^[0-9][0-9]?$ ]] || die "--runs and --busy take numbers below 100"

# The tools are in no release of theirs as modules: their repositories have them, and their published loads.
[ -n "$tools" ] || tools=${XDG_CACHE_HOME:-$HOME/.cache}/quorate/load-tools
missing=''
need() { # repository, directory below it, package, program, a file that is read
	local dir=$tools/${1#*/}
	[ -e "$dir/$5" ] || missing+="  git clone https://github.com/$1 $dir && git -C $dir checkout $6"$'\n'
	[ -x "$tools/bin/$4" ] || missing+="  (cd $(realpath -m "$dir/$2") && go build -o $tools/bin/$4 $3)"$'\n'
}
need kube-burner/kube-burner . ./cmd/kube-burner kube-burner examples/workloads/api-intensive bfb5794
need Azure/kperf . ./cmd/kperf kperf contrib/internal/manifests/loadprofile 16e7cf8
need kubernetes/perf-tests clusterloader2 ./cmd clusterloader2 clusterloader2/testing/load/modules 4b34154
[ -z "$missing" ] || die "tools are missing. Get them, and give their directory (here $tools) as TOOLS=DIR or --tools DIR:
$missing"
tools=$(cd "$tools" && pwd)
programs=quorate
[ "$only" = quorate ] || programs+=' etcd kube-apiserver kube-controller-manager'
for p in $programs; do [ -x "bin/$p" ] || die "there is no bin/$p: run 'make judge-load'"; done

work=$(mktemp -d "${TMPDIR:-/tmp}/quorate-load.XXXXXX")
loops=()
. bench/peer.sh
service_range=10.96.0.0/12
end_quorate() { [ ! -f "$work/quorate/cluster.json" ] || { bin/quorate dev stop --data-dir "$work/quorate" && rm -rf "$work/quorate"; } >/dev/null 2>&1 || true; }
finish() {
	code=$?
	trap - EXIT
	[ ${#loops[@]} -eq 0 ] || kill "${loops[@]}" 2>/dev/null || true
	end_quorate
	end_peers
	rm -rf "$work"
	exit "$code"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

go build -trimpath -tags grpcnotrace -o "$work/load" ./test/judges/load
for _ in $(seq "$busy"); do
	while :; do :; done &
	loops+=($!)
done

results=$work/results
load() { # arguments; it is waited for, not run, so that a signal ends it too
	rm -rf "$work/tools" && mkdir "$work/tools"
	"$work/load" -tools "$tools" -only "$row" -work "$work/tools" "$@" >>"$results" &
	pids+=($!)
	wait $! || die "the load could not be run"
	[ -z "$keep" ] || { mkdir -p "$keep" && for f in "$work"/tools/*/log "$work"/*.log "$work"/quorate/*.log; do [ ! -f "$f" ] || cp "$f" "$keep/$side.$run.$t.$(basename "$(dirname "$f")").$(basename "$f")"; done; }
}

quorate() { # tool, run
	free_ports 3
	# As the peer: see apiserver in bench/peer.sh.
	bin/quorate dev --data-dir "$work/quorate" --api-port "$port" --detach --set "disable-admission-plugins=$without_admission" --set "service-cluster-ip-range=$service_range" >"$work/dev.log" 2>&1 ||
		die "the nodes do not start: $(tail -n 3 "$work/dev.log")"
	load -side quorate -cluster "$work/quorate/cluster.json" -tool "$1" -run "$2"
	end_quorate
}

peer() { # tool, run
	local nodes='' i
	free_ports 9
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
	cat >"$work/kcm.kubeconfig" <<-END
		apiVersion: v1
		kind: Config
		current-context: c
		clusters: [{name: c, cluster: {server: "https://127.0.0.1:$port", certificate-authority: $pki/ca.crt}}]
		contexts: [{name: c, context: {cluster: c, user: u}}]
		users: [{name: u, user: {client-certificate: $pki/kcm.crt, client-key: $pki/kcm.key}}]
	END
	bin/kube-controller-manager --kubeconfig="$work/kcm.kubeconfig" --leader-elect=false --secure-port=0 --use-service-account-credentials --root-ca-file="$pki/ca.crt" \
		--controllers=namespace-controller,garbage-collector-controller --kube-api-qps=2000 --kube-api-burst=4000 >"$work/kcm.log" 2>&1 &
	pids+=($!)
	load -side kube-apiserver -cluster "$work/peer.json" -etcd "$clients" -tool "$1" -run "$2"
	end_peers
	rm -rf "$work"/e? "$work"/certs?
}

[ "$only" = quorate ] || { peer_certificates && certificate kcm /CN=system:kube-controller-manager extendedKeyUsage=clientAuth; }
for run in $(seq "$runs"); do
	for t in ${tool:-kube-burner kperf clusterloader2}; do
		for side in quorate peer; do
			[ -n "$only" ] && [ "$only" != $side ] || $side "$t" "$run"
		done
	done
done
[ -z "$output" ] || cat "$results" >>"$output"
code=0
"$work/load" -table "$results" || code=$?
exit $code
