package exchange

import (
	"encoding/binary"
	"errors"
	"fmt"

	protobuf "google.golang.org/protobuf/proto"

	"github.com/quorate/quorate/proto"
)

// Calls to a peer, and its answers, that are waiting at the same time share a message: what gRPC,
// TLS and the kernel do for a message, and the goroutines that it wakes at both ends, cost more than
// what is in most of them. Nothing waits for others to come.
const (
	// A message is full when it has so many parts, or so many bytes. The last part may be as long as
	// it likes, so that a message is never longer than this and one call.
	fullParts = 64
	fullBytes = 64 << 10
	// mostParts is how many are taken of another node.
	mostParts = 1024
)

var errTogether = errors.New("a message of several is broken")

// appendPart appends a part to a message of several.
func appendPart(b []byte, m protobuf.Message) ([]byte, error) {
	o := protobuf.MarshalOptions{}
	n := o.Size(m)
	b = binary.AppendUvarint(b, uint64(n))
	at := len(b)
	o.UseCachedSize = true
	b, err := o.MarshalAppend(b, m)
	if err == nil && len(b)-at != n {
		err = fmt.Errorf("%w: a part of %d bytes has %d", errTogether, n, len(b)-at)
	}
	return b, err
}

// parts calls f with the bytes of each part of a message, of which it keeps nothing, once it is known
// that there are not too many and that all are whole.
func parts(b []byte, f func([]byte) error) error {
	n := 0
	for rest := b; len(rest) > 0; n++ {
		size, k := binary.Uvarint(rest)
		if k <= 0 || size > uint64(len(rest)-k) {
			return fmt.Errorf("%w: part %d is cut", errTogether, n)
		}
		if n == mostParts {
			return fmt.Errorf("%w: more than %d parts", errTogether, mostParts)
		}
		rest = rest[k+int(size):]
	}
	for len(b) > 0 {
		size, k := binary.Uvarint(b)
		end := k + int(size)
		if err := f(b[k:end]); err != nil {
			return err
		}
		b = b[end:]
	}
	return nil
}

// Requests calls f with each call of a message: with itself unless it is of several. It is exported for tests.
func Requests(req *proto.PeerRequest, f func(*proto.PeerRequest) error) error {
	t, ok := req.Request.(*proto.PeerRequest_Together)
	if !ok {
		return f(req)
	}
	return parts(t.Together, func(b []byte) error {
		part := &proto.PeerRequest{}
		if err := protobuf.Unmarshal(b, part); err != nil {
			return fmt.Errorf("%w: %w", errTogether, err)
		}
		return f(part)
	})
}

// Responses calls f with each answer of a message: with itself unless it is of several. It is exported for tests.
func Responses(resp *proto.PeerResponse, f func(*proto.PeerResponse)) error {
	t, ok := resp.Answer.(*proto.PeerResponse_Together)
	if !ok {
		f(resp)
		return nil
	}
	return parts(t.Together, func(b []byte) error {
		part := &proto.PeerResponse{}
		if err := protobuf.Unmarshal(b, part); err != nil {
			return fmt.Errorf("%w: %w", errTogether, err)
		}
		f(part)
		return nil
	})
}

// requestOf is the message for calls, which are one or more.
func requestOf(calls []*Call) (*proto.PeerRequest, error) {
	if len(calls) == 1 {
		return &calls[0].Request, nil
	}
	size := 0
	for _, c := range calls {
		size += len(c.Request.GetPropose()) + 32
	}
	b, err := make([]byte, 0, size), error(nil)
	for _, c := range calls {
		if b, err = appendPart(b, &c.Request); err != nil {
			return nil, err
		}
	}
	return &proto.PeerRequest{Request: &proto.PeerRequest_Together{Together: b}}, nil
}

// responseOf is the message for the first of some answers, and how many of them are in it.
func responseOf(answers []*proto.PeerResponse) (*proto.PeerResponse, int, error) {
	var b []byte
	n := 0
	for ; n < len(answers) && n < fullParts && len(b) < fullBytes; n++ {
		var err error
		if b, err = appendPart(b, answers[n]); err != nil {
			return nil, 0, err
		}
	}
	if n == 1 {
		return answers[0], 1, nil
	}
	return &proto.PeerResponse{Answer: &proto.PeerResponse_Together{Together: b}}, n, nil
}
