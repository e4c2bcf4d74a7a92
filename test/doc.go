// Package test is the folder of the whole-system tests: clusters of real node
// processes on loopback, driven by an unmodified kubectl, by client-go and by raw
// connections, while nodes are killed, cut off, added and restored. It has a package
// for each subject, over one harness, package cluster; CONTRIBUTING.md lists them.
// Nothing of the product is imported by the harness: everything goes through ports,
// the command line and cluster.json, as it does for users.
//
// Beside them stand what judges clusters under faults (sim, chaos, check, history,
// report, judge, wire), the language of conformance stories (story), and modules of
// their own for what has many dependencies (clients, ecosystem, storage).
package test
