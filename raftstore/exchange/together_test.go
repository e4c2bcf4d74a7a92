package exchange

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"
	protobuf "google.golang.org/protobuf/proto"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
)

func proposeCall(id uint64, size int) *Call {
	return &Call{Request: proto.PeerRequest{Id: id, Term: 7, Request: &proto.PeerRequest_Propose{Propose: make([]byte, size)}}}
}

// What several calls, or answers, become in a message is what they were.
func TestTogetherIsWhatWasApart(t *testing.T) {
	calls := []*Call{
		proposeCall(1, 3), proposeCall(2, 0), proposeCall(1<<60, 1<<17),
		{Request: proto.PeerRequest{Id: 4, Request: &proto.PeerRequest_ReadIndex{ReadIndex: &proto.ReadIndexRequest{Term: 9}}}},
	}
	req, err := requestOf(calls)
	must.OK(t, err)
	n := 0
	must.OK(t, Requests(req, func(got *proto.PeerRequest) error {
		if want := &calls[n].Request; !protobuf.Equal(got, want) {
			t.Errorf("call %d: %v, want %v", n, got, want)
		}
		n++
		return nil
	}))
	if n != len(calls) {
		t.Errorf("%d calls, want %d", n, len(calls))
	}
	if req, err := requestOf(calls[:1]); err != nil || req != &calls[0].Request {
		t.Errorf("one call is %v, %v, want the call", req, err)
	}

	var answers []*proto.PeerResponse
	for i := range 3*fullParts + 1 {
		a := &proto.PeerResponse{Id: uint64(i + 1), Answer: &proto.PeerResponse_Propose{Propose: &proto.ProposeResponse{Index: uint64(i)}}}
		if i == fullParts {
			a.GetPropose().Detail = string(make([]byte, 2*fullBytes)) // nothing behind it in its message
		}
		answers = append(answers, a)
	}
	var sizes []int
	n = 0
	for rest := answers; len(rest) > 0; {
		resp, k, err := responseOf(rest)
		must.OK(t, err)
		must.OK(t, Responses(resp, func(got *proto.PeerResponse) {
			if !protobuf.Equal(got, answers[n]) {
				t.Errorf("answer %d is another one", n)
			}
			n++
		}))
		sizes, rest = append(sizes, k), rest[k:]
	}
	if n != len(answers) || fmt.Sprint(sizes) != fmt.Sprint([]int{fullParts, 1, fullParts, fullParts}) {
		t.Errorf("%d answers in messages of %d", n, sizes)
	}
}

// What another node sends is refused as a whole if it is not whole, and bounded.
func TestBrokenTogether(t *testing.T) {
	req, err := requestOf([]*Call{proposeCall(1, 10), proposeCall(2, 10)})
	must.OK(t, err)
	whole := req.GetTogether()
	many := func(n int) []byte { return make([]byte, n) } // a part without bytes is one byte
	nested, err := appendPart(nil, req)
	must.OK(t, err)
	for name, row := range map[string]struct {
		b     []byte
		calls int
		ok    bool
	}{
		"whole":                {whole, 2, true},
		"nothing":              {nil, 0, true},
		"cut":                  {whole[:len(whole)-1], 0, false},
		"a byte more":          {append(whole[:len(whole):len(whole)], 1), 0, false},
		"longer than all":      {binary.AppendUvarint(nil, 1<<63), 0, false},
		"a length without end": {[]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 0, false},
		"as many as may be":    {many(mostParts), mostParts, true},
		"one more":             {many(mostParts + 1), 0, false},
		"no message":           {append(whole[:len(whole):len(whole)], 1, 0xff), 2, false},
	} {
		n := 0
		err := Requests(&proto.PeerRequest{Request: &proto.PeerRequest_Together{Together: row.b}}, func(*proto.PeerRequest) error { n++; return nil })
		if (err == nil) != row.ok || err != nil && !errors.Is(err, errTogether) || n != row.calls {
			t.Errorf("%s: %d calls, %v", name, n, err)
		}
	}
	// One within another is a call of its own, which nobody knows.
	must.OK(t, Requests(&proto.PeerRequest{Request: &proto.PeerRequest_Together{Together: nested}}, func(in *proto.PeerRequest) error {
		if _, ok := in.Request.(*proto.PeerRequest_Together); !ok {
			t.Errorf("nested: %v", in)
		}
		return nil
	}))
}

func FuzzTogether(f *testing.F) {
	req, err := requestOf([]*Call{proposeCall(1, 10), proposeCall(2, 0)})
	must.OK(f, err)
	f.Add(req.GetTogether())
	f.Add([]byte{0, 0, 1})
	f.Add(binary.AppendUvarint(nil, 1<<63))
	f.Fuzz(func(t *testing.T, b []byte) {
		var calls []*Call
		err := Requests(&proto.PeerRequest{Request: &proto.PeerRequest_Together{Together: b}}, func(r *proto.PeerRequest) error {
			calls = append(calls, &Call{Request: proto.PeerRequest{Id: r.Id, Request: r.Request, Term: r.Term}})
			return nil
		})
		if len(calls) > mostParts {
			t.Fatalf("%d calls", len(calls))
		}
		if err != nil || len(calls) < 2 {
			return
		}
		again, err := requestOf(calls)
		must.OK(t, err)
		n := 0
		must.OK(t, Requests(again, func(r *proto.PeerRequest) error {
			if want := &calls[n].Request; r.Id != want.Id || r.Term != want.Term || string(r.GetPropose()) != string(want.GetPropose()) {
				t.Errorf("call %d: %v, want %v", n, r, want)
			}
			n++
			return nil
		}))
	})
}

// Calls that wait go together, up to a number and a size.
func TestGather(t *testing.T) {
	for name, row := range map[string]struct {
		sizes, want []int // of the calls that wait; how many are in each message
	}{
		"one":        {[]int{1}, []int{1}},
		"some":       {[]int{1, 1, 1}, []int{3}},
		"many":       {make([]int, 2*fullParts+1), []int{fullParts, fullParts, 1}},
		"large ones": {[]int{fullBytes - 1, fullBytes, 1, fullBytes, 1, 1}, []int{2, 2, 2}},
	} {
		p := &peerStream{queue: make(chan *Call, streamQueue)}
		for _, size := range row.sizes {
			p.queue <- proposeCall(1, size)
		}
		var got []int
		for len(p.queue) > 0 {
			got = append(got, len(p.gather([]*Call{<-p.queue})))
		}
		if fmt.Sprint(got) != fmt.Sprint(row.want) {
			t.Errorf("%s: messages of %d calls, want %d", name, got, row.want)
		}
	}
}

// stuckStream is a stream whose caller takes no answers.
type stuckStream struct {
	grpc.BidiStreamingServer[proto.PeerRequest, proto.PeerResponse]
	ctx   context.Context
	calls chan *proto.PeerRequest
}

func (s *stuckStream) Context() context.Context { return s.ctx }

func (s *stuckStream) Send(*proto.PeerResponse) error {
	<-s.ctx.Done()
	return s.ctx.Err()
}

func (s *stuckStream) Recv() (*proto.PeerRequest, error) {
	select {
	case r := <-s.calls:
		return r, nil
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

// refusing answers each call a moment later.
type refusing struct{}

func (refusing) AnswerAtOnce(*proto.PeerRequest) *proto.PeerResponse { return nil }

func (refusing) Serve(_ context.Context, req *proto.PeerRequest, done func(*proto.PeerResponse)) {
	done(&proto.PeerResponse{Id: req.Id, Answer: &proto.PeerResponse_Refused{Refused: "no"}})
}

// A caller that takes no answers is not read from for ever.
func TestAnswersAreBounded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	stream := &stuckStream{ctx: ctx, calls: make(chan *proto.PeerRequest)}
	ended := make(chan error)
	go func() { ended <- NewServer(make(chan struct{})).Serve(stream, refusing{}) }()
	n := 0
	for taken := true; taken && n <= 4*streamQueue; {
		select {
		case stream.calls <- &proto.PeerRequest{Id: uint64(n), Request: &proto.PeerRequest_Propose{Propose: []byte("v")}}:
			n++
		case <-time.After(time.Second):
			taken = false
		}
	}
	t.Logf("%d calls were taken", n)
	if n > 2*streamQueue {
		t.Errorf("%d calls were taken of a caller that takes no answers", n)
	}
	cancel()
	<-ended
}
