// Package test holds whole-system tests: clusters of real node processes on
// loopback, driven by an unmodified kubectl, by client-go and by raw
// connections, while nodes are killed, cut off, added and restored.
//
// The files without _test are the harness: a Cluster is a playground made by
// `quorate dev` in a directory of its own, a Node one of its processes. Nothing
// of the product is imported: everything goes through ports, the command line
// and cluster.json, as it does for users.
//
// What reads must do stands in tables: testdata/matrix.txt decides every
// combination of their parameters, cutoff.txt the read modes without a quorum,
// tokens.txt and versions.txt what continue tokens and resourceVersions may look
// like. Their tests share one cluster (startReaders), of which a non-voter hears
// the leader through a Link that can be made long.
//
// What the API promises stands in stories, testdata/conformance, that TestConformance
// tells to a cluster; docs/conformance.md lists them. A session of kubectl's commands
// is testdata/kubectl.txt.
//
// The environment variable QUORATE_BIN names a binary to test instead of
// building one; KUBECTL names a kubectl (default: bin/kubectl of the
// repository, which `make kubectls` builds with those of other minors beside it). KEEP=1 keeps the directory of the
// run, with all logs.
//
// No process outlives a run, however it ends: a reaper in a session of its own
// waits for the end of the test process and then kills every process whose
// command line names the directory of the run.
package test
