// Package compare tells whether figures of two or more sets of reports differ: those of
// `quorate bench load`, `modes` and `faults`.
//
// A figure has one value per run: a run of load, a report of modes, a repeat of faults. Two
// sets of values are compared without an assumption about their distribution: the
// difference is the median of all differences between a value of one and a value of the
// other (Hodges and Lehmann), and its interval are the differences at the ranks that the
// test of Mann and Whitney gives, exact for every number of runs. With fewer than four runs
// of each no interval of 95 % exists, and nothing is told.
package compare
