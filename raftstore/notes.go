package raftstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/cespare/xxhash/v2"
	pb "google.golang.org/protobuf/proto"

	"github.com/quorate/quorate/proto"
)

// Notes are small files beside the log, which a node can do without. They are written whole and renamed, and
// not synced: after a loss of power there may be an older one, or none.

const noteFormat = 1

// note is the content of one.
type note interface {
	proto.Message
	GetFormat() uint32
	GetClusterId() string
}

var errNote = errors.New("it is damaged, or of another release")

// encodeNote returns the content of a file: a checksum and the message, which has noteFormat.
func encodeNote(n note) ([]byte, error) {
	body, err := pb.Marshal(n)
	if err != nil {
		return nil, err
	}
	return append(binary.BigEndian.AppendUint64(nil, xxhash.Sum64(body)), body...), nil
}

// decodeNote reads what encodeNote returns.
func decodeNote(b []byte, n note) error {
	if len(b) < 8 || binary.BigEndian.Uint64(b) != xxhash.Sum64(b[8:]) {
		return errNote
	}
	if err := pb.Unmarshal(b[8:], n); err != nil || n.GetFormat() != noteFormat {
		return errNote
	}
	return nil
}

// readNote reads a file of the store's directory. What is not there, damaged or of another cluster is empty.
func (s *Store) readNote(name string, n note) {
	b, err := os.ReadFile(filepath.Join(s.cfg.Dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		err = decodeNote(b, n)
	}
	if err != nil {
		s.cfg.Logger.Warn("a file is left out, and will be written again", "file", name, "err", err)
	}
	if err != nil || n.GetClusterId() != string(s.Cluster()) {
		pb.Reset(n)
	}
}

// writeNote writes a file, and reports whether it could. what is what the file has, for the log.
func (s *Store) writeNote(name, what string, n note) bool {
	err := s.tryNote(name, n)
	if err == nil {
		s.often.Over(s.cfg.Logger, name, what+" is written again")
		return true
	}
	if errors.Is(err, syscall.EROFS) {
		s.disks.readOnly.Store(true) // a log that has nothing to write does not notice
	}
	s.often.WarnAbout(s.cfg.Logger, name, "cannot write "+what, "err", err)
	return false
}

func (s *Store) tryNote(name string, n note) error {
	b, err := encodeNote(n)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	path := filepath.Join(s.cfg.Dir, name)
	if err := os.WriteFile(path+".tmp", b, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}
