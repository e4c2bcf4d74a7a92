#!/bin/sh
# cached.sh OUT DIR ARGUMENTS... makes OUT, a program of another project, by "go build ARGUMENTS" in the
# module DIR. It keeps the program for all checkouts of this user, under the checksum of what it is made
# from, so that a fresh clone need not compile and link it again.
set -eu
out=$1 dir=$2
shift 2
cache=${QUORATE_PROGRAMS:-${XDG_CACHE_HOME:-$HOME/.cache}/quorate/programs}
key=$(cd "$dir" && { go version; echo "$@ ${GOFLAGS:-}"; cat ./*.mod ./*.sum; cat ./*.go 2>/dev/null || true; } | sha256sum | cut -c1-16)
kept=$cache/$(basename "$out")-$key
if [ ! -x "$kept" ]; then
	mkdir -p "$cache"
	new=$(mktemp "$kept.XXXXXX")
	trap 'rm -f "$new"' EXIT
	(cd "$dir" && go build -o "$new" "$@")
	chmod 755 "$new"
	mv "$new" "$kept"
fi
mkdir -p "$(dirname "$out")"
cp -f "$kept" "$out"
