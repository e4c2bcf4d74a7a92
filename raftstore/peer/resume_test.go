package peer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/internal/pipes"
)

// cut is when a connection breaks: when so many bytes have gone out, or come in, or with the answer.
type cut struct {
	out, in int64 // 0: never
	answer  bool
}

// cutting is a layer whose connections break, one after the other as listed.
type cutting struct {
	raft.StreamLayer
	mu    sync.Mutex
	cuts  []cut
	dials int
	down  bool
}

func (c *cutting) Dial(a raft.ServerAddress, d time.Duration) (net.Conn, error) {
	conn, err := c.StreamLayer.Dial(a, d)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down && c.dials > 0 {
		conn.Close()
		return nil, errors.New("refused")
	}
	c.dials++
	out := &cutConn{Conn: conn}
	if len(c.cuts) > 0 {
		out.out.Store(c.cuts[0].out)
		out.in.Store(c.cuts[0].in)
		out.answer = c.cuts[0].answer
		c.cuts = c.cuts[1:]
	}
	return out, nil
}

type cutConn struct {
	net.Conn
	out, in atomic.Int64
	answer  bool
}

func (c *cutConn) Write(p []byte) (int, error) {
	if left := c.out.Load(); left > 0 && left <= int64(len(p)) {
		n, _ := c.Conn.Write(p[:left-1])
		c.Conn.Close()
		return n, io.ErrClosedPipe
	} else if left > 0 {
		c.out.Add(-int64(len(p)))
	}
	return c.Conn.Write(p)
}

func (c *cutConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	for at := 0; c.answer && at+frameHeader <= n; at += frameHeader + int(binary.BigEndian.Uint32(p[at:])) {
		if kind(p[at+4]) == kindAnswer {
			c.Conn.Close()
			return 0, io.ErrUnexpectedEOF
		}
	}
	if left := c.in.Load(); left > 0 && left <= int64(n) {
		c.Conn.Close()
		return 0, io.ErrUnexpectedEOF
	} else if left > 0 {
		c.in.Add(-int64(n))
	}
	return n, err
}

func joinCutting(p *pipes.Network, id raft.ServerID, cuts ...cut) (*Transport, *cutting) {
	c := &cutting{StreamLayer: p.Join(raft.ServerAddress(id)), cuts: cuts}
	same := func(_ raft.ServerID, a raft.ServerAddress) raft.ServerAddress { return a }
	return NewTransportOn(c, same, 2*time.Second, slog.New(slog.DiscardHandler), false), c
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(n)})
	_, _ = r.Read(b)
	return b
}

// takesSnapshots answers as Raft does: it reads all, and drains what it does not want.
func takesSnapshots(got *[][]byte, load time.Duration) func(raft.RPC) {
	return func(rpc raft.RPC) {
		req, ok := rpc.Command.(*raft.InstallSnapshotRequest)
		if !ok {
			rpc.Respond(&raft.AppendEntriesResponse{}, nil)
			return
		}
		var all bytes.Buffer
		all.Grow(int(req.Size) + bytes.MinRead) // the race detector watches each copy of megabytes
		_, err := all.ReadFrom(rpc.Reader)
		if err != nil {
			_, _ = io.Copy(io.Discard, rpc.Reader)
			rpc.Respond(&raft.InstallSnapshotResponse{Term: req.Term}, err)
			return
		}
		*got = append(*got, all.Bytes())
		time.Sleep(load)
		rpc.Respond(&raft.InstallSnapshotResponse{Term: req.Term, Success: true}, nil)
	}
}

// TestSnapshotResumes: Raft sees one call on each side, and all bytes once, whatever breaks.
func TestSnapshotResumes(t *testing.T) {
	const size = 20 << 20
	data := randomBytes(size)
	for name, cuts := range map[string][]cut{
		"nothing":                   nil,
		"behind the request":        {{out: 200}},
		"at the first MiB":          {{out: 1 << 20}},
		"before the second":         {{out: 2<<20 - 1}},
		"in the middle":             {{out: 7<<20 + 12345}},
		"near the end":              {{out: size - 10}},
		"the answer is lost":        {{answer: true}},
		"twice":                     {{out: 19 << 20}, {answer: true}, {answer: true}},
		"progress is lost":          {{in: 100}},
		"again and again":           {{out: 3 << 20}, {out: 5 << 20}, {out: 100_000}, {out: 7 << 20}, {out: 3 << 20}},
		"at once, many times":       {{out: 9 << 20}, {out: 50}, {out: 30}, {out: 20}, {out: 60}},
		"both ways":                 {{out: 9 << 20}, {in: 100}, {in: 5}},
		"more than the window away": {{out: 18 << 20}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := pipes.New()
				a, layer := joinCutting(p, "a", cuts...)
				b := join(p, "b")
				var got [][]byte
				serveWith(b, takesSnapshots(&got, 20*time.Second))
				defer a.Close()
				defer b.Close()
				var resp raft.InstallSnapshotResponse
				req := &raft.InstallSnapshotRequest{RPCHeader: ofA, Term: 4, Size: size}
				if err := a.InstallSnapshot("b", "b", req, &resp, bytes.NewReader(data)); err != nil || !resp.Success {
					t.Fatalf("%v, %+v", err, resp)
				}
				if len(got) != 1 || !bytes.Equal(got[0], data) {
					t.Fatalf("Raft has seen %d snapshots", len(got))
				}
				if layer.dials <= len(cuts) {
					t.Errorf("%d connections, and %d were to break", layer.dials, len(cuts))
				}
				time.Sleep(2 * resumeWithin)
				if n := b.remembered(); n > 0 {
					t.Errorf("%d transfers are remembered", n)
				}
			})
		})
	}
}

// TestSnapshotDoesNotResume: what ends a transfer for both sides, and when.
func TestSnapshotDoesNotResume(t *testing.T) {
	const size = 30 << 20
	data := randomBytes(size)
	for name, c := range map[string]struct {
		cuts   []cut
		data   []byte
		then   func(a, b *Transport)
		down   bool // no other connection
		at     time.Duration
		within time.Duration
	}{
		"the request is cut":  {cuts: []cut{{out: 20}}, within: time.Second},
		"the source ends":     {data: data[:5<<20], within: 11 * time.Second},
		"nobody answers":      {cuts: []cut{{out: 9 << 20}}, down: true, within: 15 * time.Second},
		"the sender closes":   {cuts: []cut{{out: 9 << 20}}, down: true, then: func(a, _ *Transport) { a.CloseStreams() }, at: time.Second, within: 1100 * time.Millisecond},
		"the receiver closes": {cuts: []cut{{out: 9 << 20}}, down: true, then: func(_, b *Transport) { b.CloseStreams() }, at: time.Second, within: 11 * time.Second},
		"always at once":      {cuts: append([]cut{{out: 9 << 20}}, cutsAtOnce(30)...), within: 15 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := pipes.New()
				a, layer := joinCutting(p, "a", c.cuts...)
				b := join(p, "b")
				var got [][]byte
				serveWith(b, takesSnapshots(&got, 0))
				defer a.Close()
				defer b.Close()
				layer.down = c.down
				if c.then != nil {
					time.AfterFunc(c.at, func() { c.then(a, b) })
				}
				from := c.data
				if from == nil {
					from = data
				}
				began := time.Now()
				req := &raft.InstallSnapshotRequest{RPCHeader: ofA, Term: 4, Size: size}
				err := a.InstallSnapshot("b", "b", req, &raft.InstallSnapshotResponse{}, bytes.NewReader(from))
				if took := time.Since(began); err == nil || took > c.within {
					t.Fatalf("%v after %s", err, took)
				}
				time.Sleep(3 * resumeWithin)
				if n := b.remembered(); len(got) > 0 || n > 0 {
					t.Errorf("Raft has seen %d snapshots, %d are remembered", len(got), n)
				}
				// The whole one, from its beginning.
				layer.mu.Lock()
				layer.down, layer.cuts = false, nil
				layer.mu.Unlock()
				var resp raft.InstallSnapshotResponse
				if err := a.InstallSnapshot("b", "b", req, &resp, bytes.NewReader(data)); err != nil || !resp.Success || !bytes.Equal(got[0], data) {
					t.Errorf("the next one: %v", err)
				}
			})
		})
	}
}

// remembered is how many transfers are.
func (t *Transport) remembered() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.incoming)
}

// cutsAtOnce break each connection behind the request.
func cutsAtOnce(n int) (out []cut) {
	for range n {
		out = append(out, cut{in: 1})
	}
	return out
}

// TestRaftIsNeeded: while a transfer has no connection, heartbeats of its leader wait; anything
// else has Raft's main loop back at once.
func TestRaftIsNeeded(t *testing.T) {
	const size = 30 << 20
	data := randomBytes(size)
	for name, c := range map[string]struct {
		ask   func(t *Transport)
		needs bool
	}{
		"a heartbeat": {func(t *Transport) {
			_ = t.AppendEntries("b", "b", &raft.AppendEntriesRequest{RPCHeader: ofA, Term: 4}, &raft.AppendEntriesResponse{})
		}, false},
		"a later leader": {func(t *Transport) {
			_ = t.AppendEntries("b", "b", &raft.AppendEntriesRequest{RPCHeader: ofA, Term: 5}, &raft.AppendEntriesResponse{})
		}, true},
		"a vote": {func(t *Transport) {
			_ = t.RequestVote("b", "b", &raft.RequestVoteRequest{RPCHeader: ofA, Term: 5}, &raft.RequestVoteResponse{})
		}, true},
		"a pre-vote": {func(t *Transport) {
			_ = t.RequestPreVote("b", "b", &raft.RequestPreVoteRequest{RPCHeader: ofA, Term: 5}, &raft.RequestPreVoteResponse{})
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := pipes.New()
				a, layer := joinCutting(p, "a", cut{out: 9 << 20})
				layer.down = true
				b, other := join(p, "b"), join(p, "c")
				defer a.Close()
				defer b.Close()
				defer other.Close()
				var freed atomic.Int64
				began := time.Now()
				serveWith(b, func(rpc raft.RPC) {
					if rpc.Reader != nil {
						_, err := io.Copy(io.Discard, rpc.Reader)
						freed.Store(int64(time.Since(began)))
						rpc.Respond(&raft.InstallSnapshotResponse{}, err)
						return
					}
					rpc.Respond(&raft.AppendEntriesResponse{}, errors.New("no"))
				})
				time.AfterFunc(500*time.Millisecond, func() { c.ask(other) })
				req := &raft.InstallSnapshotRequest{RPCHeader: ofA, Term: 4, Size: size}
				err := a.InstallSnapshot("b", "b", req, &raft.InstallSnapshotResponse{}, bytes.NewReader(data))
				time.Sleep(2 * resumeWithin)
				free := time.Duration(freed.Load())
				if err == nil || c.needs != (free < time.Second) || free > resumeWithin+time.Second {
					t.Errorf("%v; Raft had its main loop back after %s", err, free)
				}
			})
		})
	}
}

// TestNoTransferID: a snapshot that does not name its transfer is refused.
func TestNoTransferID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pipes.New()
		b := join(p, "b")
		defer b.Close()
		var got [][]byte
		serveWith(b, takesSnapshots(&got, 0))
		layer := p.Join("a")
		defer layer.Close()
		conn, err := layer.Dial("b", time.Second)
		must.OK(t, err)
		s := newStream(conn, "b")
		must.OK(t, s.send(kindInstallSnapshot, &installRequest{&raft.InstallSnapshotRequest{Term: 4, Size: 5}, nil}))
		k, body, err := s.receive()
		if err != nil || k != kindRefusal || !strings.Contains(string(body), "a transfer id of 0 bytes") || len(got) > 0 {
			t.Errorf("kind %d, %q, %v", k, body, err)
		}
	})
}

// TestSnapshotOfAStranger: a snapshot whose sender is not admitted changes nothing. Its term above all: what the leader of
// a lower one sends would no longer interrupt a snapshot whose connection has broken.
func TestSnapshotOfAStranger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pipes.New()
		same := func(_ raft.ServerID, a raft.ServerAddress) raft.ServerAddress { return a }
		b := NewTransportOn(p.Join("b"), same, 2*time.Second, slog.New(slog.DiscardHandler), true)
		defer b.Close()
		b.Admit(func(any, raft.ServerID, raft.ServerAddress) error { return errors.New("a stranger") })
		var got [][]byte
		serveWith(b, takesSnapshots(&got, 0))
		a := join(p, "a")
		defer a.Close()
		req := &raft.InstallSnapshotRequest{RPCHeader: ofA, Term: 99, Size: 5}
		err := a.InstallSnapshot("b", "b", req, &raft.InstallSnapshotResponse{}, strings.NewReader("12345"))
		if !isRemote(err) || !strings.Contains(err.Error(), "a stranger") || len(got) > 0 {
			t.Errorf("%v, and Raft got %q", err, got)
		}
		if term := b.installing.Load(); term != 0 || !b.isUrgent(&raft.AppendEntriesRequest{Term: 4}) {
			t.Errorf("term %d counts", term)
		}
	})
}

// TestRewind: where a receiver may say that it is.
func TestRewind(t *testing.T) {
	data := randomBytes(5 * sendChunk)
	sum := func(n int64, of []byte) uint64 {
		in := &incoming{}
		in.digest.Reset()
		_, _ = in.digest.Write(of[:n])
		return in.digest.Sum64()
	}
	other := bytes.Clone(data)
	other[sendChunk+7] ^= 1
	for name, c := range map[string]struct {
		at  int64
		of  []byte
		err error
	}{
		"at what is kept":          {2 * sendChunk, data, nil},
		"behind it":                {3*sendChunk + 77, data, nil},
		"at the end":               {4 * sendChunk, data, nil},
		"before what is kept":      {2*sendChunk - 1, data, errNotTheSame},
		"further than it was sent": {4*sendChunk + 1, data, errNotTheSame},
		"with other bytes":         {3 * sendChunk, other, errNotTheSame},
	} {
		o := &outgoing{data: bytes.NewReader(data), size: int64(len(data)), moved: make(chan struct{}, 1)}
		o.digest.Reset()
		for range 4 {
			b, err := o.read()
			must.OK(t, err)
			o.at += int64(len(b))
		}
		o.heard, o.reached = true, 2*sendChunk+100
		o.forget()
		if err := o.rewind(progress{uint64(c.at), sum(c.at, c.of)}); !errors.Is(err, c.err) || err == nil && o.at != c.at {
			t.Errorf("%s: %v, at %d", name, err, o.at)
		}
	}
}

// TestResumeOfAnother: only the node that sends a snapshot goes on with it.
func TestResumeOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pipes.New()
		a, layer := joinCutting(p, "a", cut{out: 9 << 20})
		layer.down = true
		b, other := join(p, "b"), join(p, "c")
		defer a.Close()
		defer b.Close()
		defer other.Close()
		var got [][]byte
		serveWith(b, takesSnapshots(&got, 0))
		go func() {
			req := &raft.InstallSnapshotRequest{RPCHeader: ofA, Term: 4, Size: 30 << 20}
			_ = a.InstallSnapshot("b", "b", req, &raft.InstallSnapshotResponse{}, bytes.NewReader(randomBytes(30<<20)))
		}()
		time.Sleep(time.Second)
		b.mu.Lock()
		var id string
		for id = range b.incoming {
		}
		b.mu.Unlock()
		for name, req := range map[string]*resumeRequest{
			"another node":     {raft.RPCHeader{ID: []byte("c")}, []byte(id)},
			"another transfer": {ofA, []byte("0123456789abcdef")},
			"none":             {ofA, nil},
		} {
			s, err := other.dial("b")
			must.OK(t, err)
			if err := s.call(time.Second, kindResumeSnapshot, req, &raft.InstallSnapshotResponse{}); id == "" || !isRemote(err) {
				t.Errorf("%s: %v", name, err)
			}
			other.drop(s)
		}
		time.Sleep(3 * resumeWithin)
	})
}

// A heartbeat of the leader that sends a snapshot is not urgent, from when its request is there: Raft
// takes its time before it begins to read.
func TestHeartbeatBehindARequest(t *testing.T) {
	tr := &Transport{incoming: map[string]*incoming{}}
	tr.receiving(idleStream(t), &installRequest{InstallSnapshotRequest: &raft.InstallSnapshotRequest{Term: 7}})
	for _, c := range []struct {
		name string
		req  any
		want bool
	}{
		{"the sender's heartbeat", &raft.AppendEntriesRequest{Term: 7}, false},
		{"a later leader's", &raft.AppendEntriesRequest{Term: 8}, true},
		{"a vote", &raft.RequestVoteRequest{Term: 7}, true},
	} {
		if got := tr.isUrgent(c.req); got != c.want {
			t.Errorf("%s is urgent: %v, want %v", c.name, got, c.want)
		}
	}
	// The request of a leader that was replaced does not make those of the new one urgent.
	tr.receiving(idleStream(t), &installRequest{InstallSnapshotRequest: &raft.InstallSnapshotRequest{Term: 5}})
	if tr.isUrgent(&raft.AppendEntriesRequest{Term: 7}) {
		t.Error("a heartbeat of the newest leader is urgent")
	}
}

// idleStream is a stream whose other end reads and says nothing.
func idleStream(t *testing.T) *stream {
	ours, theirs := net.Pipe()
	t.Cleanup(func() { ours.Close() })
	go func() { _, _ = io.Copy(io.Discard, theirs) }()
	return newStream(ours, "")
}
