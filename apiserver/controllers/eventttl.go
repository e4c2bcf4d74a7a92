package controllers

import (
	"context"
	"time"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// expire deletes objects of kinds that expire, until ctx ends. Nothing waits for
// that, so it looks from time to time.
func (l *Loops) expire(ctx context.Context, r *reports) error {
	tick := time.NewTicker(max(expireLeast, min(expireMost, l.objects.EventTTL/20)))
	defer tick.Stop()
	for {
		if err := l.deleteExpired(ctx); ctx.Err() == nil {
			r.tried("cannot delete expired objects, retrying", err)
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

// deleteExpired deletes what has outlived its time, entry by entry. Finalizers do not
// hold what expires.
func (l *Loops) deleteExpired(ctx context.Context) error {
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
