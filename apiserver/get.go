package apiserver

import (
	"context"
	"net/http"

	"github.com/quorate/quorate/apiserver/wire/codec"
	"github.com/quorate/quorate/apiserver/wire/status"
	"github.com/quorate/quorate/consistency"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

func (c verbs) get() error {
	f, err := c.format(c.Resource, codec.ShapeObject)
	if err != nil {
		return err
	}
	v, err := c.readOne()
	if err == nil && v.ValueSize() > cheapRead {
		c.computing.pieces = true // what is compressed is so behind the beginning of the answer
		err = c.computing.begin(c.call, 0)
	}
	if err == nil {
		v, err = c.ConvertOne(v)
	}
	if err != nil {
		return err
	}
	return codec.Respond(c, c.r, f).Object(http.StatusOK, c.Resource, v)
}

// readOne reads the object that the path names, as fresh as the request asks.
func (c verbs) readOne() (*mvcc.Version, error) {
	plan, err := consistency.PlanGet(consistency.Params{
		ResourceVersion: c.Options.ResourceVersion, MaxStaleness: c.Options.MaxStaleness,
	})
	if err != nil {
		return nil, err
	}
	at, err := c.await(c.Context, plan)
	if err != nil {
		return nil, err
	}
	v, at, err := c.s.objects.Find(c.Resource.Table(), c.Key(), plan, at)
	if err != nil {
		return nil, err
	}
	c.setIndexHeader(at)
	if v == nil {
		return nil, c.NotFound()
	}
	return v, nil
}

// await waits for the state that the plan needs. How old an Any answer may be is
// asked before its state is taken: a moment later the node may know itself to be
// fresher, and the bound would be of a state that the answer is not from. What allowed the
// request, and whether its kind is served, is looked at again when the state is there.
func (c *call) await(ctx context.Context, plan consistency.Plan) (proto.Revision, error) {
	if plan.Mode == consistency.Any {
		c.setStalenessHeader()
	}
	at, err := c.cfg.Reads.Await(ctx, plan)
	if err == nil {
		err = c.stillAllowed(plan)
	}
	if err == nil && plan.Mode != consistency.Any && c.Resource != nil && c.cfg.Kinds().Lookup(c.Info.GVR()) == nil {
		// Its definition is gone in the state that this node has waited for.
		err = status.NoSuchResource()
	}
	return at, err
}
