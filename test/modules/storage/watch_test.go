package storage

import (
	"context"
	"encoding/json"
	"io"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
)

// buffered is how many events a watch holds for a client that does not read, as
// many as upstream's. More wait in the connection and in the node's history.
const buffered = 100

// Watch implements storage.Interface.
func (a *adapter) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	p, err := a.place(key, opts.Recursive)
	if err != nil {
		return nil, err
	}
	query, err := a.query(p, opts)
	if err != nil {
		return nil, err
	}
	query.Set("watch", "1")
	if opts.Predicate.AllowWatchBookmarks || opts.ProgressNotify {
		query.Set("allowWatchBookmarks", "true")
	}
	if opts.SendInitialEvents != nil {
		query.Set("sendInitialEvents", strconv.FormatBool(*opts.SendInitialEvents))
		// The API asks for it, and has checked it before storage is called.
		query.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchNotOlderThan))
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &stream{cancel: cancel, events: make(chan watch.Event, buffered)}
	answer, err := a.reader().get(ctx, a.path(p, false), query)
	switch {
	case ctx.Err() != nil:
		// One that has gone already gets a watch that has ended.
		if err == nil {
			answer.Body.Close()
		}
		w.Stop()
		close(w.events)
		return w, nil
	case err != nil:
		cancel()
		return nil, err
	}
	// The headers come when the watch stands.
	utilflowcontrol.WatchInitialized(ctx)
	go w.run(ctx, a, answer.Body)
	return w, nil
}

// stream is an open watch.
type stream struct {
	cancel context.CancelFunc
	events chan watch.Event
	once   sync.Once
}

// Stop implements watch.Interface.
func (s *stream) Stop() { s.once.Do(s.cancel) }

// ResultChan implements watch.Interface.
func (s *stream) ResultChan() <-chan watch.Event { return s.events }

// run reads events until the stream or the context ends.
func (s *stream) run(ctx context.Context, a *adapter, body io.ReadCloser) {
	defer close(s.events)
	defer s.Stop()
	defer body.Close()
	for frames := json.NewDecoder(body); ; {
		var frame struct {
			Type   watch.EventType
			Object json.RawMessage
		}
		if frames.Decode(&frame) != nil {
			return
		}
		event := watch.Event{Type: frame.Type}
		if frame.Type == watch.Error {
			status := &metav1.Status{}
			if err := json.Unmarshal(frame.Object, status); err != nil {
				status.Message = err.Error()
			}
			status.TypeMeta = metav1.TypeMeta{}
			event.Object = status
		} else {
			pod := &example.Pod{}
			if err := a.into(frame.Object, pod); err != nil {
				event = watch.Event{Type: watch.Error, Object: &metav1.Status{Status: metav1.StatusFailure, Message: err.Error()}}
			} else {
				event.Object = pod
			}
		}
		select {
		case s.events <- event:
		case <-ctx.Done():
			return
		}
	}
}
