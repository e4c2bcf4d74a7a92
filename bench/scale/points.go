package scale

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/bench/measure"
)

const kepsLink = "https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/"

var points = []Point{
	{
		Name: "configmaps", What: "1,000,000 ConfigMaps of 1 KiB on three nodes", Full: 1_000_000, Unit: "ConfigMaps",
		fills: func(n int, _ *converter) []fill { return []fill{configMaps(n, 1024)} },
		rows: func(ctx context.Context, r *run, n int) error {
			return errors.Join(r.idle(ctx), r.gets(ctx, n), r.updates(ctx, n), r.pages(ctx), r.list(ctx, 1))
		},
	},
	{
		Name: "kep2340", What: "300,000 objects of 1 KB, a consistent list of all of them each second (KEP-2340)", Full: 300_000, Unit: "ConfigMaps",
		Published: []Published{
			{"kube-apiserver without consistent reads from cache", "a list takes 10.5 s in the median, with 6.9 cores for kube-apiserver and 3.6 for etcd", kepsLink + "2340-Consistent-reads-from-cache"},
			{"kube-apiserver with them", "0.5 s, 0.63 and 0.23 cores", kepsLink + "2340-Consistent-reads-from-cache"},
		},
		fills: func(n int, _ *converter) []fill { return []fill{configMaps(n, 1000)} },
		rows: func(ctx context.Context, r *run, n int) error {
			return errors.Join(r.idle(ctx), r.list(ctx, 1), r.row(ctx, "selected", "consistent list of all that a label selects: none, 1/s", func(ctx context.Context, t *timed) error {
				r.paced(ctx, t, 1, func(i int) (*client.Link, client.Request) {
					return r.conns[i%len(r.conns)], client.Request{Method: http.MethodGet, Path: configMapsPath, Query: "labelSelector=group%3Dtwo", Header: client.Plain}
				})
				return nil
			}))
		},
	},
	{
		Name: "kep3157", What: "400 Secrets of 1 MB, followed by 16 to 256 informers with watch lists (KEP-3157; 1,024 there, which --size 4 measures)", Full: 256, Unit: "informers",
		Sizes: []float64{0.0625, 0.25, 1},
		Published: []Published{
			{"kube-apiserver with lists", "16 informers end it for want of memory", kepsLink + "3157-watch-list"},
			{"kube-apiserver with watch lists", "1,024 informers in about 2 GB instead of 20; 400 GB are sent in 25 minutes", "https://kubernetes.io/blog/2024/12/17/kube-apiserver-api-streaming/"},
		},
		fills: func(int, *converter) []fill {
			return []fill{named("secrets", secretsPath, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"`+templateName+`"},"data":{"value":"`+client.Text(3, 0, 1_000_000)+`"}}`, 399)}
		},
		rows: func(ctx context.Context, r *run, n int) error { return errors.Join(r.idle(ctx), r.informers(ctx, n)) },
	},
	{
		Name: "kep5116", What: "whole lists of 10,000 objects of 100 KB, four at a time (KEP-5116)", Full: 10_000, Unit: "ConfigMaps",
		Published: []Published{
			{"kube-apiserver before streaming encoding", "70 to 80 GB of memory", "https://kubernetes.io/blog/2025/05/09/kubernetes-v1-33-streaming-list-responses/"},
			{"kube-apiserver with it", "3 GB", "https://kubernetes.io/blog/2025/05/09/kubernetes-v1-33-streaming-list-responses/"},
		},
		fills: func(n int, _ *converter) []fill { return []fill{configMaps(n, 100_000)} },
		rows:  func(ctx context.Context, r *run, n int) error { return errors.Join(r.idle(ctx), r.list(ctx, 4)) },
	},
	{
		Name: "watchers", What: "10,000 watches of one object each, 1,000 events/s", Full: 10_000, Unit: "watches",
		fills: func(n int, _ *converter) []fill { return []fill{configMaps(n, 256)} },
		rows:  func(ctx context.Context, r *run, n int) error { return r.watchers(ctx, n) },
	},
	{
		Name: "heartbeats", What: "the heartbeats of 5,000 nodes: a lease every 10 s, a status every 5 min, and Events at 200/s", Full: 5_000, Unit: "nodes",
		fills: func(n int, _ *converter) []fill {
			return []fill{
				named("leases.coordination.k8s.io", leasesPath, `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"`+templateName+`"},"spec":{"holderIdentity":"`+templateName+`","leaseDurationSeconds":40,"renewTime":"2026-01-01T00:00:00.000000Z"}}`, n),
				named("nodes", "/api/v1/nodes", `{"apiVersion":"v1","kind":"Node","metadata":{"name":"`+templateName+`"},"status":{"capacity":{"cpu":"8","memory":"32Gi","pods":"110"}}}`, n),
			}
		},
		rows: func(ctx context.Context, r *run, n int) error { return errors.Join(r.idle(ctx), r.heartbeats(ctx, n)) },
	},
	{
		Name: "sig", What: "150,000 Pods and 10,000 Services in 50 namespaces (SIG Scalability's thresholds; Events: events)", Full: 150_000, Unit: "Pods", Most: 2,
		Settings: []string{"service-cluster-ip-range=" + serviceRange},
		Published: []Published{
			{"SIG Scalability's thresholds", "a cluster may have 150,000 Pods, 3,000 in a namespace, and 10,000 Services, 5,000 in a namespace", thresholdsLink},
			{"SIG Scalability's objectives", "lists of a namespace and of a cluster take 30 s at most at the 99th percentile, other reads and writes 1 s", objectivesLink},
		},
		fills: sigFills,
		rows:  func(ctx context.Context, r *run, n int) error { return r.sig(ctx, n) },
	},
	{
		Name: "events", What: "1,000,000 Events, of which as many expire as are written: 278/s (SIG Scalability's thresholds)", Full: 1_000_000, Unit: "Events",
		Published: []Published{
			{"SIG Scalability's thresholds", "a cluster may have 1,000,000 Events", thresholdsLink},
			{"kube-apiserver with etcd, a load test of 50,000 Pods", "145,259 Events in 5 minutes, 484/s, and requests refused by priority and fairness", "https://github.com/kubernetes/kubernetes/issues/141022"},
		},
		fills: eventFills,
		rows:  func(ctx context.Context, r *run, n int) error { return r.events(ctx, n) },
	},
	{
		Name: "conversion", What: "100,000 custom resources of 1 KB, read and written in a version that a webhook converts to in 5 ms a request", Full: 100_000, Unit: "custom resources",
		Published: []Published{
			{"kube-apiserver", "its cache of a large custom resource took 8 minutes to fill, object by object, longer than history is kept (5): it never filled, and every list failed", "https://github.com/kubernetes/enhancements/pull/6179"},
			{"KEP-95's targets", "10,000 custom resources of 10 KB with conversion, listed within 30 s at the 99th percentile; the webhook takes 50 ms for one and 6 s for all", kepsLink + "95-custom-resource-definitions"},
		},
		webhook: true,
		fills:   routeFills,
		rows:    func(ctx context.Context, r *run, n int) error { return r.conversions(ctx, n) },
	},
}

const (
	thresholdsLink = "https://github.com/kubernetes/community/blob/master/sig-scalability/configs-and-limits/thresholds.md"
	objectivesLink = "https://github.com/kubernetes/community/blob/master/sig-scalability/slos/slos.md"
)

const (
	leasesPath  = "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases"
	secretsPath = "/api/v1/namespaces/" + namespace + "/secrets"
)

// idle measures what the nodes do when nobody but the other client asks them for anything.
func (r *run) idle(ctx context.Context) error {
	return r.row(ctx, "idle", "idle", func(ctx context.Context, _ *timed) error {
		measure.Pause(ctx, r.o.Duration/2)
		return nil
	})
}

func (r *run) gets(ctx context.Context, n int) error {
	return r.closed(ctx, "get", "get of a random one, Most Recent, 32 clients", 32, func(int) client.Request {
		return client.Request{Method: http.MethodGet, Path: configMapsPath + "/" + name(rand.IntN(n)), Header: client.Plain}
	})
}

func (r *run) updates(ctx context.Context, n int) error {
	return r.closed(ctx, "patch", "patch of a label of a random one, 32 clients", 32, func(i int) client.Request {
		return client.Request{
			Method: http.MethodPatch, Path: configMapsPath + "/" + name(rand.IntN(n)), Header: client.MergeBody,
			Body: fmt.Appendf(nil, `{"metadata":{"labels":{"turn":"%d"}}}`, i),
		}
	})
}

func (r *run) pages(ctx context.Context) error {
	return r.closed(ctx, "page", "list of the first 500, 4 clients", 4, func(int) client.Request {
		return client.Request{Method: http.MethodGet, Path: configMapsPath, Query: "limit=500", Header: client.Plain}
	})
}

// list lists all of them, Most Recent, without pauses.
func (r *run) list(ctx context.Context, clients int) error {
	who := "one client"
	if clients > 1 {
		who = fmt.Sprintf("%d clients", clients)
	}
	return r.closed(ctx, "list", "consistent list of all, "+who, clients, func(int) client.Request {
		return client.Request{Method: http.MethodGet, Path: configMapsPath, Header: client.Plain}
	})
}

// watchers are n watches of one object each over 50 connections, while 1,000 of the objects are
// changed a second.
func (r *run) watchers(ctx context.Context, n int) error {
	ctx, cancel := context.WithCancel(ctx)
	var conns []*client.Conn
	var wg sync.WaitGroup
	defer func() {
		cancel()
		_ = client.CloseAll(conns)
		wg.Wait()
	}()
	for i := range 50 {
		conn, err := r.cluster.Nodes[i%len(r.cluster.Nodes)].Dial(ctx, r.cluster.TLS)
		if err != nil {
			return err
		}
		conns = append(conns, conn)
	}
	sent := make([]atomic.Int64, n) // when the newest change of an object was sent
	var events atomic.Pointer[timed]
	follow := func(k int) error {
		resp, err := conns[k%len(conns)].Open(ctx, client.Request{
			Method: http.MethodGet, Path: configMapsPath, Header: client.Plain, Query: "watch=true&resourceVersion=0&fieldSelector=metadata.name%3D" + name(k),
		})
		if err != nil {
			return err
		}
		wg.Go(func() {
			defer resp.Body.Close()
			first := true // is no event
			_, err := eachLine(resp.Body, 2<<10, func(line []byte) bool {
				if at, t := sent[k].Load(), events.Load(); !first && at != 0 && t != nil {
					t.Note(r.clock.Now()-time.Duration(at), len(line), nil)
				}
				first = false
				return true
			})
			if t := events.Load(); t != nil && ctx.Err() == nil && !errors.Is(err, io.EOF) {
				t.Note(0, 0, err)
			}
		})
		return nil
	}
	err := r.row(ctx, "watch", "watches begun", func(_ context.Context, t *timed) error {
		for k := range n {
			began := r.clock.Now()
			err := follow(k)
			t.Note(r.clock.Now()-began, 0, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return r.row(ctx, "event", "events, 1,000 changes/s: from the sending of the change to its event", func(_ context.Context, t *timed) error {
		events.Store(t)
		defer events.Store(nil)
		writes := newTimed()
		r.paced(ctx, writes, 1000, func(i int) (*client.Link, client.Request) {
			k := rand.IntN(n)
			sent[k].Store(int64(r.clock.Now()))
			return r.conns[i%len(r.conns)], client.Request{
				Method: http.MethodPatch, Path: configMapsPath + "/" + name(k), Header: client.MergeBody, Body: fmt.Appendf(nil, `{"metadata":{"labels":{"turn":"%d"}}}`, i),
			}
		})
		measure.Pause(ctx, r.o.Duration/20)
		if writes.Errors > 0 {
			return fmt.Errorf("%d changes failed: %w", writes.Errors, writes.First)
		}
		return nil
	})
}

// heartbeats of n nodes, spread evenly in the mean.
func (r *run) heartbeats(ctx context.Context, n int) error {
	leases, status, events := float64(n)/10, float64(n)/300, 200*float64(n)/5000
	all := leases + status + events
	return r.row(ctx, "heartbeat", "heartbeats: a tenth as many leases a second as nodes, statuses, Events", func(ctx context.Context, t *timed) error {
		r.paced(ctx, t, all, func(i int) (*client.Link, client.Request) {
			conn, node := r.conns[i%len(r.conns)], name(rand.IntN(n))
			switch x := rand.Float64() * all; {
			case x < leases:
				return conn, client.Request{Method: http.MethodPatch, Path: leasesPath + "/" + node, Header: client.MergeBody, Body: fmt.Appendf(nil, `{"spec":{"renewTime":"2026-01-01T00:00:00.%06dZ"}}`, i%1_000_000)}
			case x < leases+status:
				return conn, client.Request{Method: http.MethodPatch, Path: "/api/v1/nodes/" + node + "/status", Header: client.MergeBody, Body: fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady","message":"%d"}]}}`, i)}
			}
			return conn, client.Request{Method: http.MethodPost, Path: "/api/v1/namespaces/" + namespace + "/events", Header: client.JSONBody, Body: fmt.Appendf(nil,
				`{"apiVersion":"v1","kind":"Event","metadata":{"generateName":"%s."},"involvedObject":{"kind":"Node","name":"%s","namespace":"%s"},"reason":"NodeReady","message":"Node %s is ready","type":"Normal"}`, node, node, namespace, node)}
		})
		return nil
	})
}
