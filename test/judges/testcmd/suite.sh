# Runs in the copy of the suite: its libraries and groups as they are, its record_command and its
# set-up replaced. Called by run.sh, which says what the variables are.
set -o errexit -o nounset -o pipefail
source hack/lib/init.sh
source hack/lib/test.sh
KUBE_JUNIT_REPORT_DIR=$LOGS/junit
source test/cmd/legacy-script.sh >"$LOGS/suite.log" 2>&1

# plain takes the colours out.
plain() { sed -e 's/\x1b\[[0-9;]*m//g' -e 's/\x1b(B//g'; }
# checks counts the checks of a log that have passed; failures names those that have not.
checks() { plain <"$1" | grep -cE '^([a-z_-]+\.sh:[0-9]+: )?Successful' || true; }
failures() { plain <"$1" | grep -B1 -A12 'FAIL!' | head -n 60 || true; }

total=0 passed=0 checked=0 failed='' ran=' '
row() { printf '%-50s %6s  %-8s %7s\n' "$@"; }
# report prints the row of a group and counts it.
report() { # name, exit code, seconds, log
	local n result=pass
	n=$(checks "$4")
	total=$((total + 1)) checked=$((checked + n)) ran+="$1 "
	if [ "$2" = 0 ]; then passed=$((passed + 1)); else result=FAIL failed+="$1 "; fi
	[ "$2" != limit ] || result="too long"
	row "$1" "$n" "$result" "$3" >&3
}
seconds() { awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN {printf "%.1f", b - a}'; }

# record_command runs a group in a process group of its own, for at most LIMIT seconds.
record_command() {
	local name=$1 log=$LOGS/$1.log begin=$EPOCHREALTIME code=0 pid guard
	[ -z "$GROUPS_WANTED" ] || [[ " $GROUPS_WANTED " == *" $name "* ]] || return 0
	set -m
	(set +m +o errexit +o nounset; "$@") >"$log" 2>&1 </dev/null &
	pid=$!
	(sleep "$LIMIT" && touch "$log.limit" && kill -9 -- -"$pid") >/dev/null 2>&1 &
	guard=$!
	set +m
	wait "$pid" || code=$?
	kill -9 -- -"$guard" -"$pid" 2>/dev/null || true # what the group has left behind, too
	wait "$guard" 2>/dev/null || true
	[ ! -e "$log.limit" ] || code=limit
	report "$name" "$code" "$(seconds "$begin")" "$log"
}

exec 3>&1
begun=$EPOCHREALTIME
kubectl config set-credentials test-admin --token "$TOKEN" >/dev/null
kubectl config set-cluster local --insecure-skip-tls-verify --server "https://127.0.0.1:$SECURE_API_PORT" >/dev/null
CONTEXT=test
kubectl config set-context "$CONTEXT" --user test-admin --cluster local >/dev/null
kubectl config use-context "$CONTEXT" >/dev/null
KUBE_TEMP=$TMPDIR
kube::util::ensure-gnu-sed
SUPPORTED_RESOURCES=("*")
kubectl create -f - >/dev/null <<'NODE'
{"kind":"Node","apiVersion":"v1","metadata":{"name":"127.0.0.1","annotations":{"save-managers":"true"}},"status":{"capacity":{"memory":"1Gi"}}}
NODE

row group checks result seconds
# Not in a condition, which would turn errexit off in it. It counts in this shell, so what ends
# it is caught by the trap.
between=$LOGS/between.log
finished=no
finish() {
	trap - EXIT
	set +o errexit
	[ $finished = yes ] || code=1
	report '(checks between the groups)' "${code:-0}" "-" "$between"
	for f in $GROUPS_WANTED; do
		[[ "$ran" == *" $f "* ]] || { printf '%s: it was not run: is it one of the groups?\n' "$f" >&3 && failed+="$f "; }
	done
	for f in $failed; do
		[ -e "$LOGS/$f.log" ] || continue
		printf '\n%s:\n' "$f"
		failures "$LOGS/$f.log"
		plain <"$LOGS/$f.log" | tail -n 12
	done >&3
	[ "${code:-0}" = 0 ] || plain <"$between" | tail -n 30 >&3
	printf '\n%d groups, %d passed, %d checks, %.0f s\n' $((total - 1)) $((passed - (${code:-0} == 0))) "$checked" "$(seconds "$begun")" >&3
	[ -z "$failed" ]
	exit
}
trap finish EXIT
runTests >"$between" 2>&1
finished=yes
