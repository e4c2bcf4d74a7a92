package controllers

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/objects"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// reviewPatience is how long the admission of a delete may keep others waiting. Webhooks answer in milliseconds, or are given up
	// after up to 30 s.
	reviewPatience = time.Second
	// slowFor is how long the deletes of a resource in a namespace count as slow after one of them was.
	slowFor = 30 * time.Second
	// longestDelete is how long a request may take, by default.
	longestDelete = time.Minute
)

// deleter deletes objects for a controller as a client would, by admission. A webhook that does not answer keeps
// nothing waiting but what it is asked about. Safe for concurrent use.
type deleter struct {
	user *auth.User

	mu   sync.Mutex
	slow map[place]time.Time // since when
}

// place is where deletes are alike: rules select resources and namespaces.
type place struct{ table, namespace string }

// delete deletes the object of an operation, as DeleteAdmitted does. Unless it may be slow, it ends with errSlow if its
// admission takes longer than reviewPatience, and at once where that was so.
func (d *deleter) delete(o *objects.Op, options *metav1.DeleteOptions, slow bool) error {
	at, patience := place{o.Resource.Table(), o.Info.ObjectNamespace}, reviewPatience
	switch {
	case slow:
		patience = 0
	case d.isSlow(at):
		return errSlow
	}
	ctx, cancel := context.WithTimeout(o.Context, longestDelete)
	defer cancel()
	o.Context = ctx
	_, err := o.DeleteAdmitted(d.user, options, patience)
	if !errors.Is(err, objects.ErrSlowAdmission) {
		return err
	}
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.slow == nil {
		d.slow = map[place]time.Time{}
	}
	maps.DeleteFunc(d.slow, func(_ place, since time.Time) bool { return now.Sub(since) >= slowFor })
	d.slow[at] = now
	return errSlow
}

func (d *deleter) isSlow(at place) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	since, ok := d.slow[at]
	return ok && time.Since(since) < slowFor
}

// mostRefused is how many refusals end an attempt to delete the objects of a table: each one costs a review.
const mostRefused = 100

// refusals are what rules of the cluster say of some of many objects: the others are deleted. Safe for concurrent use.
type refusals struct {
	mu          sync.Mutex
	n           int
	first, last string // keys
	err         error  // of the first one by its key: the next attempt says the same, and changes no condition
}

// take returns the result of a delete if it is the end of all. That an object is gone is no error.
func (r *refusals) take(o *objects.Op, err error) error {
	var s apierrors.APIStatus
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return nil
	case !o.RefusedByPlugin(), !errors.As(err, &s), s.Status().Code >= 500: // a webhook that fails is no refusal
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	key := o.Key()
	if r.n == 0 || key < r.first {
		r.first, r.err = key, err
	}
	r.last = max(r.last, key)
	if r.n++; r.n == mostRefused {
		return errEnough
	}
	return nil
}

// errEnough ends an attempt after mostRefused.
var errEnough = errors.New("enough refusals")
