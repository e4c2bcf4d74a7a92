package peer

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// readBuffer takes one TLS record of full size.
	readBuffer = 16 << 10
	// keepBuffer is the largest send buffer that a stream keeps between frames.
	keepBuffer = 1 << 20
	// bodyStep bounds what is allocated on the word of a frame's header alone.
	bodyStep = 1 << 20
	// maxRefusal bounds the text of an error.
	maxRefusal = 4 << 10
)

// stream is one connection with its framing. Sending and receiving may go on
// at the same time, each from one goroutine.
type stream struct {
	net.Conn
	target raft.ServerAddress // where it was dialled to
	used   bool               // it has carried a call before
	r      *bufio.Reader
	out    []byte
}

func newStream(c net.Conn, target raft.ServerAddress) *stream {
	return &stream{Conn: c, target: target, r: bufio.NewReaderSize(c, readBuffer)}
}

// send writes one frame with one Write.
func (s *stream) send(k kind, m any) error {
	c := coder{buf: append(s.out[:0], 0, 0, 0, 0, byte(k))}
	if err := c.message(m); err != nil {
		return err
	}
	return s.flush(c.buf)
}

// refuse sends an error in place of an answer.
func (s *stream) refuse(err error) error {
	text := err.Error()
	text = text[:min(len(text), maxRefusal)]
	return s.flush(append(append(s.out[:0], 0, 0, 0, 0, byte(kindRefusal)), text...))
}

func (s *stream) flush(frame []byte) error {
	n := len(frame) - frameHeader
	if n > maxFrame {
		return fmt.Errorf("%w: %d bytes", errFrameTooBig, n)
	}
	binary.BigEndian.PutUint32(frame, uint32(n))
	_, err := s.Write(frame)
	if cap(frame) <= keepBuffer {
		s.out = frame
	}
	return err
}

// receive reads one frame. The message is the caller's to keep.
func (s *stream) receive() (kind, []byte, error) {
	head, err := s.r.Peek(frameHeader)
	if err != nil {
		if err == io.EOF && len(head) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	n, k := binary.BigEndian.Uint32(head), kind(head[4])
	if n > maxFrame {
		return 0, nil, fmt.Errorf("%w: %d bytes", errFrameTooBig, n)
	}
	_, _ = s.r.Discard(frameHeader) // they are in the buffer
	body, err := readBody(s.r, int(n))
	return k, body, err
}

// readBody reads n bytes, and allocates in proportion to what has arrived.
func readBody(r io.Reader, n int) ([]byte, error) {
	body := make([]byte, min(n, bodyStep))
	for have := 0; ; {
		if _, err := io.ReadFull(r, body[have:]); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		if have = len(body); have == n {
			return body, nil
		}
		body = append(make([]byte, 0, min(n, 2*have)), body...)
		body = body[:cap(body)]
	}
}

// remoteError is an error that the peer sent as its answer: the stream is fine.
type remoteError string

func (e remoteError) Error() string { return string(e) }

// answer reads the answer to a request into resp, which stays zero on error.
func (s *stream) answer(resp any) error {
	k, body, err := s.receive()
	if err != nil {
		return err
	}
	return answerOf(k, body, resp)
}

// answerOf reads an answer's frame into resp.
func answerOf(k kind, body []byte, resp any) error {
	switch k {
	case kindAnswer:
		c := coder{buf: body, reading: true}
		return c.message(resp)
	case kindRefusal:
		return remoteError(body)
	}
	return fmt.Errorf("%w: kind %d is not an answer", errFrame, k)
}

// call sends a request and reads its answer.
func (s *stream) call(timeout time.Duration, k kind, req, resp any) error {
	if err := s.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	if err := s.send(k, req); err != nil {
		return err
	}
	return s.answer(resp)
}

func isRemote(err error) bool {
	var e remoteError
	return errors.As(err, &e)
}
