package raftstore

import "context"

// verifyLeader asks Raft whether this node leads: the bug that is planted as
// planted.VerifyLeader. Raft may never answer.
func (s *Store) verifyLeader(ctx context.Context) error {
	answer := make(chan error, 1)
	go func() { answer <- s.awaitFuture(s.raft.VerifyLeader()) }()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
