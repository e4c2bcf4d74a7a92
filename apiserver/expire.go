package apiserver

import (
	"context"
	"time"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Objects stay up to a twentieth of their time longer, but not much.
const (
	expireMost  = 30 * time.Second
	expireLeast = 100 * time.Millisecond
)

// ExpireEvery implements controllers.Expiring.
func (s *Server) ExpireEvery() time.Duration {
	return max(expireLeast, min(expireMost, s.cfg.EventTTL/20))
}

// ExpireObjects implements controllers.Expiring. Finalizers do not hold what
// expires.
func (s *Server) ExpireObjects(ctx context.Context) error {
	tables := s.objects.Tables()
	for _, name := range tables.Names {
		t := s.cfg.Store.State().Table(name)
		if t == nil || !tables.ByName[name].Expires {
			continue
		}
		now := s.cfg.Now().Unix()
		versions, err := s.objects.Match(name, mvcc.Query{Match: func(v *mvcc.Version) bool { return objects.Expired(v, now) }})
		if err != nil {
			return err
		}
		if err := eachOf(versions, func(v *mvcc.Version) error { return s.removeVersion(ctx, name, v) }); err != nil {
			return err
		}
	}
	return nil
}

// removeVersion deletes an object if nothing was written since a version.
func (s *Server) removeVersion(ctx context.Context, table string, v *mvcc.Version) error {
	o, err := s.objects.SystemAt(ctx, table, v.Key, "delete")
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
