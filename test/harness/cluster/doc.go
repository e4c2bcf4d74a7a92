// Package cluster is the harness of the whole-system tests: a Cluster is a
// playground made by `quorate dev` in a directory of its own, a Node one of its
// processes. Nothing of the product is imported: everything goes through ports, the
// command line and cluster.json, as it does for users.
//
// A package of tests has
//
//	func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }
//
// Its tests Start clusters of their own, or use the Shared one if they leave it as it
// was. SharedReaders is one for tests of reads and watches, of which a non-voter hears
// the leader through a Link that can be made long.
//
// Clusters run the controllers that users' clusters run. One of them writes a ConfigMap into every namespace,
// shortly after it is made. A test that counts ConfigMaps makes its namespace with Namespace, or calls
// AwaitFurnished for default, and counts that one or leaves it out.
//
// The environment variable QUORATE_BIN names a binary to test; without it Main builds
// one. KUBECTL names a kubectl (default: bin/kubectl of the repository, which
// `make kubectls` builds with those of other minors beside it). KEEP=1 keeps the
// directory of the run, with all logs.
//
// Packages of tests run at the same time, and share nothing: each has a directory, a
// shared cluster and a reaper of its own, and takes ports that are free.
//
// No process outlives a run, however it ends: a reaper in a session of its own
// waits for the end of the test process and then kills every process whose
// command line names the directory of the run.
package cluster
