package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// receiver takes a snapshot stream as it comes and makes two things of it at the same time: a
// state file, and the state in memory. Each record is verified and parsed once. It believes
// nothing of the stream.
//
// Who writes to it cuts the stream into batches of whole frames. Workers verify and parse them;
// one goroutine links them in the order of the stream, and another one writes them to the file.
// There is a fixed number of batches: who is ahead waits.
type receiver struct {
	dir    string
	digest xxhash.Digest
	read   int64 // bytes of the stream
	began  bool  // the preamble is behind
	header *proto.StateRecord
	count  uint64 // records, as the trailer says
	ended  bool   // the trailer is behind
	err    error  // of the stream, or of the first one who failed
	least  uint64 // applied index that the state must have

	now     *batch // that is being filled
	idle    chan *batch
	parse   chan *batch
	link    chan *batch
	store   chan *batch
	running sync.WaitGroup
	failed  atomic.Pointer[error] // of a goroutine

	// Of the goroutine that links; of the writer's when that has ended.
	state *mvcc.State // nil once a record did not fit: Replace says why
	last  uint64      // revision
	found uint64      // records

	pages *builder // of the goroutine that writes; of the writer's when that has ended
}

// batchBytes is what a batch has room for. A longer frame has one of its own.
const batchBytes = 256 << 10

// mostWorkers bounds the batches, each of which may have a frame of the longest: so it bounds what a
// node takes that receives.
const mostWorkers = 8

// batch is some frames of a stream.
type batch struct {
	buf      []byte
	have     int // bytes of the stream in buf
	cut      int // of these, in payloads or done with
	payloads [][]byte
	sums     []uint32
	records  []proto.VersionRecord // one for each payload that is a version
	versions int
	parser   versionParser
	err      error
	parsed   chan struct{}
}

func newReceiver(dir string) (*receiver, error) {
	if err := remove(dir, receivingFile); err != nil {
		return nil, err
	}
	workers := min(runtime.GOMAXPROCS(0), mostWorkers)
	n := 2*workers + 4
	r := &receiver{
		dir: dir, state: mvcc.New(),
		idle: make(chan *batch, n), parse: make(chan *batch, n), link: make(chan *batch, n), store: make(chan *batch, n),
	}
	var err error
	if r.pages, err = newBuilder(filepath.Join(dir, receivingFile)); err != nil {
		return nil, err
	}
	r.digest.Reset()
	for range n {
		r.idle <- &batch{parsed: make(chan struct{}, 1)}
	}
	r.now = <-r.idle
	for range workers {
		r.running.Go(func() {
			for b := range r.parse {
				b.err = b.read()
				b.parsed <- struct{}{}
			}
		})
	}
	r.running.Go(r.links)
	r.running.Go(r.stores)
	return r, nil
}

// Write takes a part of the stream.
func (r *receiver) Write(p []byte) (n int, err error) {
	for n < len(p) && r.err == nil {
		k := copy(r.room(), p[n:])
		n += k
		r.took(k)
	}
	return n, r.err
}

// ReadFrom takes what another one reads, to its end, without a copy.
func (r *receiver) ReadFrom(from io.Reader) (n int64, err error) {
	for r.err == nil {
		k, err := from.Read(r.room())
		n += int64(k)
		r.took(k)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return n, err
		}
	}
	return n, r.err
}

// room is where the next bytes of the stream go.
func (r *receiver) room() []byte {
	b := r.now
	if b.buf == nil {
		b.buf = make([]byte, batchBytes)
	}
	return b.buf[b.have:]
}

// took cuts what there is now into frames, n bytes more than before. A batch without room is
// handed on, and what is left of it begins the next one.
func (r *receiver) took(n int) {
	b := r.now
	b.have += n
	r.read += int64(n)
	if r.err = r.frames(b); r.err != nil {
		return
	}
	if err := r.failed.Load(); err != nil {
		r.err = *err
		return
	}
	if b.have < len(b.buf) {
		return
	}
	rest := b.buf[b.cut:b.have]
	if len(b.payloads) == 0 && b.cut == 0 { // one long frame: there is no more of it than its length says
		longer := make([]byte, min(2*len(b.buf), frameHead+maxRecord))
		copy(longer, rest)
		b.buf = longer
		return
	}
	next := <-r.idle
	switch {
	case len(rest) >= max(len(next.buf), batchBytes):
		next.buf = make([]byte, len(b.buf))
	case next.buf == nil:
		next.buf = make([]byte, batchBytes)
	}
	next.have = copy(next.buf, rest)
	r.hand(b)
	r.now = next
}

// hand gives a batch to those who parse, link and store it. They give it back.
func (r *receiver) hand(b *batch) {
	r.link <- b
	r.parse <- b
}

// frames cuts whole frames off.
func (r *receiver) frames(b *batch) error {
	for {
		in := b.buf[b.cut:b.have]
		if r.ended {
			if len(in) > 0 {
				return fmt.Errorf("trailer: bytes follow it: %w", ErrDamaged)
			}
			return nil
		}
		if !r.began {
			if len(in) < len(streamPreamble) {
				return nil
			}
			if err := checkPreamble(in[:len(streamPreamble)]); err != nil {
				return err
			}
			_, _ = r.digest.WriteString(streamPreamble)
			r.began = true
			b.cut += len(streamPreamble)
			continue
		}
		if len(in) < 4 {
			return nil
		}
		n := int(binary.BigEndian.Uint32(in))
		if n > maxRecord {
			return fmt.Errorf("frame of %d bytes at %d: %w", n, r.read-int64(len(in)), ErrDamaged)
		}
		if n == 0 {
			if len(in) < trailerSize {
				return nil
			}
			if err := r.trailer(in[:trailerSize]); err != nil {
				return fmt.Errorf("trailer: %w", err)
			}
			b.cut += trailerSize
			continue
		}
		if len(in) < frameHead+n {
			return nil
		}
		_, _ = r.digest.Write(in[:frameHead])
		payload, sum := in[frameHead:frameHead+n:frameHead+n], binary.BigEndian.Uint32(in[4:])
		b.cut += frameHead + n
		if r.header == nil {
			if err := r.begin(payload, sum); err != nil {
				return fmt.Errorf("header: %w", err)
			}
			continue
		}
		b.payloads, b.sums = append(b.payloads, payload), append(b.sums, sum)
	}
}

// begin takes the header.
func (r *receiver) begin(payload []byte, sum uint32) error {
	if got := checksum(payload); got != sum {
		return fmt.Errorf("checksum %08x, want %08x: %w", got, sum, ErrDamaged)
	}
	header := &proto.StateRecord{}
	if err := decodeKind(payload, proto.KindStateRecord, header); err != nil {
		return err
	}
	r.header = header
	if err := r.state.LoadState(header); err != nil {
		r.state = nil
	}
	return nil
}

// trailer takes the trailer, but for the number of records, which is not known yet.
func (r *receiver) trailer(b []byte) error {
	n := trailerSize - sumSize
	switch {
	case r.header == nil:
		return fmt.Errorf("no state record: %w", ErrDamaged)
	case checksum(b[:n]) != binary.BigEndian.Uint32(b[n:]):
		return fmt.Errorf("checksum: %w", ErrDamaged)
	case binary.BigEndian.Uint64(b[12:]) != r.digest.Sum64():
		return fmt.Errorf("digest: %w", ErrDamaged)
	}
	r.count, r.ended = binary.BigEndian.Uint64(b[4:]), true
	return nil
}

// read verifies and parses a batch.
func (b *batch) read() error {
	if len(b.records) < len(b.payloads) {
		b.records = make([]proto.VersionRecord, max(len(b.payloads), 2*len(b.records)))
	}
	n := 0
	for i, payload := range b.payloads {
		if got := checksum(payload); got != b.sums[i] {
			return fmt.Errorf("record %d of a batch: checksum %08x, want %08x: %w", i, got, b.sums[i], ErrDamaged)
		}
		if len(payload) >= 2 && proto.Kind(payload[1])&proto.KindIgnorable != 0 {
			if _, err := readAside(payload); err != nil {
				return fmt.Errorf("record %d of a batch: %w", i, err)
			}
			continue
		}
		if err := b.parser.parse(payload, &b.records[n]); err != nil {
			return fmt.Errorf("record %d of a batch: %w", i, err)
		}
		b.payloads[n], b.sums[n] = payload, b.sums[i]
		n++
	}
	b.versions = n
	return nil
}

// links takes batches into the state, in the order of the stream.
func (r *receiver) links() {
	defer close(r.store)
	for b := range r.link {
		<-b.parsed
		if r.failed.Load() == nil {
			r.fail(r.linkBatch(b))
		}
		r.store <- b
	}
}

func (r *receiver) linkBatch(b *batch) error {
	if b.err != nil {
		return b.err
	}
	for i := range b.versions {
		rec := &b.records[i]
		if rec.Revision <= r.last || rec.Revision > r.header.Applied {
			return fmt.Errorf("revision %d after %d in a state at %d: %w", rec.Revision, r.last, r.header.Applied, ErrDamaged)
		}
		r.last = rec.Revision
		r.found++
		if r.state != nil && r.state.LoadVersion(rec) != nil {
			r.state = nil
		}
	}
	return nil
}

// stores writes batches to the file, and gives them back.
func (r *receiver) stores() {
	for b := range r.store {
		if r.failed.Load() == nil {
			r.fail(r.storeBatch(b))
		}
		clear(b.payloads)
		b.payloads, b.sums, b.have, b.cut, b.versions = b.payloads[:0], b.sums[:0], 0, 0, 0
		if len(b.buf) > 4*batchBytes {
			b.buf = nil
		}
		r.idle <- b
	}
}

func (r *receiver) storeBatch(b *batch) error {
	for i := range b.versions {
		if err := r.pages.add(proto.Revision(b.records[i].Revision), b.payloads[i], b.sums[i]); err != nil {
			return err
		}
	}
	return nil
}

func (r *receiver) fail(err error) {
	if err != nil {
		r.failed.CompareAndSwap(nil, &err)
	}
}

// wait ends the goroutines.
func (r *receiver) wait() {
	close(r.parse)
	close(r.link)
	r.running.Wait()
	if err := r.failed.Load(); err != nil && r.err == nil {
		r.err = *err
	}
}

// finish takes the stream for ended, verifies all of it, and makes it durable.
func (r *receiver) finish(commit CommitFunc) (*Incoming, error) {
	if r.err == nil && r.now.cut > 0 {
		r.hand(r.now)
	}
	r.wait()
	if r.err == nil {
		r.err = r.whole()
	}
	if r.err == nil && r.header.Applied < r.least {
		r.err = fmt.Errorf("a state at %d, and one at %d is awaited: %w", r.header.Applied, r.least, ErrLate)
	}
	if r.err != nil {
		return nil, r.drop()
	}
	failpoint("receive.records")
	in := &Incoming{state: r.header, loaded: r.state}
	finish := func() error {
		var err error
		if in.size, err = r.pages.finish(r.header); err != nil {
			return err
		}
		failpoint("receive.synced")
		return rename(r.dir, receivingFile, incomingFile)
	}
	if r.err = commit(incomingFile, finish); r.err != nil {
		return nil, r.drop()
	}
	if in.loaded != nil {
		in.loaded.Publish()
	}
	return in, nil
}

// whole says what is missing at the end.
func (r *receiver) whole() error {
	switch {
	case !r.ended:
		return fmt.Errorf("cut off after %d bytes: %w", r.read, ErrDamaged)
	case r.count != r.found || r.count != r.header.Versions:
		return fmt.Errorf("%d records, header says %d, trailer %d: %w", r.found, r.header.Versions, r.count, ErrDamaged)
	}
	return nil
}

// abort drops what was received, and returns why. Not after finish.
func (r *receiver) abort(why error) error {
	if r.err == nil {
		r.err = why
	}
	r.wait()
	return r.drop()
}

// drop removes the file, and returns why.
func (r *receiver) drop() error {
	r.state = nil
	return errors.Join(r.err, r.pages.abort(), remove(r.dir, receivingFile))
}
