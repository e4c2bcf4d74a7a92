package controllers

import (
	"context"
	"fmt"

	"github.com/quorate/quorate/apiserver/objects/builtin"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

var priorityClasses = schedulingv1.SchemeGroupVersion.WithResource("priorityclasses")

// priorityClassMaker makes the PriorityClasses that every cluster has, once in a term. One that is there stays as it is.
type priorityClassMaker struct{ base }

func (m priorityClassMaker) run(ctx context.Context) error {
	res := m.objects.Kinds().Lookup(priorityClasses)
	if res == nil {
		return nil // the group is switched off
	}
	for _, c := range builtin.SystemPriorityClasses() {
		v, err := m.objects.Current(res.Table(), c.Name)
		if err == nil && v == nil {
			err = m.api.Create(ctx, priorityClasses, "", &c)
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("ensure PriorityClass %s: %w", c.Name, err)
		}
	}
	return nil
}
