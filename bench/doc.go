// Package bench is where whole clusters are measured: the load program in
// bench/load, and run.sh, which starts three nodes for it. Benchmarks of single
// packages stay with their packages: `go test -bench . -run '^$' ./raftstore/mvcc`.
package bench
