package membership

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quorate/quorate/proto"
)

// wire maps errors to gRPC codes and back, first match first. The text travels
// with them, and the sentinel is found again on the other side.
var wire = []struct {
	err  error
	code codes.Code
}{
	{ErrRemoved, codes.PermissionDenied},
	{ErrTooOld, codes.FailedPrecondition},
	{ErrNotMember, codes.PermissionDenied},
	{ErrNotLeader, codes.Unavailable},
	{ErrNoLeader, codes.Unavailable},
	{ErrConflict, codes.Aborted},
	{ErrNotFound, codes.NotFound},
	{ErrAmbiguous, codes.InvalidArgument},
	{ErrOtherCluster, codes.FailedPrecondition},
	{ErrRefused, codes.FailedPrecondition},
	{ErrUnknownOutcome, codes.Unknown},
}

func toStatus(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	for _, w := range wire {
		if errors.Is(err, w.err) {
			return status.Error(w.code, err.Error())
		}
	}
	return status.Error(codes.Unknown, err.Error())
}

// remoteError is an error of another node: its text, and what it is.
type remoteError struct {
	text string
	is   error
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.is }

// errNotReached is wrapped by errors of calls that may or may not have arrived.
var errNotReached = errors.New("no answer")

func fromStatus(err error) error {
	if err == nil {
		return nil
	}
	s, ok := status.FromError(err)
	if !ok {
		return err
	}
	for _, w := range wire {
		if s.Code() == w.code && strings.Contains(s.Message(), w.err.Error()) {
			return &remoteError{s.Message(), w.err}
		}
	}
	switch s.Code() {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return fmt.Errorf("%w: %s", errNotReached, s.Message())
	}
	return &remoteError{s.Message(), nil}
}

// checkMember bounds what another node says about a node.
func checkMember(p *proto.Member) error {
	switch {
	case p == nil:
		return errors.New("no member given")
	case p.NodeId == "" || len(p.NodeId) > 128:
		return fmt.Errorf("bad node id %.130q", p.NodeId)
	case len(p.Name) > 63, len(p.PeerAddress) > maxAddressBytes, len(p.ApiAddress) > maxAddressBytes:
		return fmt.Errorf("node %s: name or address too long", p.NodeId)
	}
	return nil
}
