#!/bin/sh
# cached.sh OUT DIR ARGUMENTS... makes OUT, a program of another project, by "go build ARGUMENTS" in the
# module DIR. It keeps the program for all checkouts of this user, under the checksum of what it is made
# from, so that a fresh clone need not compile and link it again. Remove the directory to free its space.
# PROGRAM_CACHE names another one (without QUORATE_ in front, which a node takes for a setting).
set -eu
out=$1 dir=$2
shift 2
case $out in /*) ;; *) out=$PWD/$out ;; esac
[ ! -d "$out" ] || { echo "cached.sh: $out is a directory" >&2; exit 1; }
cache=${PROGRAM_CACHE:-${XDG_CACHE_HOME:-${HOME:-/dev/null}/.cache}/quorate/programs}
made_from=$(cd "$dir" && go version && go env GOFLAGS GOOS GOARCH GOAMD64 GOARM64 CGO_ENABLED GOEXPERIMENT && echo "$@" &&
	for f in *.mod *.sum *.go; do [ ! -e "$f" ] || sha256sum "$f"; done)
kept=$cache/$(basename "$out")-$(echo "$made_from" | sha256sum | cut -c1-16)

new='' copy=''
trap 'rm -f "$new" "$copy"' EXIT
trap 'exit 1' INT TERM HUP
mkdir -p "$(dirname "$out")"
copy=$(mktemp "$out.XXXXXX")
# The copy is compared, so that a program that was damaged, or not written whole, is built again.
if ! { cp "$kept" "$copy" && [ "$(sha256sum <"$copy")" = "$(cat "$kept.sha256")" ]; } 2>/dev/null; then
	: >"$copy" # go build overwrites an empty file or a program only
	(cd "$dir" && go build -o "$copy" "$@")
	{ mkdir -p "$cache" && new=$(mktemp "$kept.XXXXXX") && cp "$copy" "$new" && chmod 755 "$new" && mv "$new" "$kept" &&
		new=$(mktemp "$kept.XXXXXX") && sha256sum <"$copy" >"$new" && chmod 644 "$new" && mv "$new" "$kept.sha256"; } 2>/dev/null ||
		echo "cached.sh: $out is not kept: $cache cannot be written" >&2
fi
chmod 755 "$copy"
mv "$copy" "$out"
