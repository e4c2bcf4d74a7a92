// Package status is the one place where errors become Kubernetes Status.
//
// The constructors (NotFound, Conflict, ...) make the errors that handlers
// return, with the words that clients match on. From and ForRequest turn any
// error into a Status: errors that carry one keep it, the sentinels of mvcc,
// raftstore and consistency are mapped, anything else is a 500.
//
// Details.Kind is the resource's plural everywhere but in validation errors,
// which name the kind.
package status
