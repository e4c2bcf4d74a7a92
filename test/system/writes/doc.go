// Package writes proves what becomes of objects that many change at once: server-side
// apply, dry runs, deletion with its preconditions, finalizers and dependents, and what
// ends by time; also when the leader is killed meanwhile.
package writes
