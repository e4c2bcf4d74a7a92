// Package rules is about writes and the rules that decide on them, while the rules change:
// on real nodes that lag, no write that began after the acknowledgement of a change is admitted
// by the rule before it.
package rules
