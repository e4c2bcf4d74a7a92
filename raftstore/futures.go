package raftstore

import (
	"reflect"

	"github.com/hashicorp/raft"
)

// endsWith has a future of Raft answer raft.ErrRaftShutdown once end is closed. Of its own accord Raft
// answers none that it has not come to when it shuts down, and who waits for one waits for ever:
// what is in the buffer of its apply channel, and committed batches that wait for the state machine. Its
// futures have a channel for that, which Raft sets in some and not in those of entries, and which their
// interface does not show. TestFuturesEnd fails where a release of Raft has it no more.
//
// Only who waits for the future reads the channel, so it may be set until then.
func endsWith(future raft.ApplyFuture, end chan struct{}) {
	v := reflect.ValueOf(future)
	if v.Kind() != reflect.Pointer {
		return // an error, which is there already
	}
	if f := v.Elem().FieldByName("ShutdownCh"); f.IsValid() && f.CanSet() && f.Type() == reflect.TypeOf(end) {
		f.Set(reflect.ValueOf(end))
	}
}
