package apiserver

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quorate/quorate/apiserver/controllers"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// expiresField is stored beside an object that expires, among the values of its
// selectable fields: the end of its time in Unix seconds. It is no field that a
// selector can name, and as a part of the entry it is the same on all nodes. Who
// writes the object sets it anew; an update that changes nothing does not.
const expiresField = "\x00expires"

func (s *objectStore) withExpiry(fields []*proto.Attribute) []*proto.Attribute {
	end := s.cfg.Now().Add(s.cfg.EventTTL + time.Second - time.Nanosecond).Unix()
	fields = append(fields, &proto.Attribute{Name: expiresField, Value: strconv.FormatInt(end, 10)})
	slices.SortFunc(fields, func(a, b *proto.Attribute) int { return strings.Compare(a.Name, b.Name) })
	return fields
}

// expired reports whether a version has outlived its time.
func outlived(v *mvcc.Version, now int64) bool {
	value, ok := v.Fields.Get(expiresField)
	end, err := strconv.ParseInt(value, 10, 64)
	return ok && err == nil && end <= now
}

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
	tables := s.objects.tables()
	for _, name := range tables.names {
		t := s.cfg.Store.State().Table(name)
		if t == nil || !tables.byName[name].Expires {
			continue
		}
		now := s.cfg.Now().Unix()
		versions, err := s.objects.matchNow(name, mvcc.Query{Match: func(v *mvcc.Version) bool { return outlived(v, now) }})
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
	o, err := s.objects.systemAt(ctx, controllers.ObjectKey{Table: table, Key: v.Key}, "delete")
	if err != nil {
		return err
	}
	_, err = o.mutate(v.Key, func(cur *mvcc.Version) (change, error) {
		if cur == nil || cur.Revision != v.Revision {
			return change{}, o.notFound()
		}
		return change{op: proto.Op_OP_DELETE}, nil
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
