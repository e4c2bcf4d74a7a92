// Package regress shows, with small programs, where hashicorp/raft does not do
// what its API suggests, and that our remedies work. It holds only tests.
//
// They come in two sorts.
//
//   - A pitfall test passes while the pinned library still shows the pitfall.
//     When it fails, upstream has changed: read the failure message, then drop
//     the test or turn it around.
//   - A cure test (its comment says so) passes while our remedy works. When it
//     fails, Quorate is not safe with this version of the library.
//
// Cures that are code of ours run that code: peer.Transport here, the read path
// in package raftstore's own tests.
//
//	TestHeartbeatFastPathDiverges   a heartbeat, then a write on a deposed leader: state machines differ for ever (hashicorp/raft#695)
//	TestNoFastPathStaysEqual        cure: peer.Transport ignores SetHeartbeatHandler; the same write is refused
//	TestFailedPipelineIsContact     a lost answer in a pipeline counts as contact; cure: peer.Transport hands on answers only
//	TestVerifyLeaderControl         without any voter VerifyLeader fails, as it should
//	TestVerifyLeaderCountsNonvoter  a non-voter's answer counts as a voter's; cure: the term round
//	TestVerifyLeaderCountsOldAnswer an answer sent before the call counts: stale read; cure: the term round
//	TestSnapshotInstallLoop         a follower with dead entries installs the same snapshot for ever (hashicorp/raft#697); cure: restart it without its log
//	TestDeadEntriesBelowSnapshot    entries that were never committed survive below an installed snapshot and are replicated later; cure: raftstore drops them
//	TestLateInstallForgetsMembers   a snapshot that comes late takes a follower back to the members of that time; cure: raftstore refuses it
//	TestTransferFlagStuck           after an interrupted transfer a re-elected leader refuses every write (hashicorp/raft#696)
//	TestStaleReplication            entries of a new term are sent under the old one, and two nodes can lead in one term; cure: peer.Transport refuses such messages
//	TestCommitBeyondMessage         a message lets its receiver commit entries beyond its own last one; cure: peer.Transport bounds its commit index
//	TestVoteIsGivenToAnAddress      a vote is repeated for another node at the candidate's address; cure: peer.Transport names candidates by their ids
//	TestHungDiskKeepsLeader         a leader whose disk hangs stays leader (hashicorp/raft#503)
//	TestVirtualTimeFailovers        200 failovers in virtual time, on our transport too
//	TestStartingConfiguration       cure: the pinned versions work together, over a restart
//
// Most tests run in a testing/synctest bubble: time is virtual and moves only
// when every goroutine waits, so minutes of elections take milliseconds, and a
// loaded machine cannot change the outcome.
package regress
