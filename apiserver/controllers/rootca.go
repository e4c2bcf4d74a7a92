package controllers

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// rootsName is the ConfigMap by which clients in Pods know the server, rootsKey its only key.
	rootsName = "kube-root-ca.crt"
	rootsKey  = "ca.crt"
	// rootsAbout is an annotation of it, whose text is upstream's; any other one is left alone.
	rootsAbout = "kubernetes.io/description"
	rootsText  = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. " +
		"No other usage is guaranteed across distributions of Kubernetes clusters."
)

var mapsGVR = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// rootsPublisher keeps the ConfigMap kube-root-ca.crt in every namespace as it should be. It knows which of them may have changed.
// There may be many others, which change all the time: what they cost is a look at their keys.
type rootsPublisher struct {
	base
	roots []byte
	table string
	// state is what was read up to the revision at.
	state   *mvcc.State
	at      proto.Revision
	pending bool // something has failed
}

func (p *rootsPublisher) run(ctx context.Context) error {
	p.table = kinds.BuiltinTable(mapsGVR.GroupResource())
	return p.onChange(ctx, []string{objects.NamespacesTable, p.table}, 0, func() (again bool, _ error) {
		if !p.look() {
			return false, nil
		}
		versions, err := p.objects.Range(objects.NamespacesTable, "")
		if err != nil {
			return false, fmt.Errorf("list namespaces: %w", err)
		}
		for _, ns := range versions {
			if ns.Flags&proto.FlagTerminating != 0 {
				continue
			}
			if err := p.publish(ctx, ns.Key); err != nil {
				if ctx.Err() != nil {
					return false, context.Cause(ctx)
				}
				again = true
				p.reports.failed("cannot write the ConfigMap with the roots, retrying", "namespace", ns.Key, "name", rootsName, "err", err)
			}
		}
		p.pending = again
		return again, nil
	})
}

// look reports whether there may be something to do since the last look.
func (p *rootsPublisher) look() bool {
	state := p.objects.Storage.State()
	upTo := state.Applied()
	before, after := p.state, p.at
	p.state, p.at = state, upTo
	if p.pending || before != state {
		return true
	}
	if state.Latest(objects.NamespacesTable) > after {
		return true
	}
	if state.Latest(p.table) <= after {
		return false
	}
	t := state.Table(p.table)
	return t == nil || ofRoots(t, after, upTo)
}

// ofRoots reports whether any of the ConfigMaps changed in the revisions after one and up to
// another. What the history does not have any more may be one.
func ofRoots(t *mvcc.Table, after, upTo proto.Revision) bool {
	cursor, err := t.Watch(after)
	if err != nil {
		return true
	}
	var buf [64]*mvcc.Version
	for {
		n, err := cursor.Next(buf[:], upTo)
		if err != nil {
			return true
		}
		for _, v := range buf[:n] {
			if _, name, _ := strings.Cut(v.Key, "/"); name == rootsName {
				return true
			}
		}
		if n < len(buf) {
			return false
		}
	}
}

// publish makes the ConfigMap of a namespace what it should be.
func (p *rootsPublisher) publish(ctx context.Context, namespace string) error {
	want := map[string]string{rootsKey: string(p.roots)}
	return p.keepConfigMap(ctx, namespace, rootsName, func(m *corev1.ConfigMap) (changed bool) {
		changed = !maps.Equal(m.Data, want) || m.Annotations[rootsAbout] == ""
		if m.Data = want; m.Annotations == nil {
			m.Annotations = map[string]string{}
		}
		m.Annotations[rootsAbout] = rootsText
		return changed
	})
}
