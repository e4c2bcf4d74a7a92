package peer

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/proto"
)

// A snapshot goes on where it was when its connection breaks. Raft knows nothing of that: on
// either side it is in one call, which takes longer.
//
// The sender names the transfer in its request (installRequest). The receiver sends back how far
// it is (progress), at once and then with every MiB. The sender keeps what is not
// acknowledged, and sends no more than sendWindow beyond that. When the connection breaks it dials
// another one and names the transfer (resumeRequest); the receiver says how far it is, with a
// checksum of all bytes until there; and if that is the sender's too, the rest follows, and then
// the answer, which is sent again if it was lost.
const (
	sendWindow   = 16 << 20
	sendChunk    = 256 << 10
	progressStep = 1 << 20
	// resumeWithin bounds how long a transfer is without a connection. Raft's main loop waits
	// meanwhile, so it ends early when a request comes that must not wait: see urgent.
	resumeWithin = 10 * time.Second
	resumeFirst  = 20 * time.Millisecond
	resumeLast   = time.Second
	// waitingTick is how often who waits looks whether Raft is needed.
	waitingTick = 20 * time.Millisecond
	transferID  = 16
	// idleResumes is how often a transfer may be resumed in vain, one time after the other.
	idleResumes = 10
)

var (
	errNoTransfer = errors.New("no such snapshot is being received")
	errNotTheSame = errors.New("what was received of the snapshot is not what was sent")
	errNeeded     = errors.New("the snapshot's connection broke, and Raft has something else to do")
)

// installRequest is Raft's request, and the transfer's id behind it.
type installRequest struct {
	*raft.InstallSnapshotRequest
	Transfer []byte
}

// resumeRequest asks to go on with a transfer.
type resumeRequest struct {
	raft.RPCHeader
	Transfer []byte
}

// GetRPCHeader implements raft.WithRPCHeader.
func (r *resumeRequest) GetRPCHeader() raft.RPCHeader { return r.RPCHeader }

// progress is how far a receiver is, and the XXH64 of the bytes until there.
type progress struct{ Offset, Sum uint64 }

// InstallSnapshot streams a snapshot of req.Size bytes. What bounds it is
// progress, not its size: a peer that takes nothing for 30 s has failed.
func (t *Transport) InstallSnapshot(id raft.ServerID, to raft.ServerAddress, req *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	if err := checkTerms(req); err != nil {
		return err
	}
	closed := t.cutOff()
	s, err := t.dial(t.address(id, to))
	if err != nil {
		return err
	}
	out := &outgoing{data: data, size: req.Size, moved: make(chan struct{}, 1)}
	out.digest.Reset()
	_, _ = rand.Read(out.id[:])
	if err = s.SetDeadline(time.Now().Add(t.timeout)); err == nil {
		err = s.send(kindInstallSnapshot, &installRequest{req, out.id[:]})
	}
	for idle := 0; ; {
		before := out.acknowledged()
		if err == nil {
			err = out.send(s, resp)
		}
		t.drop(s)
		if err == nil {
			return nil
		}
		if idle++; out.acknowledged() > before {
			idle = 0
		}
		if !out.resumable() || isRemote(err) || idle > idleResumes {
			return fmt.Errorf("snapshot to %s: %w", id, err)
		}
		var again error
		if s, again = t.resume(id, to, req.RPCHeader, out, closed); again != nil {
			return fmt.Errorf("snapshot to %s: %w; it does not go on: %w", id, err, again)
		}
		err = nil
		t.logs.Warn(t.logger, "a snapshot goes on behind a broken connection", "to", id, "at", out.at, "size", out.size)
	}
}

// resume dials until the receiver says where it is, or it takes too long.
func (t *Transport) resume(id raft.ServerID, to raft.ServerAddress, header raft.RPCHeader, out *outgoing, closed <-chan struct{}) (*stream, error) {
	end := time.Now().Add(resumeWithin)
	for pause := resumeFirst; ; pause = min(2*pause, resumeLast) {
		select {
		case <-closed:
			return nil, raft.ErrTransportShutdown
		case <-time.After(pause):
		}
		s, err := t.resumeOnce(id, to, header, out)
		if err == nil {
			return s, nil
		}
		if isRemote(err) || errors.Is(err, errNotTheSame) || errors.Is(err, raft.ErrTransportShutdown) || time.Now().After(end) {
			return nil, err
		}
	}
}

func (t *Transport) resumeOnce(id raft.ServerID, to raft.ServerAddress, header raft.RPCHeader, out *outgoing) (*stream, error) {
	s, err := t.dial(t.address(id, to))
	if err != nil {
		return nil, err
	}
	if err = out.resume(s, header, t.timeout); err != nil {
		t.drop(s)
		return nil, err
	}
	return s, nil
}

// outgoing is a snapshot that is being sent. It is for the goroutine that sends, but for what
// mu guards.
type outgoing struct {
	id   [transferID]byte
	data io.Reader
	size int64
	// kept is what was read from data and is not acknowledged; base is where it begins, digest
	// the checksum of what was before that, and at where the next byte to be sent is.
	kept     [][]byte
	free     [][]byte
	base, at int64
	digest   xxhash.Digest
	lost     bool // data could not be read
	moved    chan struct{}

	mu      sync.Mutex
	heard   bool  // the receiver has the request
	reached int64 // what it has acknowledged
}

func (o *outgoing) resumable() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.heard && !o.lost
}

// patience is how long the receiver may take to load all of it.
func (o *outgoing) patience() time.Duration {
	return restoreBase + time.Duration(o.size>>20)*restorePerMiB
}

func (o *outgoing) acknowledged() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.reached
}

// end of what is kept.
func (o *outgoing) end() (end int64) {
	end = o.base
	for _, c := range o.kept {
		end += int64(len(c))
	}
	return end
}

// forget drops chunks that are acknowledged.
func (o *outgoing) forget() {
	reached := o.acknowledged()
	for len(o.kept) > 0 && o.base+int64(len(o.kept[0])) <= reached {
		c := o.kept[0]
		_, _ = o.digest.Write(c)
		o.base += int64(len(c))
		o.free = append(o.free, c[:0])
		o.kept = o.kept[1:]
	}
}

// send sends what is not sent yet, and returns the answer in resp.
func (o *outgoing) send(s *stream, resp any) error {
	if err := s.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	answer := make(chan error, 1)
	go func() { answer <- o.listen(s, resp) }()
	err := o.sendData(s, answer)
	if err == nil {
		if err = s.SetReadDeadline(time.Now().Add(o.patience())); err == nil {
			return <-answer
		}
	}
	s.Close()
	if got := <-answer; got == nil || isRemote(got) {
		return got // the receiver has said why it takes no more
	}
	return err
}

// listen reads what the receiver says, until the answer.
func (o *outgoing) listen(s *stream, resp any) error {
	for {
		k, body, err := s.receive()
		if err != nil {
			return err
		}
		if k != kindProgress {
			return answerOf(k, body, resp)
		}
		var p progress
		if err := decodeMessage(body, &p); err != nil {
			return err
		}
		o.mu.Lock()
		o.heard, o.reached = true, max(o.reached, int64(min(p.Offset, uint64(o.size))))
		o.mu.Unlock()
		select {
		case o.moved <- struct{}{}:
		default:
		}
	}
}

// sendData ends early when answer has something: it is put back.
func (o *outgoing) sendData(s *stream, answer chan error) error {
	if err := o.accepted(answer); err != nil {
		return err
	}
	w := &patientWriter{s}
	for o.at < o.size {
		chunk, err := o.next(answer)
		if err != nil {
			return err
		}
		n, err := w.Write(chunk)
		o.at += int64(n)
		if err != nil {
			return err
		}
	}
	return nil
}

// accepted waits until the receiver has the request: one that has no room for the snapshot answers before a byte of it.
func (o *outgoing) accepted(answer chan error) error {
	stalled := time.NewTimer(snapshotStall)
	defer stalled.Stop()
	for !o.resumable() {
		select {
		case <-o.moved:
		case err := <-answer:
			answer <- err
			return io.ErrUnexpectedEOF // the answer says it
		case <-stalled.C:
			return fmt.Errorf("the request was not taken for %s", snapshotStall)
		}
	}
	return nil
}

// next returns what is to be sent at o.at.
func (o *outgoing) next(answer chan error) ([]byte, error) {
	at := o.base
	for _, c := range o.kept {
		if at+int64(len(c)) > o.at {
			return c[o.at-at:], nil
		}
		at += int64(len(c))
	}
	stalled := time.NewTimer(snapshotStall)
	defer stalled.Stop()
	for o.forget(); o.at-o.base >= sendWindow; o.forget() {
		select {
		case <-o.moved:
		case err := <-answer:
			answer <- err
			return nil, io.ErrUnexpectedEOF // the answer says it
		case <-stalled.C:
			return nil, fmt.Errorf("nothing was acknowledged for %s", snapshotStall)
		}
	}
	return o.read()
}

func (o *outgoing) read() ([]byte, error) {
	var c []byte
	if n := len(o.free); n > 0 {
		c, o.free = o.free[n-1], o.free[:n-1]
	} else {
		c = make([]byte, 0, sendChunk)
	}
	n, err := io.ReadFull(o.data, c[:min(sendChunk, o.size-o.at)])
	if err != nil {
		o.lost = true
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("%d of %d bytes: %w", o.at+int64(n), o.size, io.ErrUnexpectedEOF)
		}
		return nil, err
	}
	o.kept = append(o.kept, c[:n])
	return c[:n], nil
}

// resume asks the receiver where it is, and goes there.
func (o *outgoing) resume(s *stream, header raft.RPCHeader, timeout time.Duration) error {
	if err := s.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	if err := s.send(kindResumeSnapshot, &resumeRequest{header, o.id[:]}); err != nil {
		return err
	}
	if o.at == o.size { // Raft may be loading it
		if err := s.SetReadDeadline(time.Now().Add(o.patience())); err != nil {
			return err
		}
	}
	k, body, err := s.receive()
	if err != nil {
		return err
	}
	if k != kindProgress {
		if err := answerOf(k, body, &raft.InstallSnapshotResponse{}); err != nil {
			return err
		}
		return fmt.Errorf("%w: an answer before the snapshot goes on", errFrame)
	}
	var p progress
	if err := decodeMessage(body, &p); err != nil {
		return err
	}
	return o.rewind(p)
}

// rewind goes to where the receiver is, if it has what was sent until there.
func (o *outgoing) rewind(p progress) error {
	if p.Offset < uint64(o.base) || p.Offset > uint64(o.end()) {
		return fmt.Errorf("%w: it is at %d, and there is %d to %d", errNotTheSame, p.Offset, o.base, o.end())
	}
	sum := o.digest
	left := int64(p.Offset) - o.base
	for _, c := range o.kept {
		n := min(left, int64(len(c)))
		_, _ = sum.Write(c[:n])
		left -= n
	}
	if sum.Sum64() != p.Sum {
		return fmt.Errorf("%w: its checksum at %d is %016x, not %016x", errNotTheSame, p.Offset, p.Sum, sum.Sum64())
	}
	o.at = int64(p.Offset)
	o.mu.Lock()
	o.reached = max(o.reached, o.at)
	o.mu.Unlock()
	return nil
}

// incoming is a snapshot that is being received: what Raft reads it from. Raft's main loop has it
// until it answers, then the goroutine that serves the first stream, but for what mu guards.
type incoming struct {
	t      *Transport
	id     string
	from   proto.NodeID
	term   uint64
	size   int64
	closed <-chan struct{}

	offset int64
	told   int64 // in progress that was sent
	digest xxhash.Digest
	s      *stream // nil once it has failed
	err    error   // Raft was told that there is no more
	first  *stream // which its own goroutine closes

	mu      sync.Mutex
	current *stream // s, for those who close it
	next    *stream // that came meanwhile
	over    bool
	arrived chan struct{}
}

// receiving begins to receive what follows a request on s.
func (t *Transport) receiving(s *stream, req *installRequest) *incoming {
	in := &incoming{
		t: t, id: string(req.Transfer), from: s.peer(req), term: req.Term, size: req.Size, closed: t.cutOff(),
		s: s, first: s, current: s, arrived: make(chan struct{}, 1),
	}
	in.digest.Reset()
	// Before Raft has it: the heartbeats that come behind it are not urgent.
	if in.term > t.installing.Load() {
		t.installing.Store(in.term)
	}
	t.mu.Lock()
	t.incoming[in.id] = in
	t.mu.Unlock()
	if err := in.tell(); err != nil {
		in.broken()
	}
	return in
}

// peer is the node at the other end of a stream: by its certificate, if there are any.
func (s *stream) peer(req raft.WithRPCHeader) proto.NodeID {
	if from, ok := s.Conn.(interface{ peerNode() proto.NodeID }); ok {
		return from.peerNode()
	}
	return proto.NodeID(req.GetRPCHeader().ID)
}

// tell sends how far it is.
func (in *incoming) tell() error {
	if err := in.s.SetWriteDeadline(time.Now().Add(in.t.timeout)); err != nil {
		return err
	}
	in.told = in.offset
	return in.s.send(kindProgress, &progress{uint64(in.offset), in.digest.Sum64()})
}

// Read implements io.Reader, for Raft.
func (in *incoming) Read(p []byte) (int, error) {
	in.t.installing.Store(in.term)
	for {
		if in.offset == in.size {
			return 0, io.EOF
		}
		if len(p) == 0 || in.err != nil { // Raft reads on, to have read all
			return 0, in.err
		}
		n, err := 0, io.ErrUnexpectedEOF
		if in.s != nil {
			if err = in.s.SetReadDeadline(time.Now().Add(snapshotStall)); err == nil {
				n, err = in.s.r.Read(p[:min(int64(len(p)), in.size-in.offset)])
			}
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
		}
		if n > 0 {
			in.offset += int64(n)
			_, _ = in.digest.Write(p[:n])
			if in.offset-in.told >= progressStep && in.tell() != nil {
				in.broken()
			}
			return n, nil
		}
		if err == nil {
			continue
		}
		in.broken()
		if why := in.await(true); why != nil {
			in.err = fmt.Errorf("%w (%w)", err, why)
			return 0, in.err
		}
	}
}

// broken lets go of a connection that has failed.
func (in *incoming) broken() {
	if in.s == nil {
		return
	}
	if s := in.s; s != in.first {
		in.t.drop(s)
	} else {
		s.Close()
	}
	in.mu.Lock()
	in.s, in.current = nil, nil
	in.mu.Unlock()
}

// await waits for another connection, and says there how far it is.
func (in *incoming) await(inRaft bool) error {
	end := time.NewTimer(resumeWithin)
	defer end.Stop()
	look := time.NewTicker(waitingTick)
	defer look.Stop()
	for {
		select {
		case <-in.arrived:
		case <-in.closed:
			return raft.ErrTransportShutdown
		case <-end.C:
			return errors.New("no other one came")
		case <-look.C:
			if inRaft && in.t.urgent.Load() > 0 {
				return errNeeded
			}
			continue
		}
		in.mu.Lock()
		in.s, in.next = in.next, nil
		in.current = in.s
		in.mu.Unlock()
		if in.s == nil {
			continue
		}
		if in.tell() == nil {
			return nil
		}
		in.broken()
	}
}

// resumes takes another stream for a transfer, over which it owns from then on.
func (t *Transport) resumes(s *stream, req *resumeRequest) error {
	t.mu.Lock()
	in := t.incoming[string(req.Transfer)]
	t.mu.Unlock()
	if in == nil || in.from != s.peer(req) {
		return errNoTransfer
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.over {
		return errNoTransfer
	}
	if in.next != nil {
		t.drop(in.next)
	}
	in.next = s
	if in.current != nil {
		in.current.Close() // who reads there goes on here
	}
	select {
	case in.arrived <- struct{}{}:
	default:
	}
	return nil
}

// answer sends Raft's answer, and again to a sender that comes back because it was lost.
func (in *incoming) answer(got raft.RPCResponse) error {
	defer in.end()
	err := in.answerOnce(got)
	if in.err != nil {
		return err
	}
	for {
		if err != nil {
			in.broken()
		}
		if in.await(false) != nil {
			return err
		}
		err = in.answerOnce(got)
	}
}

func (in *incoming) answerOnce(got raft.RPCResponse) error {
	if in.s == nil {
		return io.ErrClosedPipe
	}
	if err := in.s.SetWriteDeadline(time.Now().Add(in.t.timeout)); err != nil {
		return err
	}
	if got.Error != nil {
		return in.s.refuse(got.Error)
	}
	return in.s.send(kindAnswer, got.Response)
}

// end forgets the transfer.
func (in *incoming) end() {
	in.t.mu.Lock()
	delete(in.t.incoming, in.id)
	in.t.mu.Unlock()
	in.mu.Lock()
	in.over = true
	// Raft may still be reading from s, if the transport has closed.
	s, next := in.current, in.next
	in.current, in.next = nil, nil
	in.mu.Unlock()
	if next != nil {
		in.t.drop(next)
	}
	if s != nil && s != in.first {
		in.t.drop(s)
	}
}

// isUrgent reports whether a request must not wait for a snapshot whose connection has broken: all but
// the entries and heartbeats of the leader that sends it.
func (t *Transport) isUrgent(req any) bool {
	a, ok := req.(*raft.AppendEntriesRequest)
	return !ok || a.Term > t.installing.Load()
}

// decodeMessage reads a message.
func decodeMessage(body []byte, m any) error {
	c := coder{buf: body, reading: true}
	return c.message(m)
}

// sum is a number of fixed length: as a varint it would be longer.
func (c *coder) sum(v *uint64) {
	if !c.reading {
		c.buf = binary.BigEndian.AppendUint64(c.buf, *v)
		return
	}
	if len(c.buf) < 8 {
		c.fail()
		return
	}
	*v, c.buf = binary.BigEndian.Uint64(c.buf), c.buf[8:]
}
