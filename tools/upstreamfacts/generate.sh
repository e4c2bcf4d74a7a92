#!/bin/sh
# Rewrites the golden files of discovery and OpenAPI from the documents that
# upstream publishes in the module k8s.io/kubernetes, at the version of go.mod.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
version=$(awk '$1=="k8s.io/api"{sub("v0","v1",$2); print $2}' "$here/../../go.mod")
dir=$(cd "$here" && go mod download -json "k8s.io/kubernetes@$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
cd "$here"
go run . "$dir" "$here/../.."
