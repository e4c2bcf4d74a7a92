// Package conformance shows what the pages about the Kubernetes API promise, as
// docs/conformance.md lists it. The promises are stories in testdata, in the language of
// test/harness/story, that TestConformance tells to a cluster. Kubernetes' own conformance
// tests of admission are told as well, a story for each.
//
// Variables of every story: ${name} is its name and ${ns} its namespace; ${webhook} is the URL
// below which the webhooks of webhooks_test.go answer, ${ca} the caBundle for it, and ${here}
// the fields of a webhook that are the same for all: no side effects, both versions of
// reviews, and only this namespace.
package conformance
