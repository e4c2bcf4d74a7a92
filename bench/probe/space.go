package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/bench/client"
)

// Space is a namespace with objects, of which the first are the probes of a ledger.
type Space struct {
	Namespace string
	Ledger    *Ledger
	Size      int // bytes of each object's value
	// Now is the clock of the ledger's times.
	Now func() time.Duration
}

// Collection is the path of the objects.
func (s *Space) Collection() string { return "/api/v1/namespaces/" + s.Namespace + "/configmaps" }

// Make makes the namespace and so many objects, over all connections.
func (s *Space) Make(ctx context.Context, conns []*client.Conn, objects int) error {
	var buf bytes.Buffer
	body := []byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"` + s.Namespace + `"}}`)
	if _, err := conns[0].Do(ctx, client.Request{Method: http.MethodPost, Path: "/api/v1/namespaces", Header: client.JSONBody, Body: body}, &buf); err != nil {
		return fmt.Errorf("make the namespace: %w", err)
	}
	const workers = 16
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		wg    sync.WaitGroup
		next  atomic.Int64
		mu    sync.Mutex
		first error
	)
	for range workers {
		wg.Go(func() {
			var buf bytes.Buffer
			for i := int(next.Add(1) - 1); i < objects && ctx.Err() == nil; i = int(next.Add(1) - 1) {
				if err := s.create(ctx, conns[i%len(conns)], i, &buf); err != nil {
					mu.Lock()
					first = errors.Join(first, err)
					mu.Unlock()
					cancel()
				}
			}
		})
	}
	wg.Wait()
	if first != nil {
		return fmt.Errorf("make the objects: %w", first)
	}
	return context.Cause(ctx)
}

func (s *Space) create(ctx context.Context, conn *client.Conn, i int, buf *bytes.Buffer) error {
	body := newObject(i, s.Ledger.Len(), s.Size)
	if _, err := conn.Do(ctx, client.Request{Method: http.MethodPost, Path: s.Collection(), Header: client.JSONBody, Body: body}, buf); err != nil {
		return err
	}
	revision, err := RevisionOf(buf.Bytes())
	if err == nil && i < s.Ledger.Len() {
		s.Ledger.Acknowledged(i, 0, revision, s.Now())
	}
	return err
}

// Write is the patch that makes a number the newest of probe k.
func (s *Space) Write(k int, number int64) client.Request {
	return client.Request{Method: http.MethodPatch, Path: s.Collection() + "/" + Name(k), Header: client.MergeBody, Body: []byte(`{"data":{` + mark(k, number) + `}}`)}
}

// Clean deletes what Make has made.
func (s *Space) Clean(ctx context.Context, admin *client.Admin) error {
	return admin.Remove(ctx, s.Collection(), "/api/v1/namespaces/"+s.Namespace)
}
