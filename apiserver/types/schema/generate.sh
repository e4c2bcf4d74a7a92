#!/bin/sh
# Makes data/models from the Kubernetes API types. The generator lives in a
# module of its own, tools/schemagen, whose go.mod pins k8s.io/api; it must be
# the version of the product's go.mod (a test compares them).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../../../tools/schemagen"
boilerplate=$(mktemp)
trap 'rm -f "$boilerplate"' EXIT
go tool openapi-gen \
	--output-dir definitions \
	--output-pkg github.com/quorate/quorate/tools/schemagen/definitions \
	--output-file zz_generated.go \
	--go-header-file "$boilerplate" \
	--report-filename /dev/null \
	$(cat packages.txt)
rm -rf "$here/data/models"
mkdir -p "$here/data/models"
go run . -out "$here/data/models"
