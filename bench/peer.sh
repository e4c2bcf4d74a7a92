# shellcheck shell=bash
# The peer: etcd and kube-apiserver, for the scripts that source this. They set $work, a
# directory of theirs, and end the processes of ${pids[@]}.
pids=()
end_peers() {
	[ ${#pids[@]} -eq 0 ] || kill -9 "${pids[@]}" 2>/dev/null || true
	for p in "${pids[@]}"; do wait "$p" 2>/dev/null || true; done
	pids=()
}

# free tells whether nobody listens on a port of loopback.
free() { ! (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# free_ports sets port to the first of so many free ones.
free_ports() {
	for _ in $(seq 50); do
		port=$((20000 + RANDOM % 10000))
		for i in $(seq 0 $(($1 - 1))); do free $((port + i)) || { port=; break; }; done
		[ -z "$port" ] || return 0
	done
	echo "bench: no free ports" >&2
	exit 2
}

# wait_for calls a command until it succeeds, for at most a minute.
wait_for() {
	for _ in $(seq 300); do "$@" >/dev/null 2>&1 && return; sleep 0.2; done
	echo "bench: the peer does not become ready: $*" >&2
	tail -n 5 "$work"/*.log >&2
	exit 2
}
ready() { curl -sf --max-time 5 --cacert "$pki/ca.crt" --cert "$pki/admin.crt" --key "$pki/admin.key" "https://127.0.0.1:$1/readyz"; }

# peer_certificates makes the peer's PKI: one authority, one certificate for the servers,
# one for the load.
peer_certificates() {
	pki=$work/pki
	mkdir -p "$pki"
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$pki/ca.key" -subj /CN=peer-ca -days 2 -out "$pki/ca.crt" 2>/dev/null
	certificate server /CN=kube-apiserver subjectAltName=IP:127.0.0.1
	certificate admin /O=system:masters/CN=admin extendedKeyUsage=clientAuth
	openssl genrsa -out "$pki/sa.key" 2048 2>/dev/null
}
certificate() { # name, subject, extension
	openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$pki/$1.key" -subj "$2" -out "$pki/$1.csr" 2>/dev/null
	openssl x509 -req -in "$pki/$1.csr" -CA "$pki/ca.crt" -CAkey "$pki/ca.key" -CAcreateserial -days 2 -extfile <(printf '%s' "$3") -out "$pki/$1.crt" 2>/dev/null
}

# etcd_cluster sets members and clients to those of so many members, whose ports begin at
# some port: first those of the peers, then those of clients.
etcd_cluster() { # count, first port
	members='' clients=''
	for i in $(seq 0 $(($1 - 1))); do
		members+=${members:+,}e$i=http://127.0.0.1:$(($2 + i))
		clients+=${clients:+,}http://127.0.0.1:$(($2 + $1 + i))
	done
}

# etcd_member starts one of them. Its process id is in $!.
etcd_member() { # number, count, first port
	local peer=http://127.0.0.1:$(($3 + $1)) client=http://127.0.0.1:$(($3 + $2 + $1))
	bin/etcd --name "e$1" --data-dir "$work/e$1" --initial-cluster "$members" --initial-cluster-state new --log-level error \
		--listen-peer-urls "$peer" --initial-advertise-peer-urls "$peer" \
		--listen-client-urls "$client" --advertise-client-urls "$client" >"$work/e$1.log" 2>&1 &
}

# etcd_ready waits for all of them.
etcd_ready() { for u in ${clients//,/ }; do wait_for curl -sf --max-time 2 "$u/health"; done; }

# apiserver starts a kube-apiserver on them. Default flags; but nothing of the load needs
# the ServiceAccount plugin, unless $without_admission says otherwise; $service_range is the default too.
without_admission=ServiceAccount
service_range=10.0.0.0/24
apiserver() { # number, port
	bin/kube-apiserver --etcd-servers="$clients" --bind-address=127.0.0.1 --advertise-address=127.0.0.1 --secure-port="$2" \
		--tls-cert-file="$pki/server.crt" --tls-private-key-file="$pki/server.key" --client-ca-file="$pki/ca.crt" --authorization-mode=RBAC \
		--service-account-issuer=https://peer --service-account-signing-key-file="$pki/sa.key" --service-account-key-file="$pki/sa.key" \
		--service-cluster-ip-range="$service_range" --disable-admission-plugins="$without_admission" --cert-dir="$work/certs$1" >"$work/a$1.log" 2>&1 &
}

# peer_json prints what bench/client reads of the peer: nodes as JSON, with commas.
peer_json() {
	printf '{"nodes":[%s],"caFile":"%s","adminCertFile":"%s","adminKeyFile":"%s"}\n' "$1" "$pki/ca.crt" "$pki/admin.crt" "$pki/admin.key"
}

# traced runs a command and all that it starts under strace, which stops them at their
# syncs and nowhere else, and makes each sync take $delay µs longer, if that is set.
traced() {
	local inject=()
	[ "${delay:-0}" -eq 0 ] || inject=(-e "inject=fsync,fdatasync,msync,sync_file_range,syncfs:delay_exit=$delay")
	exec strace -f --seccomp-bpf -qq -y -ttt -o "$work/trace" -e trace=fsync,fdatasync,msync,sync_file_range,syncfs -e signal=none "${inject[@]}" "$@" 2>"$work/strace.log"
}

# stop ends what scripts have started that trace, and removes its data.
stop() {
	if [ -f "$work/cluster/cluster.json" ]; then
		"$work/bin/quorate" dev stop --data-dir "$work/cluster" >/dev/null || true
	fi
	# The tracees of etcd's strace, then what is left.
	[ ! -s "$work/pids" ] || kill -9 $(cat "$work/pids") 2>/dev/null || true
	end_peers
	rm -rf "$work/cluster" "$work"/e? "$work/pids" "$work/trace"
}
