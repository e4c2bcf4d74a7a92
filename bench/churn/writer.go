package churn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/bench/measure"
)

// object is one that lives.
type object struct {
	name  string
	bytes int64
}

// plan decides what a client does next. It goes by a seed, so that each run does the same.
type plan struct {
	random            *rand.Rand
	target            int // objects of this client
	full              bool
	smallest, largest int
}

// next is the method of the next write of a client with some live objects. Until there are as many as are wanted, it is a create.
// Then 30 % are creates, 40 % updates and 30 % deletes, but for those that would go a tenth above or below.
func (p *plan) next(live int) string {
	p.full = p.full || live >= p.target
	margin := max(1, p.target/10)
	switch n := p.random.IntN(10); {
	case !p.full || live == 0:
		return http.MethodPost
	case n < 4:
		return http.MethodPut
	case n < 7 && live < p.target+margin || live <= p.target-margin:
		return http.MethodPost
	default:
		return http.MethodDelete
	}
}

// size draws the size of a value: as many are of 100 to 1,000 bytes as of 1,000 to 10,000.
func (p *plan) size() int {
	return int(math.Round(float64(p.smallest) * math.Pow(float64(p.largest)/float64(p.smallest), p.random.Float64())))
}

// writer is a client with objects of its own.
type writer struct {
	plan
	churn  *Churn
	link   *client.Link
	number int
	made   int
	live   []object
	answer bytes.Buffer
}

// run writes until all writes have been made, or ctx ends.
func (w *writer) run(ctx context.Context) {
	for ctx.Err() == nil && w.churn.left.Add(-1) >= 0 {
		w.write(ctx)
	}
}

// write makes the next write. What had no answer, or a bad one, is forgotten: the object may be there or not.
func (w *writer) write(ctx context.Context) {
	method := w.next(len(w.live))
	r := client.Request{Method: method, Path: w.churn.path(), Header: client.JSONBody}
	if method == http.MethodPost {
		w.made++
		w.live = append(w.live, object{name: fmt.Sprintf("c%d-%d", w.number, w.made)})
	} else {
		w.swapLast(w.random.IntN(len(w.live)))
	}
	o := &w.live[len(w.live)-1]
	if method != http.MethodPost {
		r.Path += "/" + o.name
	}
	if method != http.MethodDelete {
		n := w.size()
		from := w.random.IntN(len(w.churn.text) - n + 1)
		r.Body = []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + o.name + `"},"data":{"value":"` + w.churn.text[from:from+n] + `"}}`)
	}
	before, more := o.bytes, int64(0)
	err := w.send(ctx, r)
	switch {
	case err != nil || method == http.MethodDelete:
		w.live = w.live[:len(w.live)-1]
		if o.bytes = 0; before > 0 {
			more = -1
		}
	default:
		if o.bytes = int64(w.answer.Len()); before == 0 {
			more = 1
		}
	}
	if ctx.Err() == nil {
		w.churn.note(more, o.bytes-before, err)
	}
}

func (w *writer) swapLast(i int) {
	last := len(w.live) - 1
	w.live[i], w.live[last] = w.live[last], w.live[i]
}

// send sends a write, and again when the server asks for that.
func (w *writer) send(ctx context.Context, r client.Request) error {
	for {
		within, cancel := context.WithTimeout(ctx, w.churn.opt.Timeout)
		_, err := w.link.Do(within, r, &w.answer)
		cancel()
		var refusal *client.Refusal
		if !errors.As(err, &refusal) || refusal.Code != http.StatusTooManyRequests {
			return err
		}
		w.churn.again.Add(1)
		if measure.Pause(ctx, refusal.RetryAfter); ctx.Err() != nil {
			return err
		}
	}
}
