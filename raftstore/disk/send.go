package disk

import (
	"errors"
	"fmt"
	"io"

	"github.com/quorate/quorate/proto"
	"go.etcd.io/bbolt"
)

// stream is a snapshot stream from one read transaction of a file: whatever
// happens to the file meanwhile, it is one state. It is for one goroutine at a
// time.
type stream struct {
	db      *DB // nil for a file that is not the DB's
	file    *file
	tx      *bbolt.Tx
	records *records
	state   *proto.StateRecord
	totals  totals // that the file claims
	size    int64
	closed  func() // if not nil, called by Close

	frames frames
	found  totals
	ended  bool
	buf    []byte
	at     int // in buf
	err    error
}

// streamChunk is how much is framed at once.
const streamChunk = 128 << 10

// openStream begins a stream of the durable state.
func (db *DB) openStream() (*stream, error) { return db.openBackup(nil) }

// openBackup begins a stream that says what it is, unless about is nil.
func (db *DB) openBackup(about *proto.Backup) (*stream, error) {
	f, err := db.acquire()
	if err != nil {
		return nil, err
	}
	s, err := newStream(f, about)
	if err != nil {
		return nil, errors.Join(err, f.release())
	}
	s.db = db
	return s, nil
}

// newStream takes over a reference to f, unless it fails.
func newStream(f *file, about *proto.Backup) (*stream, error) {
	s := &stream{file: f}
	err := guard(func() (err error) {
		if s.tx, err = f.bolt.Begin(false); err != nil {
			return err
		}
		s.state, s.totals, err = describe(s.tx)
		return err
	})
	var header, aside []byte
	if err == nil {
		header, err = proto.Encode(proto.KindStateRecord, s.state)
	}
	if err == nil && about != nil {
		aside, err = proto.Encode(proto.KindBackup, about)
	}
	if err != nil {
		if s.tx != nil {
			err = errors.Join(err, s.tx.Rollback())
		}
		return nil, err
	}
	s.size = streamSize(len(header), s.totals)
	s.buf = s.frames.preamble(make([]byte, 0, streamChunk+streamChunk/4))
	s.buf = s.frames.frame(s.buf, header, checksum(header))
	if aside != nil {
		s.size += int64(frameHead + len(aside))
		s.buf = s.frames.frame(s.buf, aside, checksum(aside))
	}
	return s, nil
}

// fill frames the next records. Every record is verified on its way out: a
// follower must never get what this node's disk has garbled.
func (s *stream) fill() error {
	s.buf, s.at = s.buf[:0], 0
	if s.ended {
		return io.EOF
	}
	err := guard(func() error {
		if s.records == nil {
			s.records = readRecords(s.tx)
		}
		for {
			_, payload, sum, err := s.records.next()
			if err != nil {
				return err
			}
			if payload == nil {
				break
			}
			s.buf = s.frames.frame(s.buf, payload, sum)
			s.frames.count++
			s.found.add(len(payload), sum)
			if len(s.buf) >= streamChunk {
				return nil
			}
		}
		if s.found != s.totals {
			return fmt.Errorf("found %+v, want %+v: %w", s.found, s.totals, ErrDamaged)
		}
		s.ended = true
		s.buf = s.frames.trailer(s.buf)
		return nil
	})
	if err != nil {
		s.buf = s.buf[:0]
		err = fmt.Errorf("read %s: %w", stateFile, err)
		if s.db != nil {
			err = s.db.fail(err)
		}
	}
	return err
}

// Read implements io.Reader.
func (s *stream) Read(p []byte) (int, error) {
	for s.at == len(s.buf) {
		if s.err == nil {
			s.err = s.fill()
		}
		if s.err != nil {
			return 0, s.err
		}
	}
	n := copy(p, s.buf[s.at:])
	s.at += n
	return n, nil
}

// WriteTo implements io.WriterTo.
func (s *stream) WriteTo(w io.Writer) (int64, error) {
	var written int64
	for {
		if s.at < len(s.buf) {
			n, err := w.Write(s.buf[s.at:])
			s.at += n
			written += int64(n)
			if err != nil {
				return written, err
			}
			continue
		}
		if s.err == nil {
			s.err = s.fill()
		}
		if errors.Is(s.err, io.EOF) {
			return written, nil
		}
		if s.err != nil {
			return written, s.err
		}
	}
}

// Close ends the read transaction. A second call returns nil.
func (s *stream) Close() error {
	if s.file == nil {
		return nil
	}
	f := s.file
	s.file = nil
	s.buf, s.at = nil, 0
	if s.err == nil {
		s.err = ErrClosed
	}
	if s.closed != nil {
		s.closed()
	}
	return errors.Join(s.tx.Rollback(), f.release())
}

// WriteBackup writes a snapshot stream of the durable state, history included, and
// returns whose state it is. The stream says what it is, unless about is nil. Call Sync
// before it if everything recorded is to be in it.
func (db *DB) WriteBackup(w io.Writer, about *proto.Backup) (*proto.StateRecord, error) {
	s, err := db.openBackup(about)
	if err != nil {
		return nil, fmt.Errorf("write snapshot: %w", err)
	}
	_, err = s.WriteTo(w)
	if err := errors.Join(err, s.Close()); err != nil {
		return nil, fmt.Errorf("write snapshot: %w", err)
	}
	return s.state, nil
}
