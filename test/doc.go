// Package test holds whole-system tests: clusters of real node processes on
// loopback, driven by an unmodified kubectl, by client-go and by raw
// connections, while nodes are killed, cut off, added and restored.
//
// Package cluster is the harness. Nothing of the product is imported: everything goes
// through ports, the command line and cluster.json, as it does for users.
//
// What reads must do stands in tables: testdata/matrix.txt decides every
// combination of their parameters, cutoff.txt the read modes without a quorum,
// tokens.txt and versions.txt what continue tokens and resourceVersions may look
// like. Their tests share one cluster (cluster.SharedReaders), of which a non-voter hears
// the leader through a Link that can be made long.
//
// What the API promises stands in stories, testdata/conformance, that TestConformance
// tells to a cluster; docs/conformance.md lists them. A session of kubectl's commands
// is testdata/kubectl.txt.
package test
