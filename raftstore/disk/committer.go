package disk

import "github.com/hashicorp/raft"

// committer makes the changes of a log through a CommitFunc.
type committer struct {
	logBackend
	commit CommitFunc
}

func (c committer) StoreLog(log *raft.Log) error { return c.StoreLogs([]*raft.Log{log}) }

func (c committer) StoreLogs(logs []*raft.Log) error {
	return c.commit(logFile, func() error { return c.logBackend.StoreLogs(logs) })
}

func (c committer) DeleteRange(min, max uint64) error {
	return c.commit(logFile, func() error { return c.logBackend.DeleteRange(min, max) })
}

func (c committer) DeleteFront(max uint64, n, size int) (more bool, err error) {
	err = c.commit(logFile, func() (err error) {
		more, err = c.logBackend.DeleteFront(max, n, size)
		return err
	})
	return more, err
}

func (c committer) SetAll(pairs ...keyValue) error {
	return c.commit(logFile, func() error { return c.logBackend.SetAll(pairs...) })
}

func (c committer) Set(key, value []byte) error {
	return c.commit(logFile, func() error { return c.logBackend.Set(key, value) })
}

func (c committer) SetUint64(key []byte, value uint64) error {
	return c.commit(logFile, func() error { return c.logBackend.SetUint64(key, value) })
}
