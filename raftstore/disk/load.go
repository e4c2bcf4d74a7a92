package disk

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	"go.etcd.io/bbolt"
)

// Load fills a new state from the file. Errors: ErrDamaged, mvcc.ErrOrder.
func (db *DB) Load() (*mvcc.State, error) {
	f, err := db.acquire()
	if err != nil {
		return nil, fmt.Errorf("load state: %w", err)
	}
	state, err := load(f)
	if err := errors.Join(err, f.release()); err != nil {
		return nil, fmt.Errorf("load state: %w", err)
	}
	return state, nil
}

// load reads the whole file. Checking and parsing records is spread over the
// cores; linking them is done here, in order.
func load(f *file) (*mvcc.State, error) {
	state := mvcc.New()
	err := guard(func() error {
		return f.bolt.View(func(tx *bbolt.Tx) error {
			rec, want, err := describe(tx)
			if err != nil {
				return err
			}
			if err := state.LoadState(rec); err != nil {
				return err
			}
			l := loader{state: state, chunks: make(chan *chunk)}
			workers := runtime.GOMAXPROCS(0)
			defer l.end()
			for range workers {
				l.workers.Add(1)
				go l.work()
			}
			if err := l.read(readRecords(tx), 2*workers); err != nil {
				return err
			}
			if l.totals != want {
				return fmt.Errorf("found %+v, want %+v: %w", l.totals, want, ErrDamaged)
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	state.Publish()
	return state, nil
}

// chunkLen records are handed to a worker at once, or fewer of chunkBytes.
const (
	chunkLen   = 256
	chunkBytes = 1 << 20
)

// chunk is used again: a start that allocated for each record what it needs only until the
// record is linked would spend a fourth of its time on that.
type chunk struct {
	revisions []proto.Revision
	parts     [][]byte // fragments of all records, of the read transaction
	ends      []int    // where those of each record end
	bytes     int
	joined    []byte // which records refer to
	records   [chunkLen]proto.VersionRecord
	parser    versionParser
	totals    totals
	err       error
	done      chan struct{}
}

type loader struct {
	state   *mvcc.State
	chunks  chan *chunk
	workers sync.WaitGroup
	queue   []*chunk // handed out, oldest first
	idle    []*chunk
	totals  totals
}

// end waits for the workers: they read the transaction's pages.
func (l *loader) end() {
	close(l.chunks)
	l.workers.Wait()
}

func (l *loader) work() {
	defer l.workers.Done()
	for c := range l.chunks {
		c.err = guard(c.parse)
		close(c.done)
	}
}

func (c *chunk) parse() error {
	begin := 0
	for i, r := range c.revisions {
		parts := c.parts[begin:c.ends[i]]
		begin = c.ends[i]
		value := parts[0]
		if len(parts) > 1 {
			at := len(c.joined)
			c.joined = join(c.joined, parts)
			value = c.joined[at:]
		}
		payload, sum, err := open(value)
		if err == nil {
			err = c.parser.parse(payload, &c.records[i])
		}
		if err == nil && uint64(r) != c.records[i].Revision {
			err = fmt.Errorf("holds revision %d: %w", c.records[i].Revision, ErrDamaged)
		}
		if err != nil {
			return fmt.Errorf("record %x: %w", uint64(r), err)
		}
		c.totals.add(len(payload), sum)
	}
	return nil
}

// read hands out chunks, at most ahead of them at a time.
func (l *loader) read(from *records, ahead int) error {
	c := l.chunk()
	for {
		r, parts, err := from.fragments()
		if err != nil {
			return err
		}
		if parts == nil {
			break
		}
		c.add(r, parts)
		if len(c.revisions) < chunkLen && c.bytes < chunkBytes {
			continue
		}
		l.hand(c)
		if len(l.queue) >= ahead {
			if err := l.link(); err != nil {
				return err
			}
		}
		c = l.chunk()
	}
	if len(c.revisions) > 0 {
		l.hand(c)
	}
	for len(l.queue) > 0 {
		if err := l.link(); err != nil {
			return err
		}
	}
	return nil
}

func (c *chunk) add(r proto.Revision, parts [][]byte) {
	c.revisions = append(c.revisions, r)
	c.parts = append(c.parts, parts...)
	c.ends = append(c.ends, len(c.parts))
	for _, p := range parts {
		c.bytes += len(p)
	}
}

// chunk returns an empty one.
func (l *loader) chunk() *chunk {
	n := len(l.idle)
	if n == 0 {
		return &chunk{revisions: make([]proto.Revision, 0, chunkLen), parts: make([][]byte, 0, chunkLen), ends: make([]int, 0, chunkLen)}
	}
	c := l.idle[n-1]
	l.idle = l.idle[:n-1]
	c.revisions, c.parts, c.ends, c.bytes, c.joined = c.revisions[:0], c.parts[:0], c.ends[:0], 0, c.joined[:0]
	c.totals, c.err = totals{}, nil
	return c
}

func (l *loader) hand(c *chunk) {
	c.done = make(chan struct{})
	l.queue = append(l.queue, c)
	l.chunks <- c
}

// link takes the oldest chunk into the state.
func (l *loader) link() error {
	c := l.queue[0]
	l.queue = l.queue[1:]
	<-c.done
	if c.err != nil {
		return c.err
	}
	for i := range c.revisions {
		if err := l.state.LoadVersion(&c.records[i]); err != nil {
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
	}
	l.totals.versions += c.totals.versions
	l.totals.bytes += c.totals.bytes
	l.totals.sum += c.totals.sum
	l.idle = append(l.idle, c)
	return nil
}
