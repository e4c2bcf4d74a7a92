// Package slowsync makes the syncs of processes take longer than the disk does: of programs
// as they are, for every user, without another tool.
//
// A Disk is a thread with a seccomp filter, which the processes that are started on it inherit.
// At each sync (fsync, fdatasync, msync, sync_file_range, syncfs) the kernel asks this process
// whether the call may go on (SECCOMP_RET_USER_NOTIF): it may after the delay, and then the call
// is done as it was made. All other calls pass without a question. Without a delay a sync costs
// one question more, tens of microseconds.
//
// Calls that wait are delayed beside each other, not one after the other. What only writes and
// never syncs is not slow.
//
// It needs Linux 5.5, on amd64 or arm64, and no privilege. A process that survives its Disk
// cannot sync any more: the call fails.
package slowsync
