// Package conformance shows what the pages about the Kubernetes API promise, as
// docs/conformance.md lists it. The promises are stories in testdata, in the language of
// test/story, that TestConformance tells to a cluster.
package conformance
