#!/bin/sh
# Regenerates the Go code of quorate.proto. Needs protoc (Debian package
# protobuf-compiler); the Go plugins come from the tools module. The stamp lets
# a test tell without protoc whether this was run after the last change.
set -eu
cd "$(dirname "$0")"
bin=$(pwd)/../tools/bin
[ -x "$bin/protoc-gen-go" ] || make -C .. tools
protoc --plugin="$bin/protoc-gen-go" --plugin="$bin/protoc-gen-go-grpc" \
  --go_out=. --go_opt=paths=source_relative \
  --go-grpc_out=. --go-grpc_opt=paths=source_relative quorate.proto
sha256sum quorate.proto quorate.pb.go quorate_grpc.pb.go > generated.sha256
