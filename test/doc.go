// Package test is the folder of the tests of whole systems.
//
//	harness  what tests are made with: clusters of real processes (cluster), namespaces of the
//	         kernel (isolated), stories as text (story), planted bugs, which tests run where (tiers)
//	system   real nodes on loopback, driven by an unmodified kubectl, by client-go and by raw
//	         connections, a package for each subject
//	judges   what judges recorded runs (history, wire, check, report), and what holds answers
//	         against Kubernetes and etcd
//	sim      clusters in virtual time under seeded faults
//	chaos    real nodes under real faults
//	modules  modules of their own, for what has many dependencies
//
// No test of a system imports anything of the product: everything goes through ports, the
// command line and cluster.json, as it does for users. CONTRIBUTING.md lists the packages.
package test
