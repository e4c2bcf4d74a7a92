// Package churn measures what a cluster's files and memory take over time, while objects of mixed sizes are created, updated
// and deleted, and for a while after the last write.
//
// The types to know:
//
//   - Options say how many objects live at a time, how many writes there are, and how large objects are.
//   - A writer is a client with objects of its own; plan says what it does next.
//   - Report is the JSON: a Sample every few seconds. WriteTable compares thirds of the run, WriteSVG draws it.
//
// Bytes of files are those that the file system has allocated, not their lengths.
package churn
