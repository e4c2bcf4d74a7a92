// Package check judges a recorded history.History: did the cluster keep its
// promises, whatever was done to it?
//
// All runs every check and returns a Verdict. The checks share an index of the
// log (facts), which is compared with every acknowledgement first (log.go); after
// that the log says what happened, also to writes whose outcome nobody knew.
//
// There are two independent judges of linearizability. order.go walks once
// through all that clients saw, in the order of time, and keeps the newest
// revision that anybody had seen: it is exact because the log fixes the order of
// the writes, and it costs O(n log n). linear.go gives the same operations to
// porcupine, which knows a model of the store and nothing of the log: per key, and
// as a whole while the history is small.
//
// Writes that were decided by rules are judged apart (rules.go): they are in tables of
// their own.
//
// Times are closed intervals: operations that touch in one instant are
// concurrent, except those of one client, which stand in their order.
package check
