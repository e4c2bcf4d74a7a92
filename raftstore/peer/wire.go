//lint:file-ignore SA1019 raft 1.7 still sets and reads the fields that it deprecates

package peer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// A Raft stream carries frames in both directions, one answer per request, in
// order:
//
//	| length n (4, big endian) | kind (1) | message (n) |
//
// A message is its fields in a fixed order: numbers as varints, bytes with a
// varint length, log entries with a length of four bytes. There are no tags. A
// new field goes to the end of its message: who does not know it ignores what
// is left over, who misses it leaves it zero.
//
// hashicorp's own transport speaks MessagePack by reflection, without a bound
// on what it reads. This form is bounded, and costs a fraction of the CPU: see
// BenchmarkAppendEntries and the figures in the commit that introduced it.

// kind says what a frame holds. Kinds are on the wire: do not renumber.
type kind uint8

const (
	kindAppendEntries   kind = 1
	kindRequestVote     kind = 2
	kindRequestPreVote  kind = 3
	kindInstallSnapshot kind = 4 // followed by Size bytes outside of any frame
	kindTimeoutNow      kind = 5
	kindResumeSnapshot  kind = 6 // followed by what is left of these bytes, when it is answered by kindProgress

	kindAnswer  kind = 64
	kindRefusal kind = 65 // the message is the text of an error
	// kindProgress is sent to who has named a transfer in kindInstallSnapshot, before the answer,
	// and first of all to who resumes one.
	kindProgress kind = 66
)

const (
	frameHeader = 5
	// maxFrame bounds a message: a batch, one more entry, and what surrounds them.
	maxFrame = 16 << 20
	// maxBatch bounds the entries of one AppendEntries; more go with the next.
	maxBatch = 8 << 20
	// maxEntries bounds what the structs of decoded entries occupy beyond their
	// bytes. It is the largest MaxAppendEntries that raft allows.
	maxEntries = 1024
	// entryHeader is what an entry takes in a batch beyond its own bytes, at most.
	entryHeader = 64
)

var (
	errFrame       = errors.New("malformed frame")
	errFrameTooBig = errors.New("frame is too large")
)

// coder writes messages to buf, or reads them from it: one description of each
// message serves both, so they cannot differ. Read bytes alias buf.
type coder struct {
	buf     []byte
	reading bool
	err     error
}

func (c *coder) fail() {
	if c.err == nil {
		c.err = errFrame
	}
	c.buf = nil
}

func (c *coder) uint(v *uint64) {
	if !c.reading {
		c.buf = binary.AppendUvarint(c.buf, *v)
		return
	}
	if len(c.buf) == 0 {
		return
	}
	x, n := binary.Uvarint(c.buf)
	if n <= 0 {
		c.fail()
		return
	}
	*v, c.buf = x, c.buf[n:]
}

// number is for the integer types of raft's structs. A number that does not fit
// is malformed.
func number[T ~int | ~int64 | ~uint8](c *coder, v *T) {
	x := uint64(*v)
	c.uint(&x)
	if !c.reading {
		return // raft sends one message to several peers at once: do not write to it
	}
	if *v = T(x); uint64(*v) != x {
		*v = 0
		c.fail()
	}
}

func (c *coder) bool(v *bool) {
	var x uint8
	if *v {
		x = 1
	}
	number(c, &x)
	if c.reading {
		*v = x != 0
	}
}

func (c *coder) bytes(v *[]byte) {
	n := uint64(len(*v))
	c.uint(&n)
	if !c.reading {
		c.buf = append(c.buf, *v...)
		return
	}
	if n > uint64(len(c.buf)) {
		c.fail()
		return
	}
	*v = nil
	if n > 0 {
		*v = c.buf[:n:n]
	}
	c.buf = c.buf[n:]
}

func (c *coder) time(v *time.Time) {
	var ns int64
	if !v.IsZero() {
		ns = v.UnixNano()
	}
	number(c, &ns)
	if c.reading && ns != 0 {
		*v = time.Unix(0, ns)
	}
}

func (c *coder) entries(v *[]*raft.Log) {
	n := uint64(len(*v))
	c.uint(&n)
	if !c.reading {
		size := 0
		for _, l := range *v {
			size += len(l.Data) + len(l.Extensions) + entryHeader
		}
		c.buf = slices.Grow(c.buf, size)
		for _, l := range *v {
			start := len(c.buf)
			c.buf = append(c.buf, 0, 0, 0, 0)
			c.entry(l)
			binary.BigEndian.PutUint32(c.buf[start:], uint32(len(c.buf)-start-4))
		}
		return
	}
	if n == 0 {
		return
	}
	if n > maxEntries {
		c.fail()
		return
	}
	logs, list := make([]raft.Log, n), make([]*raft.Log, n)
	for i := range logs {
		if len(c.buf) < 4 {
			c.fail()
			return
		}
		size := binary.BigEndian.Uint32(c.buf)
		c.buf = c.buf[4:]
		if uint64(size) > uint64(len(c.buf)) {
			c.fail()
			return
		}
		one := coder{buf: c.buf[:size:size], reading: true}
		one.entry(&logs[i])
		if one.err != nil {
			c.fail()
			return
		}
		list[i], c.buf = &logs[i], c.buf[size:]
	}
	*v = list
}

func (c *coder) entry(l *raft.Log) {
	c.uint(&l.Index)
	c.uint(&l.Term)
	number(c, &l.Type)
	c.bytes(&l.Data)
	c.bytes(&l.Extensions)
	c.time(&l.AppendedAt)
}

func (c *coder) header(h *raft.RPCHeader) {
	number(c, &h.ProtocolVersion)
	c.bytes(&h.ID)
	c.bytes(&h.Addr)
}

// message is the one list of messages and fields. Those that raft keeps only
// for protocol versions before 3 (Leader, Candidate, Peers) are in it because
// raft 1.7 still sets them.
func (c *coder) message(m any) error {
	switch m := m.(type) {
	case *raft.AppendEntriesRequest:
		c.header(&m.RPCHeader)
		c.uint(&m.Term)
		c.bytes(&m.Leader)
		c.uint(&m.PrevLogEntry)
		c.uint(&m.PrevLogTerm)
		c.uint(&m.LeaderCommitIndex)
		c.entries(&m.Entries)
	case *raft.AppendEntriesResponse:
		c.header(&m.RPCHeader)
		c.uint(&m.Term)
		c.uint(&m.LastLog)
		c.bool(&m.Success)
		c.bool(&m.NoRetryBackoff)
	case *raft.RequestVoteRequest:
		c.header(&m.RPCHeader)
		c.uint(&m.Term)
		c.bytes(&m.Candidate)
		c.uint(&m.LastLogIndex)
		c.uint(&m.LastLogTerm)
		c.bool(&m.LeadershipTransfer)
	case *raft.RequestVoteResponse:
		c.header(&m.RPCHeader)
		c.uint(&m.Term)
		c.bytes(&m.Peers)
		c.bool(&m.Granted)
	case *raft.RequestPreVoteRequest:
		c.header(&m.RPCHeader)
		c.uint(&m.Term)
		c.uint(&m.LastLogIndex)
		c.uint(&m.LastLogTerm)
	case *raft.RequestPreVoteResponse:
		c.header(&m.RPCHeader)
		c.uint(&m.Term)
		c.bool(&m.Granted)
	case *raft.InstallSnapshotRequest:
		c.header(&m.RPCHeader)
		number(c, &m.SnapshotVersion)
		c.uint(&m.Term)
		c.bytes(&m.Leader)
		c.uint(&m.LastLogIndex)
		c.uint(&m.LastLogTerm)
		c.bytes(&m.Peers)
		c.bytes(&m.Configuration)
		c.uint(&m.ConfigurationIndex)
		number(c, &m.Size)
		if m.Size < 0 {
			c.fail()
		}
	case *installRequest:
		if m.InstallSnapshotRequest == nil {
			m.InstallSnapshotRequest = &raft.InstallSnapshotRequest{}
		}
		_ = c.message(m.InstallSnapshotRequest) // c.err has it
		c.bytes(&m.Transfer)
	case *resumeRequest:
		c.header(&m.RPCHeader)
		c.bytes(&m.Transfer)
	case *progress:
		c.uint(&m.Offset)
		c.sum(&m.Sum)
	case *raft.InstallSnapshotResponse:
		c.header(&m.RPCHeader)
		c.uint(&m.Term)
		c.bool(&m.Success)
	case *raft.TimeoutNowRequest:
		c.header(&m.RPCHeader)
	case *raft.TimeoutNowResponse:
		c.header(&m.RPCHeader)
	default:
		return fmt.Errorf("message %T has no wire form", m)
	}
	return c.err
}

// requestOf returns an empty request of a kind, or nil.
func requestOf(k kind) any {
	switch k {
	case kindAppendEntries:
		return &raft.AppendEntriesRequest{}
	case kindRequestVote:
		return &raft.RequestVoteRequest{}
	case kindRequestPreVote:
		return &raft.RequestPreVoteRequest{}
	case kindInstallSnapshot:
		return &installRequest{InstallSnapshotRequest: &raft.InstallSnapshotRequest{}}
	case kindResumeSnapshot:
		return &resumeRequest{}
	case kindTimeoutNow:
		return &raft.TimeoutNowRequest{}
	}
	return nil
}

// trim cuts a batch to maxBatch bytes, but never to nothing. raft takes what
// it has sent from the request after the call, so the rest follows with the
// next one: a follower that lags behind by large entries costs neither side
// more memory than this.
func trim(r *raft.AppendEntriesRequest) {
	size := 0
	for i, l := range r.Entries {
		size += len(l.Data) + len(l.Extensions) + entryHeader
		if i > 0 && (size > maxBatch || i >= maxEntries) {
			r.Entries = r.Entries[:i]
			return
		}
	}
}
