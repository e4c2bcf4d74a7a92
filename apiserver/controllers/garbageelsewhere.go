package controllers

import (
	"context"
	"fmt"
	"time"

	"github.com/quorate/quorate/apiserver/objects"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

var eventsGVR = schema.GroupVersionResource{Version: "v1", Resource: "events"}

// What is told of owners elsewhere: each costs a look into all namespaces and a write, and who may write ConfigMaps can
// have any number of them.
const (
	elsewhereMost = 10
	elsewherePer  = time.Minute
)

// reportElsewhere makes an Event, as upstream does, of an object whose owner is not where it is looked for, if it is in a
// namespace that it must not be in: another one than the object's, or any for an object that is in none. The object is
// deleted, or stays for ever, and nobody would know why. An Event that cannot be made is no reason to do otherwise.
func (c *collector) reportElsewhere(ctx context.Context, o *object, owner ownerReference) {
	c.mu.Lock()
	now := time.Now()
	if now.Sub(c.elsewhereSince) >= elsewherePer {
		c.elsewhereSince, c.elsewhere = now, 0
	}
	c.elsewhere++
	over := c.elsewhere > elsewhereMost
	c.mu.Unlock()
	if over {
		return
	}
	found, err := isElsewhere(c.objects, owner)
	if err == nil && found {
		err = c.ownerElsewhere(ctx, o, owner)
	}
	if err != nil && ctx.Err() == nil {
		c.reports.log.Debug("no Event about an owner in another namespace", "uid", o.UID, "err", err)
	}
}

// isElsewhere reports whether an owner is in any namespace.
func isElsewhere(s *objects.Store, owner ownerReference) (bool, error) {
	res := servedKind(s.Tables().Registry, owner)
	if res == nil || !res.Namespaced {
		return false, nil
	}
	namespaces, err := s.Range(objects.NamespacesTable, "")
	if err != nil {
		return false, err
	}
	for _, ns := range namespaces {
		if v, err := s.Current(res.Table(), res.Key(ns.Key, owner.Name)); err != nil || v != nil && v.UID == owner.UID {
			return err == nil, err
		}
	}
	return false, nil
}

func (c *collector) ownerElsewhere(ctx context.Context, o *object, owner ownerReference) error {
	res := c.objects.Tables().ByName[o.Table]
	if res == nil {
		return nil
	}
	namespace, name := objects.SplitKey(res, o.Key)
	at := namespace
	if at == "" {
		at = metav1.NamespaceDefault // as events of what is in no namespace
	}
	now := metav1.NewTime(c.objects.Now())
	return c.api.Create(ctx, eventsGVR, at, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: fmt.Sprintf("%.200s.%x", name, now.UnixNano()), Namespace: at},
		InvolvedObject: corev1.ObjectReference{Kind: res.Kind, APIVersion: res.GroupVersion().String(), Namespace: namespace, Name: name, UID: types.UID(o.UID)},
		Type:           corev1.EventTypeWarning, Reason: "OwnerRefInvalidNamespace",
		Message: fmt.Sprintf("ownerRef [%s/%s, namespace: %s, name: %s, uid: %s] does not exist in namespace %q",
			owner.APIVersion, owner.Kind, namespace, owner.Name, owner.UID, namespace),
		Source:         corev1.EventSource{Component: "garbage-collector-controller"},
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
		ReportingController: "garbage-collector-controller",
	})
}
