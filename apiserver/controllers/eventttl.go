package controllers

import (
	"context"
	"time"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// expirer deletes objects of kinds that expire. Nothing waits for that, so it looks from time to time.
type expirer struct{ base }

func (e expirer) run(ctx context.Context) error {
	tick := time.NewTicker(max(expireLeast, min(expireMost, e.objects.EventTTL/20)))
	defer tick.Stop()
	for {
		if err := e.deleteExpired(ctx); ctx.Err() == nil {
			e.reports.tried("cannot delete expired objects, retrying", err)
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
func (e expirer) deleteExpired(ctx context.Context) error {
	tables := e.objects.Tables()
	for _, name := range tables.Names {
		t := e.objects.Storage.State().Table(name)
		if t == nil || !tables.ByName[name].Expires {
			continue
		}
		now := e.objects.Now().Unix()
		versions, err := e.objects.Match(name, mvcc.Query{Match: func(v *mvcc.Version) bool { return objects.Expired(v, now) }})
		if err != nil {
			return err
		}
		if err := objects.Each(versions, func(v *mvcc.Version) error { return e.removeVersion(ctx, name, v) }); err != nil {
			return err
		}
	}
	return nil
}
