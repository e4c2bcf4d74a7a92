package peer

import "github.com/hashicorp/raft"

// beside handles a heartbeat on the stream's goroutine, as raft.NetworkTransport
// does: the bug that is planted as planted.FastPath.
func (t *Transport) beside(rpc raft.RPC) bool {
	handle := t.heartbeat.Load()
	req, ok := rpc.Command.(*raft.AppendEntriesRequest)
	if !ok || handle == nil || len(req.Entries) > 0 || req.PrevLogEntry != 0 || req.LeaderCommitIndex != 0 {
		return false
	}
	(*handle)(rpc)
	return true
}
