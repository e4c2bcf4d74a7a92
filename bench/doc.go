// Package bench is where whole clusters are measured: by the commands of `quorate bench`,
// each of which has a package here, and by run.sh, peers.sh and syncs.sh, which build what
// they measure. Benchmarks of single packages stay with their packages:
// `go test -bench . -run '^$' ./raftstore/mvcc`.
package bench
