package regress

import (
	"bytes"
	"fmt"
	"io"
	"sync"

	"github.com/hashicorp/raft"
)

// memorySnapshots keeps the newest snapshot in memory. Raft's own
// InmemSnapshotStore shows a snapshot while it is being written, which no store on
// disk does and which the race detector sees.
type memorySnapshots struct {
	mu     sync.Mutex
	newest *memorySnapshot // nil: none
}

// memorySnapshot is written by one goroutine until Close, and read only after.
type memorySnapshot struct {
	store    *memorySnapshots
	meta     raft.SnapshotMeta
	contents bytes.Buffer
}

func (m *memorySnapshots) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration,
	configurationIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	return &memorySnapshot{store: m, meta: raft.SnapshotMeta{
		Version: version, ID: fmt.Sprintf("%d-%d", term, index), Index: index, Term: term,
		Configuration: configuration, ConfigurationIndex: configurationIndex,
	}}, nil
}

func (m *memorySnapshots) List() ([]*raft.SnapshotMeta, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.newest == nil {
		return nil, nil
	}
	return []*raft.SnapshotMeta{&m.newest.meta}, nil
}

func (m *memorySnapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.newest == nil || m.newest.meta.ID != id {
		return nil, nil, fmt.Errorf("no snapshot %s", id)
	}
	return &m.newest.meta, io.NopCloser(bytes.NewReader(m.newest.contents.Bytes())), nil
}

func (s *memorySnapshot) Write(p []byte) (int, error) { return s.contents.Write(p) }
func (s *memorySnapshot) ID() string                  { return s.meta.ID }
func (s *memorySnapshot) Cancel() error               { return nil }

func (s *memorySnapshot) Close() error {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.meta.Size = int64(s.contents.Len())
	s.store.newest = s
	return nil
}
