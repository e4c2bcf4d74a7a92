#!/usr/bin/env bash
# Runs the contract suite of kubectl (test/cmd of k8s.io/kubernetes, as tools/peers pins it)
# against Quorate, or against the kube-apiserver of the same version, and prints a table of its
# groups. The suite is copied out of the module cache; only its start of servers is ours, and it
# is the same for both. Run it with 'make judge-kubectl', which builds what it needs into bin/.
#
#   run.sh [--server quorate|upstream] [--limit SECONDS] [--keep DIR] [--fast | GROUP...]
#
#   --server   quorate: three nodes (the default); upstream: etcd and kube-apiserver
#   --limit    how long one group may take (default 300)
#   --keep     directory for what the groups printed, a file each; without it, that of a group
#              that fails is shown and all is removed
#   --fast     the groups of fast.txt, without kube-controller-manager
#   GROUP      groups by the names of the table; without one, all of them
#
# Exit codes: 0 all groups passed, 1 some did not, 2 it could not be run.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../../.."
server=quorate limit=300 keep='' groups='' controllers=yes
usage() { sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p}' "$here/run.sh"; exit "${1:-0}"; }
die() { echo "testcmd: $*" >&2; exit 2; }
while [ $# -gt 0 ]; do
	case $1 in
	--server) server=${2:?} && shift ;;
	--limit) limit=${2:?} && shift ;;
	--keep) keep=${2:?} && shift ;;
	--fast) groups=$(grep -v '^#' "$here/fast.txt" | tr '\n' ' ') controllers=no ;;
	-h | --help) usage ;;
	-*) usage 2 >&2 ;;
	*) groups+="$1 " ;;
	esac
	shift
done
case $server in
quorate) programs=quorate ;;
upstream) programs='etcd kube-apiserver' ;;
*) die "--server $server: it is quorate or upstream" ;;
esac
[ $controllers = no ] || programs+=' kube-controller-manager kubectl-convert'
for p in kubectl $programs; do
	[ -x "bin/$p" ] || die "there is no bin/$p: run 'make judge-kubectl'"
done
for p in openssl jq curl script tput; do
	command -v $p >/dev/null || die "the suite needs $p"
done
bin=$PWD/bin

work=$(mktemp -d "${TMPDIR:-/tmp}/quorate-testcmd.XXXXXX")
pids=()
finish() {
	code=$?
	trap - EXIT
	[ ! -d "$work/nodes" ] || bin/quorate dev stop --data-dir "$work/nodes" >/dev/null 2>&1 || true
	[ ${#pids[@]} -eq 0 ] || kill -9 "${pids[@]}" 2>/dev/null || true
	for p in "${pids[@]}"; do wait "$p" 2>/dev/null || true; done
	rm -rf "$work"
	exit "$code"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
logs=${keep:-$work/logs}
mkdir -p "$logs" "$work/home" "$work/tmp"
logs=$(cd "$logs" && pwd)

# The module's own files cannot be written, and the suite writes beside them.
module=$(cd tools/peers && go mod download -json k8s.io/kubernetes | sed -n 's/^\t"Dir": "\(.*\)",*$/\1/p')
version=${module##*@}
suite=$work/suite
for dir in hack test/cmd test/fixtures test/e2e/testing-manifests third_party/forked/shell2junit; do
	mkdir -p "$suite/$(dirname $dir)"
	cp -r "$module/$dir" "$suite/$dir"
done
chmod -R u+w "$suite"
grep -rlI '^#!' "$suite/test/fixtures" | xargs chmod +x # a module's files are not executable
mkdir -p "$suite/_output/bin"
for p in kubectl kubectl-convert; do
	[ ! -x "bin/$p" ] || ln -s "$bin/$p" "$suite/_output/bin/$p"
done

# free tells whether nobody listens on a port of loopback.
free() { ! (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
port=
for _ in $(seq 50); do
	port=$((20000 + RANDOM % 10000))
	for p in $port $((port + 1)) $((port + 2)) $((port + 5)) $((port + 6)) $((port + 1000)) $((port + 1001)) $((port + 1002)); do
		free $p || { port=; break; }
	done
	[ -z "$port" ] || break
done
[ -n "$port" ] || die "no free ports"

# wait_for calls a command until it succeeds, for at most two minutes.
wait_for() {
	for _ in $(seq 600); do
		! "$@" >/dev/null 2>&1 || return 0
		sleep 0.2
	done
	tail -n 20 "$work"/*.log >&2
	die "it does not become ready: $*"
}

# What test-cmd.sh turns off, and its certificate authority for clients. It serves nobody whom
# it does not know, as kube-apiserver does when everything is allowed.
disabled=ServiceAccount,DefaultStorageClass,DefaultTolerationSeconds,MutatingAdmissionWebhook,ValidatingAdmissionWebhook,StorageObjectInUseProtection
clients=$suite/hack/testdata/ca
admin=$work/admin.kubeconfig

start_quorate() {
	bin/quorate dev --detach --data-dir "$work/nodes" --kubeconfig "$admin" --api-port "$port" \
		--set disable-admission-plugins=$disabled --set anonymous-auth=false --set client-ca-file="$clients/ca.crt" \
		>"$work/quorate.log" 2>&1 || { cat "$work/quorate.log" >&2; die "quorate does not start"; }
}

certificate() { # name, subject, extension
	openssl req -newkey rsa:2048 -nodes -keyout "$work/$1.key" -subj "$2" -out "$work/$1.csr" 2>/dev/null
	openssl x509 -req -in "$work/$1.csr" -CA "$clients/ca.crt" -CAkey "$clients/ca.key" -CAcreateserial -days 2 \
		-extfile <(printf '%s' "$3") -out "$work/$1.crt" 2>/dev/null
}

start_upstream() {
	certificate server /CN=kube-apiserver subjectAltName=IP:127.0.0.1
	certificate admin /O=system:masters/CN=admin extendedKeyUsage=clientAuth
	openssl genrsa -out "$work/sa.key" 2048 2>/dev/null
	etcd=http://127.0.0.1:$((port + 1000)) peer=http://127.0.0.1:$((port + 1001))
	bin/etcd --data-dir="$work/etcd" --log-level=error --listen-client-urls=$etcd --advertise-client-urls=$etcd --listen-peer-urls=$peer \
		--initial-advertise-peer-urls=$peer --initial-cluster=default=$peer >"$work/etcd.log" 2>&1 &
	pids+=($!)
	bin/kube-apiserver --etcd-servers=$etcd --bind-address=127.0.0.1 --advertise-address=127.0.0.1 --secure-port="$port" \
		--tls-cert-file="$work/server.crt" --tls-private-key-file="$work/server.key" --client-ca-file="$clients/ca.crt" \
		--authorization-mode=RBAC --anonymous-auth=false --disable-admission-plugins=$disabled \
		--service-account-issuer=https://kubernetes.default.svc --service-account-signing-key-file="$work/sa.key" \
		--service-account-key-file="$work/sa.key" --service-cluster-ip-range=10.0.0.0/24 --cert-dir="$work/certs" >"$work/kube-apiserver.log" 2>&1 &
	pids+=($!)
	export KUBECONFIG=$admin
	bin/kubectl config set-cluster local --server="https://127.0.0.1:$port" --insecure-skip-tls-verify
	bin/kubectl config set-credentials admin --client-certificate="$work/admin.crt" --client-key="$work/admin.key"
	bin/kubectl config set-context local --cluster=local --user=admin
	bin/kubectl config use-context local
	unset KUBECONFIG
} >/dev/null

as_admin() { KUBECONFIG=$admin HOME=$work/home bin/kubectl "$@"; }

echo "starting $server" >&2
start_$server
wait_for as_admin get --raw /readyz
wait_for as_admin get clusterrole cluster-admin

# Groups of kubeconfig.sh read the server's certificate where test-cmd.sh's server writes it.
openssl s_client -connect "127.0.0.1:$port" </dev/null 2>/dev/null | openssl x509 >"$work/tmp/apiserver.crt"

# In place of the authorizer AlwaysAllow and of the file of tokens, which Quorate has not: those
# who are known may do everything, and a token of a service account stands for the suite's.
as_admin create clusterrolebinding testcmd --clusterrole=cluster-admin --group=system:authenticated >/dev/null
as_admin create serviceaccount -n kube-system testcmd >/dev/null
token=$(as_admin create token -n kube-system testcmd --duration=24h)
grep -rl admin-token "$suite/test/cmd" | xargs sed -i "s/admin-token/$token/g"

# A group fetches one of the suite's own files from GitHub; it gets this copy of it.
KUBECONFIG=$admin bin/kubectl proxy --port=$((port + 6)) --www="$suite" --www-prefix=/suite/ >"$work/proxy.log" 2>&1 &
pids+=($!)
grep -rl raw.githubusercontent.com "$suite/test/cmd" | xargs sed -i "s#https://raw.githubusercontent.com/kubernetes/kubernetes/master/#http://127.0.0.1:$((port + 6))/suite/#g"
wait_for curl -sf --max-time 5 "http://127.0.0.1:$((port + 6))/suite/hack/testdata/multi-resource-yaml.yaml"

if [ $controllers = yes ]; then
	KUBECONFIG=$work/controllers.kubeconfig
	export KUBECONFIG
	bin/kubectl config set-cluster local --server="https://127.0.0.1:$port" --insecure-skip-tls-verify >/dev/null
	bin/kubectl config set-credentials controllers --token="$token" >/dev/null
	bin/kubectl config set-context local --cluster=local --user=controllers >/dev/null
	bin/kubectl config use-context local >/dev/null
	bin/kube-controller-manager --kubeconfig="$KUBECONFIG" --leader-elect=false --bind-address=127.0.0.1 --secure-port=$((port + 5)) \
		--cert-dir="$work/certs-controllers" --cluster-signing-cert-file="$clients/ca.crt" --cluster-signing-key-file="$clients/ca.key" \
		>"$work/kube-controller-manager.log" 2>&1 &
	pids+=($!)
	unset KUBECONFIG
	wait_for curl -ksf --max-time 5 "https://127.0.0.1:$((port + 5))/healthz"
fi

# --match-server-version compares the whole gitVersion: it is left out where the versions differ.
ours=$(as_admin version -o json | jq -r .clientVersion.gitVersion)
theirs=$(as_admin version -o json | jq -r .serverVersion.gitVersion)
skew=
[ "$ours" = "$theirs" ] || skew=true

echo "kubectl's test/cmd of $version, kubectl $ours, server $server $theirs${skew:+, without --match-server-version}"
code=0
(cd "$suite" && env -i PATH="$PATH" HOME="$work/home" TMPDIR="$work/tmp" TERM=xterm LANG=C SECURE_API_PORT="$port" TOKEN="$token" \
	ALLOW_SKEW=$skew GROUPS_WANTED="$groups" LIMIT="$limit" LOGS="$logs" bash "$here/suite.sh") || code=$?
if [ -n "$keep" ]; then
	cp "$work"/*.log "$work"/nodes/*.log "$logs" 2>/dev/null || true
fi
exit "$code"
