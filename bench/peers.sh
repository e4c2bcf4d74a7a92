#!/usr/bin/env bash
# Measures kube-apiserver with etcd, three of each, and three nodes of Quorate, one
# after the other on this machine with the same load, and prints both side by side.
# The peer is built from its Go modules (make peers). Arguments go to bench/load;
# the exit code is that of Quorate's run.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d "${TMPDIR:-/tmp}/quorate-peers.XXXXXX")
pids=()
finish() {
	code=$?
	trap - EXIT
	end_peers
	rm -rf "$work"
	exit "$code"
}
end_peers() {
	[ ${#pids[@]} -eq 0 ] || kill -9 "${pids[@]}" 2>/dev/null || true
	for p in "${pids[@]}"; do wait "$p" 2>/dev/null || true; done
	pids=()
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

mkdir -p "$work/bin"
go build -trimpath -o "$work/bin/load" ./bench/load
case " $* " in *" --help "* | *" -h "*) "$work/bin/load" --help; exit ;; esac

# free tells whether nobody listens on a port of loopback.
free() { ! (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
for _ in $(seq 50); do
	port=$((20000 + RANDOM % 10000))
	for i in $(seq 0 8); do free $((port + i)) || { port=; break; }; done
	[ -z "$port" ] || break
done
[ -n "$port" ] || { echo "bench: no free ports" >&2; exit 2; }

# The peer's PKI: one authority, one certificate for the servers, one for the load.
pki=$work/pki
mkdir -p "$pki"
certificate() { # name, subject, extension
	openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$pki/$1.key" -subj "$2" -out "$pki/$1.csr" 2>/dev/null
	openssl x509 -req -in "$pki/$1.csr" -CA "$pki/ca.crt" -CAkey "$pki/ca.key" -CAcreateserial -days 2 -extfile <(printf '%s' "$3") -out "$pki/$1.crt" 2>/dev/null
}
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$pki/ca.key" -subj /CN=peer-ca -days 2 -out "$pki/ca.crt" 2>/dev/null
certificate server /CN=kube-apiserver subjectAltName=IP:127.0.0.1
certificate admin /O=system:masters/CN=admin extendedKeyUsage=clientAuth
openssl genrsa -out "$pki/sa.key" 2048 2>/dev/null

# wait_for calls a command until it succeeds, for at most a minute.
wait_for() {
	for _ in $(seq 300); do "$@" >/dev/null 2>&1 && return; sleep 0.2; done
	echo "bench: the peer does not become ready: $*" >&2
	tail -n 5 "$work"/*.log >&2
	exit 2
}
ready() { curl -sf --max-time 5 --cacert "$pki/ca.crt" --cert "$pki/admin.crt" --key "$pki/admin.key" "https://127.0.0.1:$1/readyz"; }

echo "starting kube-apiserver and etcd, three of each" >&2
members='' clients='' nodes=''
for i in 0 1 2; do
	members+=${members:+,}e$i=http://127.0.0.1:$((port + 3 + i))
	clients+=${clients:+,}http://127.0.0.1:$((port + 6 + i))
done
for i in 0 1 2; do
	bin/etcd --name e$i --data-dir "$work/e$i" --initial-cluster "$members" --initial-cluster-state new --log-level error \
		--listen-peer-urls http://127.0.0.1:$((port + 3 + i)) --initial-advertise-peer-urls http://127.0.0.1:$((port + 3 + i)) \
		--listen-client-urls http://127.0.0.1:$((port + 6 + i)) --advertise-client-urls http://127.0.0.1:$((port + 6 + i)) >"$work/e$i.log" 2>&1 &
	pids+=($!)
	nodes+="{\"name\":\"e$i\",\"pid\":$!},"
done
for i in 0 1 2; do wait_for curl -sf --max-time 2 "http://127.0.0.1:$((port + 6 + i))/health"; done
# Default flags; but nothing of the load needs the ServiceAccount plugin.
for i in 0 1 2; do
	bin/kube-apiserver --etcd-servers="$clients" --bind-address=127.0.0.1 --advertise-address=127.0.0.1 --secure-port=$((port + i)) \
		--tls-cert-file="$pki/server.crt" --tls-private-key-file="$pki/server.key" --client-ca-file="$pki/ca.crt" --authorization-mode=RBAC \
		--service-account-issuer=https://peer --service-account-signing-key-file="$pki/sa.key" --service-account-key-file="$pki/sa.key" \
		--service-cluster-ip-range=10.0.0.0/24 --disable-admission-plugins=ServiceAccount --cert-dir="$work/certs$i" >"$work/a$i.log" 2>&1 &
	pids+=($!)
	nodes+="{\"name\":\"a$i\",\"pid\":$!,\"api\":\"https://127.0.0.1:$((port + i))\"},"
done
for i in 0 1 2; do wait_for ready $((port + i)); done
printf '{"nodes":[%s],"caFile":"%s","adminCertFile":"%s","adminKeyFile":"%s"}\n' "${nodes%,}" "$pki/ca.crt" "$pki/admin.crt" "$pki/admin.key" >"$work/peer.json"
"$work/bin/load" --cluster "$work/peer.json" --keep "$@" -o json >"$work/result.json" || [ $? -eq 1 ]
end_peers
bench/run.sh --against "$work/result.json" "$@"
