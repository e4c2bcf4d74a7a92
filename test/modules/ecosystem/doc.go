// Package ecosystem holds tests with what people install clusters with, against
// three nodes as real processes: Helm 4 and 3 (TestHelm), kubectl's apply sets and
// pruning (TestApplySets, TestPrune), Flux's resource manager (TestFlux), the
// definitions of projects that we did not write (TestDefinitions), and their webhooks:
// real ones that fail in every way (TestCertManager, TestGatekeeper), and the tests that
// controller-runtime and projects that build on it have of their own (TestWebhookSuites).
//
// It is a module of its own because of Flux's dependencies. The harness comes from
// package test/harness/cluster of the main module, and nothing else does. `make helms` builds
// Helm into the repository's bin; the environment variables HELM and HELM3 name
// others; ECOSYSTEM=full runs what takes longer too. Definitions, charts and other
// projects' tests come from their Go modules, by the versions and hashes in
// testdata/modules.txt; nothing of them is in this repository.
//
// docs/clients.md says what was run and what came of it.
package ecosystem
