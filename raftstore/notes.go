package raftstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"

	"github.com/cespare/xxhash/v2"
	pb "google.golang.org/protobuf/proto"

	"github.com/quorate/quorate/internal/loglimit"
	"github.com/quorate/quorate/proto"
)

const noteFormat = 1

// notes are small files beside the log, which a node can do without. They are written whole and renamed, and
// not synced: after a loss of power there may be an older one, or none.
type notes struct {
	dir      string
	logger   *slog.Logger
	often    *loglimit.Limiter // limits what is logged at every try
	cluster  func() string     // "" before there is one
	readOnly func()            // told that the file system takes no writes
}

// note is the content of one.
type note interface {
	proto.Message
	GetFormat() uint32
	GetClusterId() string
}

var errNote = errors.New("it is damaged, or of another release")

// encodeNote returns the content of a file: a checksum and the message, which has noteFormat.
func encodeNote(content note) ([]byte, error) {
	body, err := pb.Marshal(content)
	if err != nil {
		return nil, err
	}
	return append(binary.BigEndian.AppendUint64(nil, xxhash.Sum64(body)), body...), nil
}

// decodeNote reads what encodeNote returns.
func decodeNote(b []byte, content note) error {
	if len(b) < 8 || binary.BigEndian.Uint64(b) != xxhash.Sum64(b[8:]) {
		return errNote
	}
	if err := pb.Unmarshal(b[8:], content); err != nil || content.GetFormat() != noteFormat {
		return errNote
	}
	return nil
}

// read reads a file of the store's directory. What is not there, damaged or of another cluster is empty.
func (n *notes) read(name string, content note) {
	b, err := os.ReadFile(filepath.Join(n.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		err = decodeNote(b, content)
	}
	if err != nil {
		n.logger.Warn("a file is left out, and will be written again", "file", name, "err", err)
	}
	if err != nil || content.GetClusterId() != n.cluster() {
		pb.Reset(content)
	}
}

// write writes a file, and reports whether it could. what is what the file has, for the log.
func (n *notes) write(name, what string, content note) bool {
	err := n.try(name, content)
	if err == nil {
		n.often.Over(n.logger, name, what+" is written again")
		return true
	}
	if errors.Is(err, syscall.EROFS) {
		n.readOnly() // a log that has nothing to write does not notice
	}
	n.often.WarnAbout(n.logger, name, "cannot write "+what, "err", err)
	return false
}

func (n *notes) try(name string, content note) error {
	b, err := encodeNote(content)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	path := filepath.Join(n.dir, name)
	if err := os.WriteFile(path+".tmp", b, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}
