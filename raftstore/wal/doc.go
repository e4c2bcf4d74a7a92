// Package wal is Raft's log on append-only segments: one write and one sync for each
// batch of entries, and the removal of a file where the log's beginning is cut.
//
// A log is a directory of segments, named by a number that only grows:
//
//	0000000000000001.log   closed: another one follows it
//	0000000000000002.log   the tail: frames are appended to it
//	0000000000000003.log   prepared: nothing but zeros, for when the tail is full
//	*.spare                the reserve: becomes a segment when the disk has no room for another file
//	*.new                  unfinished; removed when the log is opened
//
// A segment is filled with zeros, and synced, before it gets its name. So an append
// changes no metadata of the file system and its sync is one flush of the disk; and what
// a power loss has kept from the disk is zeros, by which a write that was torn is told
// from one that was damaged later.
//
// Integers are little-endian, sums are CRC32C. A segment begins with a header, which
// reaches the disk together with the first frames:
//
//	| "QUOWAL" 0 | format 1 | number 8 | follows 8 | end 8 | size 4 | sum 4 |
//
// follows is the index of the newest entry at the time, 0 if there was none, end is where
// the segment before it ends, and size is how long this file is at least. Behind the header of
// format 2 stand frames, each at a multiple of eight bytes:
//
//	| size 4 | kind 1 | type 1 | mark 2 | extensions 4 | batch 4 | index 8 | term 8 | appended 8 | mask 4 | sum 4 |
//	| extensions ... | data ... | zeros up to a multiple of 8 | sum 4 | mark 4 |
//
// size counts extensions and data; type, term, appended (nanoseconds since 1970, 0 for
// none) and what follows are those of a raft.Log. batch is where the frames begin that
// were written by the same write. The head's sum covers the segment's number, the frame's place
// in it, and the head; the other one covers the same, and what stands between the two. A
// mask that is not zero has been applied (XOR) to each four bytes of what stands between the sums: it
// is there if a sector inside the frame would have few bits that are set otherwise, or none. The
// marks see to the same where a frame begins in a sector and where it ends. The kinds:
//
//	1  an entry: index is one more than that of the newest, unless there was none, or the
//	   frame is the first of its segment and above it
//	2  truncate: entries above index are no more
//	3  cut: entries below index are no more
//
// Segments of format 1 are read (formatone.go) and not appended to: such a log goes on in another one. A
// release that knows format 1 only calls those of format 2 damaged; package disk sees to it that such
// a release does not get there.
//
// Anyone who opens a log should know the number of the newest segment that was made
// (Options.Made): a log whose last files are gone looks like a shorter one.
//
// # What a crash leaves
//
// A write is synced before the next one begins, so only the last batch can be torn. When
// a log is opened, each frame of each segment is read. Where a frame does not hold, and
//
//   - what follows is zeros: the log ends there;
//   - the file is shorter than it was made: ErrDamaged;
//   - a later batch follows, or another segment: ErrDamaged, for what came before was synced;
//   - none of its sectors is missing (all zeros from where the frame begins in it): ErrDamaged. How
//     many sectors it has its head says, whose sum must hold unless a sector of the head is missing;
//   - otherwise the last batch was torn. Nobody was told that it is stored. The log ends
//     there, and goes on in another segment.
//
// So a bit that flips, in whatever was synced, is noticed. What looks like a tear is the loss of a whole
// sector of the newest batch.
//
// What is left of a torn batch stays where it is, and nothing is written over it: the
// recovery itself may be torn. A segment that has nothing else is replaced.
//
// The newest batch is written and synced once more before anybody is told of it: the
// process before may have ended between the write and the sync, or because the sync
// failed, and what the page cache has then is not on the disk.
//
// Raft allows any part of an unacknowledged batch to be there, as long as it is its
// beginning.
//
// # A full disk
//
// What is written to a segment has its room: the file is as long as it will be, and made of zeros that are on the
// disk, before the first frame. So only making a file, or making one longer for an entry that is longer than a
// segment, finds no room. Then a spare segment takes the place of the new one, by its name alone, which takes
// neither bytes nor an inode. A segment that is cut off the log's beginning becomes a spare one if one is missing, and is not removed:
// another program would take the room. So a log that is cut goes on for as long as the disk is full.
//
// Without a spare one the change returns ErrNoRoom, and the log is as it was. Of a batch that has found room for a
// part only, that part is taken back, by a frame for which every segment leaves the room.
//
// On a file system that copies what it overwrites, such as btrfs or zfs, none of this is certain; a
// write that fails half way is fatal there.
package wal
