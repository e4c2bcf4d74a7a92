package disk

import (
	"encoding/binary"
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
			if err := l.read(tx.Bucket(versionsBucket), 2*workers); err != nil {
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

// chunkLen records are handed to a worker at once.
const chunkLen = 256

// chunk is used again: a start that allocated for each record what it needs only until the
// record is linked would spend a fourth of its time on that.
type chunk struct {
	keys, values [][]byte // of the read transaction
	records      [chunkLen]proto.VersionRecord
	parser       versionParser
	totals       totals
	err          error
	done         chan struct{}
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
	for i, key := range c.keys {
		payload, sum, err := open(c.values[i])
		if err == nil {
			err = c.parser.parse(payload, &c.records[i])
		}
		if err == nil && (len(key) != 8 || binary.BigEndian.Uint64(key) != c.records[i].Revision) {
			err = fmt.Errorf("holds revision %d: %w", c.records[i].Revision, ErrDamaged)
		}
		if err != nil {
			return fmt.Errorf("record %x: %w", key, err)
		}
		c.totals.add(len(payload), sum)
	}
	return nil
}

// read hands out chunks, at most ahead of them at a time.
func (l *loader) read(versions *bbolt.Bucket, ahead int) error {
	c := l.chunk()
	cursor := versions.Cursor()
	for key, value := cursor.First(); key != nil; key, value = cursor.Next() {
		c.keys, c.values = append(c.keys, key), append(c.values, value)
		if len(c.keys) < chunkLen {
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
	if len(c.keys) > 0 {
		l.hand(c)
	}
	for len(l.queue) > 0 {
		if err := l.link(); err != nil {
			return err
		}
	}
	return nil
}

// chunk returns an empty one.
func (l *loader) chunk() *chunk {
	n := len(l.idle)
	if n == 0 {
		return &chunk{keys: make([][]byte, 0, chunkLen), values: make([][]byte, 0, chunkLen)}
	}
	c := l.idle[n-1]
	l.idle = l.idle[:n-1]
	c.keys, c.values, c.totals, c.err = c.keys[:0], c.values[:0], totals{}, nil
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
	for i := range c.keys {
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
