#!/usr/bin/env bash
# Has Kubernetes' own controller manager and scheduler, three of each with leader election, run Pods on
# Nodes that KWOK plays: first on three kube-apiservers with three members of etcd, then on three nodes of
# Quorate, and there on until 10,000 Pods run, while all nodes are restarted in turn. Each program has
# a server of its own. Prints how long Pods took to run, what the servers used for each, and what
# the programs read again after the restarts: exit code 1 if they did, or if a Pod was lost.
#
#	bench/pods.sh                                       # 500 nodes; some six minutes
#	bench/pods.sh --nodes 50 --pods 100 --all 1000      # a tenth
#	bench/pods.sh --only quorate                        # without the peer (--only peer: without Quorate)
#	bench/pods.sh --only quorate --kill                 # nodes are killed, not told to end
#
# Needs bin/kube-controller-manager and bin/kube-scheduler (make bin/NAME), KWOK (make kwok), and the peer (make
# peers) unless it is left out. --output FILE keeps the results as JSON, --within bounds each of the two runs.
set -euo pipefail
cd "$(dirname "$0")/.."

nodes=500 pods=1000 all=10000 only='' output='' within=5m kill=''
while [ $# -gt 0 ]; do
	case $1 in
	--nodes) nodes=$2; shift 2 ;;
	--pods) pods=$2; shift 2 ;;
	--all) all=$2; shift 2 ;;
	--only) only=$2; shift 2 ;;
	--output) output=$2; shift 2 ;;
	--kill) kill=1; shift ;;
	--within) within=$2; shift 2 ;;
	*) sed -n '2,16s/^#[ 	]\{0,1\}//p' "$0"; [ "$1" = --help ]; exit ;;
	esac
done
work=$(mktemp -d "${TMPDIR:-/tmp}/quorate-pods.XXXXXX")
. bench/peer.sh
without_admission= # Pods get accounts and tokens, as they do where they run
finish() {
	code=$?
	trap - EXIT
	if [ -f "$work/cluster/cluster.json" ]; then "$work/bin/quorate" dev stop --data-dir "$work/cluster" >/dev/null || true; fi
	end_peers
	[ -z "${KEEP_LOGS:-}" ] || cp "$work"/*.log "$KEEP_LOGS" || true
	rm -rf "$work"
	exit "$code"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

for p in kube-controller-manager kube-scheduler kwok; do
	[ -x bin/$p ] && [ -f bin/kwok-stages.yaml ] || { echo "bench: bin/$p or bin/kwok-stages.yaml is missing: make kwok bin/kube-controller-manager bin/kube-scheduler" >&2; exit 2; }
done
mkdir -p "$work/bin"
go build -trimpath -tags grpcnotrace -ldflags '-s -w' -o "$work/bin/quorate" ./cmd/quorate
go build -trimpath -tags grpcnotrace -o "$work/bin/pods" ./bench/pods

# The programs' certificates are by one authority, which both servers trust.
peer_certificates
for p in kube-controller-manager kube-scheduler; do certificate $p /CN=system:$p extendedKeyUsage=clientAuth; done

kubeconfig() { # program, certificate, number, URL, CA: prints the file's name
	cat >"$work/$1$3.kubeconfig" <<-END
		apiVersion: v1
		kind: Config
		current-context: c
		clusters: [{name: c, cluster: {server: "$4", certificate-authority: $5}}]
		contexts: [{name: c, context: {cluster: c, user: u}}]
		users: [{name: u, user: {client-certificate: $pki/$2.crt, client-key: $pki/$2.key}}]
	END
	echo "$work/$1$3.kubeconfig"
}

# programs starts one of each at every server. Their limits of requests are no part of what is measured.
programs() { # controllers of the controller manager, CA, URLs
	local controllers=$1 ca=$2 i=0 u
	shift 2
	for u in "$@"; do
		bin/kube-controller-manager --kubeconfig="$(kubeconfig kube-controller-manager kube-controller-manager $i "$u" "$ca")" --secure-port=0 --use-service-account-credentials \
			--controllers="$controllers" --root-ca-file="$ca" --kube-api-qps=2000 --kube-api-burst=4000 >"$work/kcm$i.log" 2>&1 &
		pids+=($!)
		bin/kube-scheduler --kubeconfig="$(kubeconfig kube-scheduler kube-scheduler $i "$u" "$ca")" --secure-port=0 --kube-api-qps=2000 --kube-api-burst=4000 >"$work/scheduler$i.log" 2>&1 &
		pids+=($!)
		HOME=$work bin/kwok --kubeconfig="$(kubeconfig kwok admin $i "$u" "$ca")" --manage-all-nodes=false --manage-nodes-with-label-selector=bench/kwok=$i --node-lease-duration-seconds=40 --cidr=10.128.0.0/9 \
			--config=bin/kwok-stages.yaml >"$work/kwok$i.log" 2>&1 &
		pids+=($!)
		i=$((i + 1))
	done
}
# load is waited for, not run, so that a signal ends it too.
load() { "$work/bin/pods" "$@" & pids+=($!); wait $!; }
list() { local IFS=,; echo "$*"; }

peer() {
	echo "starting kube-apiserver and etcd, three of each" >&2
	local servers=() urls=() i
	free_ports 9
	etcd_cluster 3 $((port + 3))
	for i in 0 1 2; do etcd_member $i 3 $((port + 3)); servers+=($!); done
	pids+=("${servers[@]}")
	etcd_ready
	for i in 0 1 2; do
		apiserver $i $((port + i))
		pids+=($!) servers+=($!) urls+=("https://127.0.0.1:$((port + i))")
	done
	for i in 0 1 2; do wait_for ready $((port + i)); done
	programs '*' "$pki/ca.crt" "${urls[@]}"
	load -name 'kube-apiserver with etcd' -servers "$(list "${urls[@]}")" -ca "$pki/ca.crt" -cert "$pki/admin.crt" -key "$pki/admin.key" \
		-pids "$(list "${servers[@]}")" -nodes "$nodes" -pods "$pods" -within "$within" >"$work/peer.json"
	end_peers
}

quorate() {
	echo "starting three nodes of Quorate" >&2
	free_ports 3
	local cluster=$work/cluster urls=("https://127.0.0.1:$port" "https://127.0.0.1:$((port + 1))" "https://127.0.0.1:$((port + 2))") ca=$work/cluster/pki/api-ca.crt
	# Who reads what again is in the audit log, that of all three: reads of many, and nothing else.
	cat >"$work/audit.yaml" <<-END
		apiVersion: audit.k8s.io/v1
		kind: Policy
		omitStages: [RequestReceived]
		rules:
		- {level: Metadata, verbs: [list, watch], users: ["system:kube-controller-manager", "system:kube-scheduler", admin]}
		- {level: Metadata, verbs: [list, watch], userGroups: ["system:serviceaccounts:kube-system"]}
		- {level: None}
	END
	mkdir -p "$cluster"
	"$work/bin/quorate" dev --data-dir "$cluster" --api-port "$port" --detach --set "client-ca-file=$pki/ca.crt" \
		--set "audit-policy-file=$work/audit.yaml" --set "audit-log-path=$work/audit.log" --set audit-log-maxsize=0 >/dev/null
	# What Quorate's leader does itself is left to it, as the unit has it.
	programs "$(sed -n 's/^Environment=CONTROLLERS=//p' deploy/systemd/kube-controller-manager.service)" "$ca" "${urls[@]}"
	local stop="\"$work/bin/quorate\" dev stop n\$1 --data-dir \"$cluster\""
	[ -z "$kill" ] || stop="kill -9 \$(\"$work/bin/quorate\" dev status -o json --data-dir \"$cluster\" | sed -n 's/.*\"pid\": \\([0-9]*\\).*/\\1/p' | sed -n \$1p)"
	cat >"$work/restart" <<-END
		#!/bin/sh
		$stop && "$work/bin/quorate" dev start n\$1 --data-dir "$cluster"
	END
	chmod +x "$work/restart"
	load -name Quorate -servers "$(list "${urls[@]}")" -ca "$ca" -cert "$pki/admin.crt" -key "$pki/admin.key" \
		-pids "$("$work/bin/quorate" dev status --data-dir "$cluster" -o json | sed -n 's/.*"pid": \([0-9]*\).*/\1/p' | paste -sd,)" -nodes "$nodes" -pods "$pods" -all "$all" \
		-restart "$work/restart" -audit "$work/audit.log" -within "$within" >"$work/quorate.json"
}

code=0
[ "$only" = quorate ] || peer
[ "$only" = peer ] || quorate || code=$?
results=()
for r in "$work"/peer.json "$work"/quorate.json; do [ ! -s "$r" ] || results+=("$r"); done
[ -z "$output" ] || cat "${results[@]}" >"$output"
cat "${results[@]}"
exit $code
