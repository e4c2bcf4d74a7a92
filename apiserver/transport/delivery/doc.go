// Package delivery measures how long events take to those who watch, and notices when they
// are not delivered.
//
// The types to know:
//
//   - Delivery has the histograms of a node, by resource, and what its canary has found. It
//     is a prometheus.Collector.
//   - Watch is the stopwatch of one watch: the goroutine that serves the watch sets it, the
//     canary looks at it.
//
// Nothing here is done per event that can be done per batch, and nothing is locked or
// allocated on an event's way. What is measured, and why so, is in ../../DESIGN.md, "How long
// events take".
package delivery
