// Package report draws a judged history as one HTML page that needs nothing else:
// no network, no other file. Write draws a run, WriteIndex a campaign of many.
//
// The page shows the verdict and what is wrong first, then one time line with the
// faults of each node, who led, what each client did and what each watch saw, and
// the latencies below it on the same axis. Histories of any size can be drawn: from
// MaxOps operations on only some are, and all that a violation names.
package report
