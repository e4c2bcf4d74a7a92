#!/bin/sh
# cached.sh OUT DIR ARGUMENTS... makes OUT, a program of another project, by "go build ARGUMENTS" in the
# module DIR. It keeps the program for all checkouts of this user, under the checksum of what it is made
# from, so that a fresh clone need not compile and link it again. Remove the directory to free its space.
set -eu
out=$1 dir=$2
shift 2
cache=${QUORATE_PROGRAMS:-${XDG_CACHE_HOME:-$HOME/.cache}/quorate/programs}
made_from=$(cd "$dir" && go version && go env GOFLAGS GOOS GOARCH GOAMD64 GOARM64 CGO_ENABLED GOEXPERIMENT && echo "$@" &&
	for f in *.mod *.sum *.go; do [ ! -e "$f" ] || sha256sum "$f"; done)
kept=$cache/$(basename "$out")-$(echo "$made_from" | sha256sum | cut -c1-16)
mkdir -p "$cache" "$(dirname "$out")"
# A program that was not written whole, as after a power failure, has no build information.
if ! go version -m "$kept" >/dev/null 2>&1; then
	new=$(mktemp "$kept.XXXXXX")
	trap 'rm -f "$new"' EXIT INT TERM HUP
	(cd "$dir" && go build -o "$new" "$@")
	chmod 755 "$new"
	mv "$new" "$kept"
fi
copy=$(mktemp "$out.XXXXXX")
trap 'rm -f "$copy"' EXIT INT TERM HUP
cp "$kept" "$copy"
chmod 755 "$copy"
mv "$copy" "$out"
