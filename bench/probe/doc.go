// Package probe has the objects that those who measure write and read, and knows
// whether an answer has what it must have.
//
// A probe is a ConfigMap with the number of its newest write in it. The [Ledger]
// holds the writes that were acknowledged, and when; an answer is compared with
// what had been acknowledged when it was asked for. [Answer.Breaks] is the judge
// of one answer, by the [Mode] in which it was asked for.
package probe
