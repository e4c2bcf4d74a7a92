package peer

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/proto"
)

// accept takes inbound streams from the layer until either is closed.
func (t *Transport) accept() {
	for {
		conn, err := t.layer.Accept()
		switch {
		case err == nil:
			if !t.register(conn) {
				conn.Close()
				return
			}
			t.wg.Go(func() { t.serve(newStream(conn, "")) })
		case errors.Is(err, net.ErrClosed):
			t.end()
			return
		default:
			t.logs.Warn(t.logger, "cannot accept a Raft stream", "err", err)
			select {
			case <-time.After(100 * time.Millisecond):
			case <-t.done:
				return
			}
		}
	}
}

// serve answers the requests of one inbound stream, one after the other.
func (t *Transport) serve(s *stream) {
	taken := false
	defer func() {
		if !taken {
			t.drop(s)
		}
	}()
	answers := make(chan raft.RPCResponse, 1) // each request is answered once
	for {
		err := t.serveOne(s, answers)
		if err == nil {
			continue
		}
		if taken = err == errTaken; taken {
			return
		}
		if err != io.EOF && !errors.Is(err, net.ErrClosed) && !errors.Is(err, raft.ErrTransportShutdown) {
			t.logs.Warn(t.logger, "Raft stream ended", "remote", s.RemoteAddr(), "err", err)
		}
		return
	}
}

// turnAway answers a request that raft must not see. Behind it there may be a
// snapshot's bytes, which nobody will read: then the stream ends.
func (s *stream) turnAway(req any, why error, timeout time.Duration) error {
	if err := s.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	if err := s.refuse(why); err != nil {
		return err
	}
	if _, ok := req.(*raft.InstallSnapshotRequest); ok {
		return why
	}
	return nil
}

func (t *Transport) serveOne(s *stream, answers chan raft.RPCResponse) error {
	req, err := s.receiveRequest()
	if err != nil {
		return err
	}
	install, _ := req.(*installRequest)
	if install != nil {
		req = install.InstallSnapshotRequest
	}
	if resume, ok := req.(*resumeRequest); ok {
		if err := t.resumes(s, resume); err != nil {
			return s.turnAway(req, err, t.timeout)
		}
		return errTaken
	}
	if err := normalize(req); err != nil {
		return s.turnAway(req, err, t.timeout)
	}
	rpc := raft.RPC{Command: req, RespChan: answers}
	if install != nil {
		if len(install.Transfer) != transferID {
			return s.turnAway(req, fmt.Errorf("%w: a snapshot with a transfer id of %d bytes", errFrame, len(install.Transfer)), t.timeout)
		}
	}
	switch err := t.admitted(req); {
	case errors.Is(err, raft.ErrTransportShutdown):
		return err
	case err != nil:
		if err := s.turnAway(req, err, t.timeout); install == nil {
			return err
		}
		return io.EOF // who asks says why, and logs it if it is worth a line here
	}
	if install != nil {
		return t.serveSnapshot(t.receiving(s, install), rpc, answers)
	}
	got, err := t.ask(rpc, answers)
	if err != nil {
		return err
	}
	if err := s.SetWriteDeadline(time.Now().Add(t.timeout)); err != nil {
		return err
	}
	if got.Error != nil {
		err = s.refuse(got.Error)
	} else {
		err = s.send(kindAnswer, got.Response)
	}
	return err
}

// errTaken says that a stream belongs to a snapshot that was resumed on it.
var errTaken = errors.New("the stream has another owner")

// serveSnapshot has Raft read a snapshot, and answers. A stream carries one.
func (t *Transport) serveSnapshot(in *incoming, rpc raft.RPC, answers <-chan raft.RPCResponse) error {
	rpc.Reader = in
	got, err := t.ask(rpc, answers)
	if err != nil {
		in.end()
		return err
	}
	if err := in.answer(got); err != nil {
		return err
	}
	return io.EOF
}

// receiveRequest reads the next request of the node that has the stream.
func (s *stream) receiveRequest() (any, error) {
	k, body, err := s.receive()
	if err != nil {
		return nil, err
	}
	req := requestOf(k)
	if req == nil {
		return nil, fmt.Errorf("%w: kind %d is not a request", errFrame, k)
	}
	c := coder{buf: body, reading: true}
	if err := c.message(req); err != nil {
		return nil, err
	}
	return req, s.checkSender(req)
}

// normalize refuses a message that no node can mean, and bounds or completes the others
// where the library would not.
func normalize(req any) error {
	if err := checkTerms(req); err != nil {
		return err
	}
	switch r := req.(type) {
	case *raft.AppendEntriesRequest:
		boundCommit(r)
	case *raft.RequestVoteRequest:
		return nameCandidate(r)
	}
	return nil
}

// ask hands a request to Raft and waits for its answer. The error is raft.ErrTransportShutdown.
func (t *Transport) ask(rpc raft.RPC, answers <-chan raft.RPCResponse) (raft.RPCResponse, error) {
	if err := t.give(rpc); err != nil {
		return raft.RPCResponse{}, err
	}
	select {
	case got := <-answers:
		return got, nil
	case <-t.done:
		return raft.RPCResponse{}, raft.ErrTransportShutdown
	}
}

// Admit has admit asked about each request of another node before Raft sees it, with the node and the address that it
// names. An error is the answer to the request. It may wait; it is called concurrently. Nil admits everybody. It is called
// before Raft is there, and again for another Raft; a transport of a Host hands Raft nothing before.
func (t *Transport) Admit(admit func(req any, id raft.ServerID, addr raft.ServerAddress) error) {
	if t.admit.Swap(&admit) == nil {
		close(t.admitting)
	}
}

// admitted waits until Raft may see a request, or returns why it may not.
func (t *Transport) admitted(req any) error {
	if t.admitting == nil {
		return nil
	}
	select {
	case <-t.admitting:
	case <-t.done:
		return raft.ErrTransportShutdown
	}
	admit := *t.admit.Load()
	if admit == nil {
		return nil
	}
	from := req.(raft.WithRPCHeader).GetRPCHeader()
	return admit(req, raft.ServerID(from.ID), t.DecodePeer(from.Addr))
}

// give waits until Raft takes a request.
func (t *Transport) give(rpc raft.RPC) error {
	if t.isUrgent(rpc.Command) {
		t.urgent.Add(1)
		defer t.urgent.Add(-1)
	}
	select {
	case t.consumer <- rpc:
		return nil
	case <-t.done:
		return raft.ErrTransportShutdown
	}
}

// checkSender refuses a message in another node's name. A stream from a layer
// that knows no certificates passes.
func (s *stream) checkSender(req any) error {
	from, ok := s.Conn.(interface{ peerNode() proto.NodeID })
	if !ok {
		return nil
	}
	said := req.(raft.WithRPCHeader).GetRPCHeader().ID
	if node := from.peerNode(); string(said) != string(node) {
		return fmt.Errorf("%w: message of node %.200q on a stream of node %s", ErrWrongNode, said, node)
	}
	return nil
}
