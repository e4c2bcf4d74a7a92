package apiserver

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/quorate/quorate/apiserver/wire/codec"
	"github.com/quorate/quorate/apiserver/wire/status"
	"github.com/quorate/quorate/consistency"
	"github.com/quorate/quorate/proto"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// watch serves a watch: where it starts, and what it is sent on. Its life is in watchstream.go.
func (c verbs) watch() error {
	if !c.cfg.WatchList && c.Options.SendInitialEvents != nil {
		return status.InvalidOptions("ListOptions", field.ErrorList{field.Forbidden(field.NewPath("sendInitialEvents"),
			"sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled")})
	}
	f, err := c.format(c.Resource, codec.ShapeWatch)
	if err != nil {
		return err
	}
	leave, err := enterWatches(c.call, &c.s.watchShares)
	if err != nil {
		return err
	}
	defer leave()
	sel, err := c.Select()
	if err != nil {
		return err
	}
	plan, err := consistency.PlanWatch(c.ListParams(sel))
	if err != nil {
		return err
	}
	at, err := c.awaitWatch(plan)
	var refused error // of the stream, which has begun by then
	if tooLarge := (*consistency.TooLargeError)(nil); errors.As(err, &tooLarge) && !tooLarge.Unconfirmed {
		// The cluster has no such revision: an event of the stream says so.
		refused, err = err, nil
	}
	if err != nil {
		return err
	}
	c.setIndexHeader(at)
	delivery := c.cfg.Delivery.Add(c.Kind.Group, c.Kind.Resource)
	defer c.cfg.Delivery.Remove(delivery)
	to := &watchConn{call: c.call, delivery: delivery}
	serve := func(events *codec.EventWriter, conn deadline) {
		w := &watchStream{call: c.call, sel: sel, events: events, to: to, delivery: delivery}
		w.entry = c.s.watches.add(conn, delivery)
		defer c.s.watches.remove(w.entry)
		if of, ok := watched(sel, c.Resource.Table()); ok {
			c.s.watchers.Add(of)
			defer c.s.watchers.Remove(of)
		}
		// From here on failures are events of the stream.
		if refused != nil {
			w.fail(refused)
			return
		}
		w.run(plan, at)
	}
	if wantsSocket(c.r) {
		return c.overSocket(f, to, serve)
	}
	events, err := codec.NewEventWriter(to, f, c.Resource)
	if err != nil {
		return err
	}
	conn := http.NewResponseController(c)
	_ = conn.SetWriteDeadline(time.Time{}) // the server's is for what ends
	serve(events, conn)
	return nil
}

// enterWatches takes a place of a watch. Errors: 429.
func enterWatches(c *call, s *shares) (leave func(), err error) {
	if !s.enter(c.User) {
		c.cfg.Observer.RequestRefused(false, "watches")
		return nil, status.TooMany(retryStream)
	}
	return func() { s.leave(c.User) }, nil
}

// retryWatch is when a client whose watch could not start tries again, in seconds.
const retryWatch = 1

// awaitWatch waits for the state that a watch starts from; the wait is bounded
// like any other read, the watch is not.
func (c verbs) awaitWatch(plan consistency.Plan) (proto.Revision, error) {
	ctx, cancel := context.WithTimeout(c.Context, c.cfg.Limits.Request)
	defer cancel()
	at, err := c.await(ctx, plan)
	tooLarge := (*consistency.TooLargeError)(nil)
	switch {
	case err == nil, apierrors.IsForbidden(err), errors.As(err, &tooLarge) && !tooLarge.Unconfirmed:
	case plan.Mode == consistency.NotOlderThan && c.Context.Err() == nil:
		// This node does not have it, or does not know. 429 is the one answer after
		// which client-go asks for the same watch again; after all others it reads the
		// whole collection.
		err = status.NotReady(retryWatch)
	}
	return at, err
}
