package apiserver

import (
	"context"
	"errors"
	"time"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/wire/request"
	"github.com/quorate/quorate/apiserver/wire/status"
	"github.com/quorate/quorate/internal/slots"
)

// cheapRead is up to how many bytes a read needs no slot.
const cheapRead = 64 << 10

// lightBody is up to how many bytes of a body a light request is one.
const lightBody = 64 << 10

// computing is a request's part in what the node computes: package slots.
type computing struct {
	turn   slots.Turn
	pieces bool // the answer is encoded and written in pieces
	writes bool // a piece is written, and others may have the slot
}

// begin waits until the request may compute what it asks for, body included: for a slot, and for its turn to change the object.
// It has both until its answer begins. What waited in vain has cost nothing yet, and is refused. Errors: 429, 504, the context's.
func (w *computing) begin(c *call, body int) error {
	now := time.Now()
	until := now.Add(c.deadline().Sub(now) / 2)
	w.turn.Of(c.s.slots, c.User.Owner(), c.r.RemoteAddr, light(&c.Op) && body <= lightBody)
	err := w.turn.Take(c.Context, until)
	if err == nil && request.ChangesObject(c.Info.Verb) && c.Info.Name != "" {
		err = w.turn.Enter(c.Context, &c.s.writers, c.Resource.Table()+" "+c.Key(), until)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return status.Timeout()
	case errors.Is(err, slots.ErrNoSlot), errors.Is(err, slots.ErrNoTurn):
		c.cfg.Observer.RequestRefused(request.Mutates(c.Info.Verb), "slots")
		return status.TooMany(retryRefused)
	}
	return err
}

// beginList is begin for a list, which is encoded and written in pieces: it has the slot for each of them.
func (w *computing) beginList(c *call) error {
	of := c.s.collection(&c.Op, c.r.URL.RawQuery)
	looked := of.Objects
	if of.Limit > 0 && c.Options.LabelSelector == "" && c.Options.FieldSelector == "" {
		looked = min(looked, of.Limit)
	}
	if of.Single || looked*of.Bytes <= cheapRead*of.Objects {
		return nil
	}
	w.pieces = true
	return w.begin(c, 0)
}

// answers is called when the answer begins.
func (w *computing) answers() {
	if !w.pieces {
		w.turn.End()
	}
}

// piece is called before a piece of the answer is written.
func (w *computing) piece() {
	if w.pieces && !w.writes {
		w.writes = true
		w.turn.Yield()
	}
}

// NextPiece is called before another piece of the answer is encoded: codec.Pieces.
func (c *call) NextPiece() {
	if w := &c.computing; w.writes {
		w.writes = false
		w.turn.Resume(c.Context)
	}
}

// light requests keep the cluster alive, and cost little.
func light(o *objects.Op) bool {
	return urgent(o) || o.Resource.Table() == "nodes" && o.Info.Subresource == "status"
}
