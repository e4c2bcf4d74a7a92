// Package playground runs clusters of real node processes on loopback: those of `quorate dev`, and
// the temporary ones of `quorate bench`.
//
// A playground is a directory with a cluster.json, which says what runs; a lock in it serializes
// the commands that change it. Nodes are this program, started as `quorate node --config FILE`, and
// outlive the command that has started them. What runs is read from /proc each time: a pid that was
// noted may be another program's by now.
//
// Of a temporary one, nodes can be cut off from each other and have their syncs delayed, by the means of
// packages relay and slowsync.
//
// Types to know: [Options], what a playground is asked for; [Node], one of its nodes; [Status] and
// [Target], what programs want to know of one that runs. The functions are the subcommands: they
// print what people read, since most of their errors say which command is next.
package playground
