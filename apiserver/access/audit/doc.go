// Package audit writes down who asked for what: events of audit.k8s.io/v1, one line
// of JSON each, as the policy of --audit-policy-file asks for. Which rule applies to
// a request is decided by upstream's evaluator.
//
// Nothing here may hold up the server for long: events wait in a queue that is
// bounded in bytes for the one goroutine that writes. A request waits a moment for
// room in it (maxWait); what then still finds none is dropped and counted.
//
// The types to know: Log, which is opened once, and Event, which follows one
// request. All methods of a nil Log and of a nil Event do nothing.
package audit
