// Package chaos runs clusters of real processes, lets clients write, read and
// watch, and meanwhile does to the nodes what happens to machines: they are
// killed, stopped, cut off, deprived of current, disk and clock. What the clients
// saw is a history.History, which package check judges.
//
// A Scenario names the cluster, the faults (a Nemesis) and the time. Run plays it
// once. What is the test's own choice follows from the seed; the times at which
// processes do things do not, so a seed gives the same kind of run again, not the
// same run. docs/chaos.md says how to use it and what the verdicts mean.
//
// Nothing of the product is imported: nodes are `quorate node` processes, reached
// through their ports. Files: cluster.go and node.go (the processes), client.go,
// ops.go and watcher.go (the load), run.go (one scenario from start to verdict),
// nemesis*.go (the faults), scenarios.go (the table).
package chaos
