// Package host makes machines out of one: a Host has a network and a mount
// namespace of its own, held by one thread of the test process, and a Switch
// carries the packets between them and loses, delays, doubles or cuts them.
//
// Nothing of it has a name that could be left behind. Namespaces, devices and
// mounts go with the thread and with the processes that were started on it, and
// those get SIGKILL when the thread ends: with the test process, however it ends.
//
// It needs Linux and root. Plain hosts, without namespaces, need neither.
package host
