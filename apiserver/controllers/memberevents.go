package controllers

import (
	"context"
	"fmt"
	"time"

	"github.com/quorate/quorate/apiserver/types/quoratev1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// eventsApart is how far apart writes of one event are: those between are counted.
	eventsApart = 30 * time.Second
	// eventLasts is after what pause the same is told by another event, as client-go does.
	eventLasts = 10 * time.Minute
)

// memberEvents makes events of one term, in the namespace default, as of other objects without a namespace. What happens again is
// counted in the same event, so that a member which comes and goes makes neither many writes nor many objects.
type memberEvents struct {
	base
	of map[eventKey]*memberEvent
}

type eventKey struct {
	uid    types.UID
	reason string
}

type memberEvent struct {
	name    string
	count   int32
	first   metav1.Time
	written time.Time
	last    time.Time
}

// add tells of something that has happened. What cannot be written is lost.
func (k *memberEvents) add(ctx context.Context, m *quoratev1.Member, t eventText) {
	now := k.objects.Now()
	for key, e := range k.of {
		if now.Sub(e.last) >= eventLasts {
			delete(k.of, key)
		}
	}
	if m.UID == "" { // it was just made
		if err := k.api.Get(ctx, quoratev1.Resource, "", m.Name, m); err != nil {
			return
		}
	}
	key := eventKey{m.UID, t.reason}
	e := k.of[key]
	if e == nil {
		e = &memberEvent{name: fmt.Sprintf("%.200s.%x", m.Name, now.UnixNano()), first: metav1.NewTime(now)}
		k.of[key] = e
	}
	e.count, e.last = e.count+1, now
	if now.Sub(e.written) < eventsApart {
		return
	}
	e.written = now
	if err := k.write(ctx, m, e, t); err != nil && ctx.Err() == nil {
		k.reports.log.Debug("an event of a member is lost", "member", m.Name, "reason", t.reason, "err", err)
	}
}

func (k *memberEvents) write(ctx context.Context, m *quoratev1.Member, e *memberEvent, t eventText) error {
	if e.count > 1 {
		var is corev1.Event
		err := k.api.Get(ctx, eventsGVR, metav1.NamespaceDefault, e.name, &is)
		if err == nil {
			is.Count, is.LastTimestamp, is.Message = e.count, metav1.NewTime(e.last), t.message
			return k.api.Update(ctx, eventsGVR, metav1.NamespaceDefault, e.name, &is)
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
	}
	return k.api.Create(ctx, eventsGVR, metav1.NamespaceDefault, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: e.name, Namespace: metav1.NamespaceDefault},
		InvolvedObject: corev1.ObjectReference{
			Kind: "Member", APIVersion: quoratev1.Resource.GroupVersion().String(), Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion,
		},
		Type: t.kind, Reason: t.reason, Message: t.message,
		Source:         corev1.EventSource{Component: string(MemberController)},
		FirstTimestamp: e.first, LastTimestamp: metav1.NewTime(e.last), Count: e.count,
		ReportingController: string(MemberController),
	})
}
