package objects

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/quorate/quorate/apiserver/objects/storage"
	"github.com/quorate/quorate/apiserver/wire/codec"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// What only one object of the cluster may have, an address or a port, is a row of
// its own in a table, keyed by it. The entry that makes the row carries the
// condition that it is absent. So of any number of nodes that want the same thing
// at once one gets it, without a lock, and the others see that when their entry
// is refused.
//
// Rows and the object are several entries, so a node that dies between them can
// leave rows that nobody holds, but never an object without its rows: they are
// made before it and go after it. The leader finds such rows (RepairClaims).

// ClaimKey names a row.
type ClaimKey struct{ Table, Key string }

// Claimed is a row that a request has made.
type Claimed struct {
	ClaimKey
	Revision proto.Revision
}

// ErrTaken is returned for a row that is there already.
var ErrTaken = errors.New("provided IP is already allocated")

// claims are the rows that one request has made so far. For one goroutine.
type claims struct {
	made []Claimed
	// proposed says that the entry of the object itself may be in the log, and so hold them.
	proposed bool
}

func (m *claims) has(k ClaimKey) bool {
	return slices.ContainsFunc(m.made, func(c Claimed) bool { return c.ClaimKey == k })
}

// Claim makes a row. Errors: errTaken.
func (o *Op) Claim(w *proto.Write) error {
	k := ClaimKey{w.Table, w.Key}
	if o.claims.has(k) {
		return nil
	}
	w.Op, w.Condition, w.RequestId = proto.Op_OP_PUT, proto.Condition_CONDITION_ABSENT, newRequestID()
	v, outcome, err := storage.Propose(o.Context, o.storage(), w)
	switch {
	case err != nil:
		return err
	case outcome != proto.Outcome_OUTCOME_APPLIED:
		return ErrTaken
	}
	o.claims.made = append(o.claims.made, Claimed{k, v.Revision})
	return nil
}

// keepClaims gives back the rows that the request has made and that are not in
// held: all of them after a failure, those of attempts that came to nothing after
// a success. A failure whose outcome is unknown keeps everything, because the
// object may be there; what is too much is found by RepairClaims.
func (o *Op) keepClaims(held []ClaimKey, err error) {
	if len(o.claims.made) == 0 || o.claims.proposed && uncertain(err) {
		return
	}
	for _, m := range o.claims.made {
		if err != nil || !slices.Contains(held, m.ClaimKey) {
			o.Unclaim(m.ClaimKey, m.Revision)
		}
	}
	o.claims.made = nil
}

// uncertain says that a write which failed may have happened or may yet: it was
// not refused.
func uncertain(err error) bool {
	var refused apierrors.APIStatus
	return err != nil && !errors.As(err, &refused) && !errors.Is(err, storage.ErrNotBegun)
}

// storage is what the operation writes to. Of kinds that hold rows the outcome of a write is awaited also
// when its client has gone: who hangs up at once would leave rows behind, of which there are few, until
// the leader finds them.
func (r *Request) storage() storage.Interface {
	if r.Strategy().Held == nil {
		return r.Store.Storage
	}
	return awaited{r.Store.Storage, r.Store.MaxWrite}
}

// awaited is a storage whose writes end with their outcome, or after most, and not with their context.
type awaited struct {
	storage.Interface
	most time.Duration
}

// Propose implements storage.Interface.
func (a awaited) Propose(ctx context.Context, w *proto.Write) (mvcc.Result, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.most)
	defer cancel()
	return a.Interface.Propose(ctx, w)
}

// releaseClaims gives back the rows of an object that is gone or has given them
// up, at revision at. A row that was made after that is another one's.
func (r *Request) releaseClaims(keys []ClaimKey, at proto.Revision) {
	for _, k := range keys {
		v, err := r.Store.Current(k.Table, k.Key)
		if err == nil && v != nil && v.Revision < at {
			r.Unclaim(k, v.Revision)
		}
	}
}

// Unclaim removes a row if it is the one that was written at a revision. That the
// request is over does not keep it from giving back; what fails is left to
// RepairClaims.
func (r *Request) Unclaim(k ClaimKey, revision proto.Revision) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context), r.Store.MaxWrite)
	defer cancel()
	_, _, err := storage.Propose(ctx, r.Store.Storage, &proto.Write{
		Table: k.Table, Key: k.Key, Op: proto.Op_OP_DELETE,
		Condition: proto.Condition_CONDITION_REVISION, ExpectRevision: uint64(revision), RequestId: newRequestID(),
	})
	if err != nil {
		r.Store.Log.Warn("cannot release a service address or port; the leader will", "claim", fmt.Sprintf("%s/%s", k.Table, k.Key), "err", err)
	}
}

// reconcileClaims brings the rows in line with the outcome of a write. before is the
// version that was replaced or removed; nil for a create.
func (o *Op) reconcileClaims(before *mvcc.Version, w Written, err error) {
	held := o.Strategy().Held
	if held == nil || o.Options.IsDryRun() {
		return
	}
	var has []ClaimKey
	if err == nil && !w.Deleted {
		has = held(w.Object)
	}
	o.keepClaims(has, err)
	if err != nil || before == nil || w.Version == nil || w.Version == before {
		return
	}
	old, err := codec.DecodeStored(o.Resource, before)
	if err != nil {
		o.Store.Log.Error("cannot release the service addresses and ports of an object; the leader will", "key", before.Key, "err", err)
		return
	}
	gone := slices.DeleteFunc(held(old), func(k ClaimKey) bool { return slices.Contains(has, k) })
	o.releaseClaims(gone, w.Version.Revision)
}
