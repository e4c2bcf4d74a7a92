package controllers

import (
	"context"
	"log/slog"
	"time"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Expiring is what the expiry of Events needs. *apiserver.Server satisfies it.
type Expiring interface {
	// ExpireEvery is how often to look.
	ExpireEvery() time.Duration
	// ExpireObjects deletes what has outlived its time, entry by entry.
	ExpireObjects(ctx context.Context) error
}

// Expire deletes objects of kinds that expire, until ctx ends. Nobody waits for
// that, so it looks from time to time.
func Expire(ctx context.Context, api Expiring, log *slog.Logger) error {
	tick := time.NewTicker(api.ExpireEvery())
	defer tick.Stop()
	for {
		if err := api.ExpireObjects(ctx); err != nil && ctx.Err() == nil {
			log.Warn("cannot delete expired objects, retrying", "err", err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// Objects may outlive their TTL by 5 %, but by no more than expireMost, and by expireLeast if
// their TTL is short.
const (
	expireMost  = 30 * time.Second
	expireLeast = 100 * time.Millisecond
)

// ExpireEvery implements Expiring.
func (l *Loops) ExpireEvery() time.Duration {
	return max(expireLeast, min(expireMost, l.objects.EventTTL/20))
}

// ExpireObjects implements Expiring. Finalizers do not hold what
// expires.
func (l *Loops) ExpireObjects(ctx context.Context) error {
	tables := l.objects.Tables()
	for _, name := range tables.Names {
		t := l.objects.Storage.State().Table(name)
		if t == nil || !tables.ByName[name].Expires {
			continue
		}
		now := l.objects.Now().Unix()
		versions, err := l.objects.Match(name, mvcc.Query{Match: func(v *mvcc.Version) bool { return objects.Expired(v, now) }})
		if err != nil {
			return err
		}
		if err := objects.Each(versions, func(v *mvcc.Version) error { return l.removeVersion(ctx, name, v) }); err != nil {
			return err
		}
	}
	return nil
}

// removeVersion deletes an object if nothing was written since a version.
func (l *Loops) removeVersion(ctx context.Context, table string, v *mvcc.Version) error {
	o, err := l.objects.SystemAt(ctx, table, v.Key, "delete")
	if err != nil {
		return err
	}
	_, err = o.GuaranteedUpdate(v.Key, func(cur *mvcc.Version) (objects.Change, error) {
		if cur == nil || cur.Revision != v.Revision {
			return objects.Change{}, o.NotFound()
		}
		return objects.Change{Op: proto.Op_OP_DELETE}, nil
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
