#!/bin/sh
# The race of rules on one etcd and three kube-apiservers, for comparison with TestRulesRace.
# Needs bin/etcd and bin/kube-apiserver ('make peers') and openssl. Prints what was admitted.
set -eu
cd "$(dirname "$0")/../../.."
dir=$(mktemp -d)
pids=
trap 'kill -9 $pids 2>/dev/null; wait 2>/dev/null; rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM
port=${PORT:-26100}
openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=ca -keyout "$dir/ca.key" -out "$dir/ca.crt" 2>/dev/null
certificate() { # NAME SUBJECT EXTENSION
	openssl req -newkey rsa:2048 -nodes -subj "$2" -keyout "$dir/$1.key" -out "$dir/$1.csr" 2>/dev/null
	echo "$3" >"$dir/$1.ext"
	openssl x509 -req -days 1 -in "$dir/$1.csr" -CA "$dir/ca.crt" -CAkey "$dir/ca.key" -CAcreateserial -extfile "$dir/$1.ext" -out "$dir/$1.crt" 2>/dev/null
}
certificate server /CN=kube-apiserver subjectAltName=IP:127.0.0.1
certificate admin /O=system:masters/CN=admin extendedKeyUsage=clientAuth
openssl genrsa -out "$dir/sa.key" 2048 2>/dev/null
bin/etcd --data-dir="$dir/etcd" --log-level=error --listen-client-urls=http://127.0.0.1:$port --advertise-client-urls=http://127.0.0.1:$port \
	--listen-peer-urls=http://127.0.0.1:$((port + 1)) --initial-advertise-peer-urls=http://127.0.0.1:$((port + 1)) \
	--initial-cluster=default=http://127.0.0.1:$((port + 1)) >"$dir/etcd.log" 2>&1 &
pids=$!
servers=
for i in 2 3 4; do
	p=$((port + i))
	bin/kube-apiserver --etcd-servers=http://127.0.0.1:$port --bind-address=127.0.0.1 --advertise-address=127.0.0.1 --secure-port=$p \
		--tls-cert-file="$dir/server.crt" --tls-private-key-file="$dir/server.key" --client-ca-file="$dir/ca.crt" --authorization-mode=RBAC \
		--service-account-issuer=https://kubernetes.default.svc.cluster.local --service-account-signing-key-file="$dir/sa.key" \
		--service-account-key-file="$dir/sa.key" --service-cluster-ip-range=10.0.0.0/24 --cert-dir="$dir/certs" >"$dir/kube-apiserver-$i.log" 2>&1 &
	pids="$pids $!"
	servers=$servers${servers:+,}https://127.0.0.1:$p
done
for url in $(echo "$servers" | tr , ' '); do
	for _ in $(seq 120); do
		curl -sf --cacert "$dir/ca.crt" --cert "$dir/admin.crt" --key "$dir/admin.key" "$url/readyz" >/dev/null && break
		sleep 1
	done
done
RULES_SERVERS=$servers RULES_CA=$dir/ca.crt RULES_CERTIFICATE=$dir/admin.crt RULES_KEY=$dir/admin.key \
	go test ./test/system/rules -run TestUpstreamRace -v -count=1
