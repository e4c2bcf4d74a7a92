package scale

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/quorate/quorate/bench/client"
)

// eventLife is how long Events stay by default (--event-ttl).
const eventLife = time.Hour

// expiresField is the field in which the store has the time at which an object expires, in
// seconds (apiserver/objects).
const expiresField = "\x00expires"

// expiryLook is how often nodes look at most for what has expired, by default.
const expiryLook = 30 * time.Second

// eventsPerPod is how many Events a Pod has.
const eventsPerPod = 10

const eventSubject = "subject-of-what" // as long as a name

// event is one as kubelets write them.
func event(metadata, namespace, pod string) string {
	return `{"apiVersion":"v1","kind":"Event","metadata":{` + metadata + `},"involvedObject":{"apiVersion":"v1","kind":"Pod","namespace":"` + namespace + `","name":"` + pod + `","fieldPath":"spec.containers{c}"},` +
		`"reason":"Pulled","message":"Container image \"registry.example/app:1\" already present on machine","source":{"component":"kubelet","host":"` + pod + `"},` +
		`"firstTimestamp":"2026-01-01T00:00:00Z","lastTimestamp":"2026-01-01T00:00:00Z","count":1,"type":"Normal","reportingComponent":"kubelet","reportingInstance":"` + pod + `"}`
}

// eventFills are Events as they are when as many are written each second as expire: those that
// were written in the last hour, the oldest of which expires now.
func eventFills(n int, _ *converter) []fill {
	byPod := func(i int) int { return i / eventsPerPod }
	now := time.Now()
	f := inNamespaces("events", event(`"name":"`+templateName+`"`, namespaceTemplate, eventSubject), n, byPod, map[string]func(i int) string{
		eventSubject: func(i int) string { return name(byPod(i)) },
	})
	f.fields = map[string]func(i int) string{expiresField: func(i int) string {
		return strconv.FormatInt(now.Add(time.Duration(float64(eventLife)*float64(i)/float64(n))).Unix(), 10)
	}}
	return []fill{namespaceFill(), f}
}

func (r *run) events(ctx context.Context, n int) error {
	pods := max(1, n/eventsPerPod)
	return errors.Join(
		r.closed(ctx, "page", "list of the first 500 Events, 4 clients", 4, func(int) client.Request {
			return client.Request{Method: http.MethodGet, Path: "/api/v1/events", Query: "limit=500", Header: client.Plain}
		}),
		r.closed(ctx, "pod", "list of the Events of one Pod, by field selector, 4 clients", 4, func(int) client.Request {
			i := rand.IntN(pods)
			return client.Request{Method: http.MethodGet, Path: sigPath(i, "events"), Query: "fieldSelector=involvedObject.name%3D" + name(i), Header: client.Plain}
		}),
		r.row(ctx, "expire", "Events written, as many as expire", func(ctx context.Context, t *timed) error { return r.expire(ctx, t, n) }),
	)
}

// expire writes as many Events as expire, for at least two looks of the nodes for those that
// have; a watch sees which go.
func (r *run) expire(ctx context.Context, t *timed, n int) error {
	rate, last := float64(n)/eventLife.Seconds(), max(r.o.Duration, 2*expiryLook+5*time.Second)
	before, err := r.count(ctx, "/api/v1/events")
	if err != nil {
		return err
	}
	watch, stop := context.WithCancel(ctx)
	defer stop()
	resp, err := r.conns[1%len(r.conns)].Open(watch, client.Request{Method: http.MethodGet, Path: "/api/v1/events", Query: "watch=true&resourceVersion=" + before.revision, Header: client.Plain})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	began := r.clock.Now()
	gone := make([]int, last/time.Second+2) // in each second
	failed := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := eachLine(resp.Body, 64<<10, func(begins []byte) bool {
			if bytes.HasPrefix(begins, []byte(`{"type":"DELETED"`)) {
				gone[min(int((r.clock.Now()-began)/time.Second), len(gone)-1)]++
			}
			return true
		})
		failed <- err
	})
	r.pacedFor(ctx, t, last, rate, func(i int) (*client.Link, client.Request) {
		pod := rand.IntN(max(1, n/eventsPerPod))
		metadata := `"generateName":"` + name(pod) + `."`
		return r.conns[i%len(r.conns)], client.Request{Method: http.MethodPost, Path: sigPath(pod, "events"), Header: client.JSONBody, Body: []byte(event(metadata, sigNamespace(pod), name(pod)))}
	})
	stop()
	wg.Wait()
	if err := <-failed; err != nil && !errors.Is(err, context.Canceled) {
		t.Note(0, 0, fmt.Errorf("watch of the Events: %w", err))
	}
	sum, most := 0, 0
	for _, k := range gone {
		sum, most = sum+k, max(most, k)
	}
	if expected := rate * last.Seconds(); sum == 0 && expected > 20 {
		return fmt.Errorf("none of about %.0f Events expired in %s", expected, last)
	}
	after, err := r.count(ctx, "/api/v1/events")
	if err != nil {
		return err
	}
	t.figures = append(t.figures,
		Figure{"due each second", rate, ""}, Figure{"expired each second", float64(sum) / last.Seconds(), ""}, Figure{"in the second with most", float64(most), ""},
		Figure{"Events before", float64(before.n), ""}, Figure{"after", float64(after.n), ""})
	return nil
}

// counted is how many objects a collection has, and at which revision.
type counted struct {
	n        int64
	revision string
}

func (r *run) count(ctx context.Context, path string) (out counted, err error) {
	var buf bytes.Buffer
	if _, err := r.alone.Do(ctx, client.Request{Method: http.MethodGet, Path: path, Query: "limit=1", Header: client.Plain}, &buf); err != nil {
		return out, err
	}
	var list struct {
		Metadata struct {
			ResourceVersion    string
			RemainingItemCount int64
		}
		Items []json.RawMessage
	}
	if err := json.Unmarshal(buf.Bytes(), &list); err != nil {
		return out, err
	}
	return counted{int64(len(list.Items)) + list.Metadata.RemainingItemCount, list.Metadata.ResourceVersion}, nil
}
