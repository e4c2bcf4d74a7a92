//lint:file-ignore SA1019 raft 1.7 still sets and reads the fields that it deprecates

package peer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"reflect"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/internal/must"
)

// messages has one of each kind with every field set.
func messages() []any {
	header := raft.RPCHeader{ProtocolVersion: 3, ID: []byte("node"), Addr: []byte("host:1")}
	return []any{
		&raft.AppendEntriesRequest{
			RPCHeader: header, Term: 1 << 60, Leader: []byte("l"), PrevLogEntry: 2, PrevLogTerm: 3, LeaderCommitIndex: 4,
			Entries: []*raft.Log{
				{Index: 5, Term: 6, Type: raft.LogBarrier, Data: []byte("data"), Extensions: []byte("ext"), AppendedAt: time.Unix(7, 8)},
				{Index: 9, Term: 10, Type: raft.LogConfiguration, Data: bytes.Repeat([]byte{0}, 300)},
				{},
			},
		},
		&raft.AppendEntriesResponse{RPCHeader: header, Term: 1, LastLog: 2, Success: true, NoRetryBackoff: true},
		&raft.RequestVoteRequest{RPCHeader: header, Term: 1, Candidate: []byte("c"), LastLogIndex: 2, LastLogTerm: 3, LeadershipTransfer: true},
		&raft.RequestVoteResponse{RPCHeader: header, Term: 1, Peers: []byte("p"), Granted: true},
		&raft.RequestPreVoteRequest{RPCHeader: header, Term: 1, LastLogIndex: 2, LastLogTerm: 3},
		&raft.RequestPreVoteResponse{RPCHeader: header, Term: 1, Granted: true},
		&raft.InstallSnapshotRequest{
			RPCHeader: header, SnapshotVersion: 1, Term: 2, Leader: []byte("l"), LastLogIndex: 3, LastLogTerm: 4,
			Peers: []byte("p"), Configuration: []byte("conf"), ConfigurationIndex: 5, Size: 1 << 40,
		},
		&installRequest{&raft.InstallSnapshotRequest{
			RPCHeader: header, SnapshotVersion: 1, Term: 2, Leader: []byte("l"), LastLogIndex: 3, LastLogTerm: 4,
			Peers: []byte("p"), Configuration: []byte("conf"), ConfigurationIndex: 5, Size: 1 << 40,
		}, []byte("transfer")},
		&resumeRequest{header, []byte("transfer")},
		&progress{1 << 40, 1 << 63},
		&raft.InstallSnapshotResponse{RPCHeader: header, Term: 1, Success: true},
		&raft.TimeoutNowRequest{RPCHeader: header},
		&raft.TimeoutNowResponse{RPCHeader: header},
	}
}

func encode(t testing.TB, m any) []byte {
	t.Helper()
	var c coder
	must.OK(t, c.message(m))
	return c.buf
}

func decode(b []byte, into any) error {
	c := coder{buf: b, reading: true}
	return c.message(into)
}

func empty(m any) any { return reflect.New(reflect.TypeOf(m).Elem()).Interface() }

// unset names the fields, at any depth, that are zero.
func unset(v reflect.Value, path string) []string {
	var names []string
	for i := range v.NumField() {
		name := path + v.Type().Field(i).Name
		if f := v.Field(i); f.IsZero() {
			names = append(names, name)
		} else if f.Kind() == reflect.Struct && f.Type() != reflect.TypeFor[time.Time]() {
			names = append(names, unset(f, name+".")...)
		}
	}
	return names
}

// TestMessagesRoundTrip also fails when a version bump brings a field that has
// no place on the wire.
func TestMessagesRoundTrip(t *testing.T) {
	for _, m := range messages() {
		if names := unset(reflect.ValueOf(m).Elem(), ""); len(names) > 0 {
			t.Errorf("%T: the test does not set %v: is it on the wire?", m, names)
		}
		b := encode(t, m)
		got := empty(m)
		if err := decode(b, got); err != nil {
			t.Errorf("%T: %v", m, err)
		}
		if !reflect.DeepEqual(got, m) {
			t.Errorf("%T:\n got %+v\nwant %+v", m, got, m)
		}
		// A newer version has fields behind ours.
		got = empty(m)
		if err := decode(append(bytes.Clone(b), "more"...), got); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%T with more fields: %v", m, err)
		}
		// An older one, or a torn message, ends early: no panic, no reading
		// beyond.
		for i := range b {
			_ = decode(b[:i:i], empty(m))
		}
	}
	if names := unset(reflect.ValueOf(messages()[0].(*raft.AppendEntriesRequest).Entries[0]).Elem(), "Log."); len(names) > 0 {
		t.Errorf("the test does not set %v", names)
	}
}

func TestMalformedMessages(t *testing.T) {
	for name, c := range map[string]struct {
		into any
		b    []byte
	}{
		"length beyond the end":   {&raft.TimeoutNowRequest{}, []byte{3, 200, 1, 'x'}},
		"endless varint":          {&raft.TimeoutNowRequest{}, bytes.Repeat([]byte{0xff}, 11)},
		"too many entries":        {&raft.AppendEntriesRequest{}, append([]byte{3, 0, 0, 1, 0, 0, 0, 0}, binary.AppendUvarint(nil, maxEntries+1)...)},
		"entries without bytes":   {&raft.AppendEntriesRequest{}, []byte{3, 0, 0, 1, 0, 0, 0, 0, 100}},
		"entry beyond the end":    {&raft.AppendEntriesRequest{}, []byte{3, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 9, 1}},
		"log type out of range":   {&raft.AppendEntriesRequest{}, []byte{3, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 4, 1, 1, 0x80, 2}},
		"flag out of range":       {&raft.InstallSnapshotResponse{}, []byte{3, 0, 0, 1, 0x80, 2}},
		"snapshot of minus bytes": {&raft.InstallSnapshotRequest{}, append([]byte{3, 0, 0, 1, 2, 0, 3, 4, 0, 0, 5}, bytes.Repeat([]byte{0xff}, 9)...)},
	} {
		if err := decode(c.b, c.into); !errors.Is(err, errFrame) {
			t.Errorf("%s: %v, want %v", name, err, errFrame)
		}
	}
}

func TestFrameBounds(t *testing.T) {
	in := func(b []byte) error {
		ours, theirs := net.Pipe()
		defer ours.Close()
		go func() {
			_, _ = theirs.Write(b)
			theirs.Close()
		}()
		_, _, err := newStream(ours, "").receive()
		return err
	}
	for name, c := range map[string]struct {
		b    []byte
		want error
	}{
		"empty message":    {[]byte{0, 0, 0, 0, 1}, nil},
		"too large":        {[]byte{1, 0, 0, 1, 1}, errFrameTooBig},
		"half a header":    {[]byte{0, 0, 0}, io.ErrUnexpectedEOF},
		"nothing":          {nil, io.EOF},
		"half a message":   {[]byte{0, 0, 0, 4, 1, 'x'}, io.ErrUnexpectedEOF},
		"header only":      {[]byte{0, 0, 0, 4, 1}, io.ErrUnexpectedEOF},
		"16 MiB, 1 to see": {[]byte{1, 0, 0, 0, 1, 'x'}, io.ErrUnexpectedEOF},
	} {
		if err := in(c.b); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	long := make([]byte, 5*bodyStep+3)
	for i := range long {
		long[i] = byte(i * 7)
	}
	if got, err := readBody(bytes.NewReader(long), len(long)); err != nil || !bytes.Equal(got, long) {
		t.Errorf("a long body: %d bytes, %v", len(got), err)
	}
	s := newStream(nil, "")
	if err := s.flush(make([]byte, frameHeader+maxFrame+1)); !errors.Is(err, errFrameTooBig) {
		t.Errorf("a frame beyond the bound is sent: %v", err)
	}
}

func TestTrim(t *testing.T) {
	batch := func(n, size int) *raft.AppendEntriesRequest {
		r := &raft.AppendEntriesRequest{}
		for range n {
			r.Entries = append(r.Entries, &raft.Log{Data: make([]byte, size)})
		}
		return r
	}
	for _, c := range []struct{ n, size, want int }{
		{0, 0, 0},
		{256, 1 << 10, 256},
		{1, maxBatch + 1, 1},  // never to nothing
		{3, maxBatch + 1, 1},  //
		{64, 3 << 19, 5},      // entries of the largest size
		{2000, 1, maxEntries}, // what a receiver accepts
	} {
		r := batch(c.n, c.size)
		trim(r)
		if got := len(r.Entries); got != c.want {
			t.Errorf("%d entries of %d bytes are cut to %d, want %d", c.n, c.size, got, c.want)
		}
	}
	r := batch(64, 3<<19)
	trim(r)
	if n := len(encode(t, r)); n > maxFrame {
		t.Errorf("a full batch has %d bytes, a frame %d", n, maxFrame)
	}
}

// FuzzMessage feeds any bytes as any request: no panic, no allocation out of
// proportion, and what was read reads the same once it is written again.
func FuzzMessage(f *testing.F) {
	for _, m := range messages() {
		for k := kindAppendEntries; k <= kindResumeSnapshot; k++ {
			f.Add(byte(k), encode(f, m))
		}
	}
	f.Fuzz(func(t *testing.T, k byte, b []byte) {
		var p progress
		if decode(b, &p) == nil { // wherever it says that it is
			o := &outgoing{size: 3, at: 3, kept: [][]byte{{1}, {2, 3}}}
			o.digest.Reset()
			if err := o.rewind(p); err == nil && uint64(o.at) != p.Offset {
				t.Errorf("at %d, it was at %d", o.at, p.Offset)
			}
		}
		req := requestOf(kind(k))
		if req == nil || decode(b, req) != nil {
			return
		}
		again := requestOf(kind(k))
		if err := decode(encode(t, req), again); err != nil || !reflect.DeepEqual(again, req) {
			t.Errorf("%v\n got %+v\nwant %+v", err, again, req)
		}
	})
}

func FuzzPreface(f *testing.F) {
	f.Add([]byte{1, 0})
	f.Add([]byte{1, 3, 'a', 'b', 'c', 'd'})
	f.Fuzz(func(t *testing.T, b []byte) {
		id, err := readPreface(bytes.NewReader(b))
		if err != nil {
			return
		}
		again, err := appendPreface(nil, id)
		if err != nil || !bytes.HasPrefix(b, again) {
			t.Errorf("%q read as %q, written as %q, %v", b, id, again, err)
		}
	})
}
