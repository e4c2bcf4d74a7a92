package scale

import (
	"bufio"
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
		fills: func(n int) []fill { return []fill{configMaps(n, 1024)} },
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
		fills: func(n int) []fill { return []fill{configMaps(n, 1000)} },
		rows: func(ctx context.Context, r *run, n int) error {
			return errors.Join(r.idle(ctx), r.list(ctx, 1), r.row(ctx, "consistent list of all that a label selects: none, 1/s", func(ctx context.Context, t *timed) error {
				r.paced(ctx, t, 1, func(i int) (*client.Conn, client.Request) {
					return r.conns[i%len(r.conns)], client.Request{Method: http.MethodGet, Path: configMapsPath, Query: "labelSelector=group%3Dtwo", Header: client.Plain}
				})
				return nil
			}))
		},
	},
	{
		Name: "kep3157", What: "400 Secrets of 1 MB, followed by 64 informers with watch lists (KEP-3157; 1,024 there)", Full: 64, Unit: "informers",
		Published: []Published{
			{"kube-apiserver with lists", "16 informers end it for want of memory", kepsLink + "3157-watch-list"},
			{"kube-apiserver with watch lists", "about 2 GB instead of 20", "https://kubernetes.io/blog/2024/12/17/kube-apiserver-api-streaming/"},
		},
		fills: func(int) []fill {
			return []fill{named("secrets", "/api/v1/namespaces/"+namespace+"/secrets", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"`+template+`"},"data":{"value":"`+value(1_000_000)+`"}}`, 399)}
		},
		rows: func(ctx context.Context, r *run, n int) error { return errors.Join(r.idle(ctx), r.informers(ctx, n)) },
	},
	{
		Name: "kep5116", What: "whole lists of 10,000 objects of 100 KB, four at a time (KEP-5116)", Full: 10_000, Unit: "ConfigMaps",
		Published: []Published{
			{"kube-apiserver before streaming encoding", "70 to 80 GB of memory", "https://kubernetes.io/blog/2025/05/09/kubernetes-v1-33-streaming-list-responses/"},
			{"kube-apiserver with it", "3 GB", "https://kubernetes.io/blog/2025/05/09/kubernetes-v1-33-streaming-list-responses/"},
		},
		fills: func(n int) []fill { return []fill{configMaps(n, 100_000)} },
		rows:  func(ctx context.Context, r *run, n int) error { return errors.Join(r.idle(ctx), r.list(ctx, 4)) },
	},
	{
		Name: "watchers", What: "10,000 watches of one object each, 1,000 events/s", Full: 10_000, Unit: "watches",
		fills: func(n int) []fill { return []fill{configMaps(n, 256)} },
		rows:  func(ctx context.Context, r *run, n int) error { return r.watchers(ctx, n) },
	},
	{
		Name: "heartbeats", What: "the heartbeats of 5,000 nodes: a lease every 10 s, a status every 5 min, and Events at 200/s", Full: 5_000, Unit: "nodes",
		fills: func(n int) []fill {
			return []fill{
				named("leases.coordination.k8s.io", leasesPath, `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"`+template+`"},"spec":{"holderIdentity":"`+template+`","leaseDurationSeconds":40,"renewTime":"2026-01-01T00:00:00.000000Z"}}`, n),
				named("nodes", "/api/v1/nodes", `{"apiVersion":"v1","kind":"Node","metadata":{"name":"`+template+`"},"status":{"capacity":{"cpu":"8","memory":"32Gi","pods":"110"}}}`, n),
			}
		},
		rows: func(ctx context.Context, r *run, n int) error { return errors.Join(r.idle(ctx), r.heartbeats(ctx, n)) },
	},
	{
		Name: "sig", What: "150,000 Pods in 50 namespaces (SIG Scalability's thresholds)", Full: 150_000, Unit: "Pods",
		Published: []Published{{"SIG Scalability", "a cluster may have 150,000 Pods, 3,000 in a namespace; lists of a namespace and of a cluster are to take 30 s at most at the 99th percentile, other reads 1 s", "https://github.com/kubernetes/community/tree/master/sig-scalability"}},
		fills:     sigFills,
		rows: func(ctx context.Context, r *run, n int) error {
			return errors.Join(r.idle(ctx), r.row(ctx, "list of a namespace, 4 clients", func(ctx context.Context, t *timed) error {
				r.closed(ctx, t, 4, func(i int) (*client.Conn, client.Request) {
					return r.conns[i%len(r.conns)], client.Request{Method: http.MethodGet, Path: "/api/v1/namespaces/" + sigNamespace(i%sigNamespaces) + "/pods", Header: client.Plain}
				})
				return nil
			}), r.row(ctx, "list of the Pods of one node, by field selector, 4 clients", func(ctx context.Context, t *timed) error {
				r.closed(ctx, t, 4, func(i int) (*client.Conn, client.Request) {
					return r.conns[i%len(r.conns)], client.Request{Method: http.MethodGet, Path: "/api/v1/pods", Query: "fieldSelector=spec.nodeName%3D" + name(i%5000), Header: client.Plain}
				})
				return nil
			}), r.row(ctx, "list of all Pods", func(ctx context.Context, t *timed) error {
				r.closed(ctx, t, 1, func(i int) (*client.Conn, client.Request) {
					return r.conns[i%len(r.conns)], client.Request{Method: http.MethodGet, Path: "/api/v1/pods", Header: client.Plain}
				})
				return nil
			}))
		},
	},
}

const leasesPath = "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases"

const sigNamespaces = 50

// sigNamespace has a name as long as the template's, which is what its copies are named by.
func sigNamespace(i int) string { return fmt.Sprintf("scale-%02d", i) }

// sigFills are namespaces, and Pods in all of them that are bound to 5,000 nodes.
func sigFills(n int) []fill {
	const node = "node-of-the-pod"
	of := "scale-tt"
	return []fill{
		{
			table: "namespaces", key: of, collection: "/api/v1/namespaces", n: sigNamespaces, texts: []string{of},
			body: `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"` + of + `"}}`,
			with: func(i int, _ string) string { return sigNamespace(i) },
		},
		{
			table: "pods", key: of + "/" + template, collection: "/api/v1/namespaces/" + of + "/pods", n: n, texts: []string{of, template, node},
			body: `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"` + template + `","labels":{"app":"scale"}},"spec":{"serviceAccountName":"default","automountServiceAccountToken":false,"nodeName":"` + node + `","containers":[{"name":"c","image":"registry.example/app:1","resources":{"requests":{"cpu":"10m","memory":"32Mi"}}}]}}`,
			with: func(i int, text string) string {
				switch text {
				case of:
					return sigNamespace(i % sigNamespaces)
				case node:
					return name(i % 5000)
				}
				return name(i)
			},
		},
	}
}

// idle measures what the nodes do when nobody but the other client asks them for anything.
func (r *run) idle(ctx context.Context) error {
	return r.row(ctx, "idle", func(ctx context.Context, _ *timed) error {
		measure.Pause(ctx, r.o.Duration/2)
		return nil
	})
}

func (r *run) gets(ctx context.Context, n int) error {
	return r.row(ctx, "get of a random one, Most Recent, 32 clients", func(ctx context.Context, t *timed) error {
		r.closed(ctx, t, 32, func(i int) (*client.Conn, client.Request) {
			return r.conns[i%len(r.conns)], client.Request{Method: http.MethodGet, Path: configMapsPath + "/" + name(rand.IntN(n)), Header: client.Plain}
		})
		return nil
	})
}

func (r *run) updates(ctx context.Context, n int) error {
	return r.row(ctx, "patch of a label of a random one, 32 clients", func(ctx context.Context, t *timed) error {
		r.closed(ctx, t, 32, func(i int) (*client.Conn, client.Request) {
			return r.conns[i%len(r.conns)], client.Request{
				Method: http.MethodPatch, Path: configMapsPath + "/" + name(rand.IntN(n)), Header: client.MergeBody,
				Body: fmt.Appendf(nil, `{"metadata":{"labels":{"turn":"%d"}}}`, i),
			}
		})
		return nil
	})
}

func (r *run) pages(ctx context.Context) error {
	return r.row(ctx, "list of the first 500, 4 clients", func(ctx context.Context, t *timed) error {
		r.closed(ctx, t, 4, func(i int) (*client.Conn, client.Request) {
			return r.conns[i%len(r.conns)], client.Request{Method: http.MethodGet, Path: configMapsPath, Query: "limit=500", Header: client.Plain}
		})
		return nil
	})
}

// list lists all of them, Most Recent: with one client once a second, with more without pauses.
func (r *run) list(ctx context.Context, clients int) error {
	all := func(i int) (*client.Conn, client.Request) {
		return r.conns[i%len(r.conns)], client.Request{Method: http.MethodGet, Path: configMapsPath, Header: client.Plain}
	}
	if clients == 1 {
		return r.row(ctx, "consistent list of all, one client", func(ctx context.Context, t *timed) error {
			r.closed(ctx, t, 1, all)
			return nil
		})
	}
	return r.row(ctx, fmt.Sprintf("consistent list of all, %d clients", clients), func(ctx context.Context, t *timed) error {
		r.closed(ctx, t, clients, all)
		return nil
	})
}

// informers follow all Secrets from one node: each has read them when the bookmark comes that
// ends its initial events.
func (r *run) informers(ctx context.Context, n int) error {
	return r.row(ctx, "informers that read all Secrets, at once, from one node", func(ctx context.Context, t *timed) error {
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() {
				began := r.clock.Now()
				bytes, err := r.informer(ctx)
				t.done(r.clock.Now()-began, bytes, err)
			})
		}
		wg.Wait()
		return nil
	})
}

func (r *run) informer(ctx context.Context) (read int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := r.cluster.Nodes[0].Dial(ctx, r.cluster.TLS)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	resp, err := conn.Open(ctx, client.Request{
		Method: http.MethodGet, Path: "/api/v1/namespaces/" + namespace + "/secrets", Header: client.Plain,
		Query: "watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan",
	})
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	lines := bufio.NewReaderSize(resp.Body, 64<<10)
	begins, isFirst := "", true
	for {
		part, more, err := lines.ReadLine()
		if err != nil {
			return read, fmt.Errorf("before the end of the initial events: %w", err)
		}
		read += len(part)
		if isFirst {
			begins = string(part[:min(len(part), 32)])
		}
		if isFirst = !more; isFirst && len(begins) > 18 && begins[:18] == `{"type":"BOOKMARK"` {
			return read, nil
		}
	}
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
			lines := bufio.NewReaderSize(resp.Body, 2<<10)
			for first := true; ; first = false {
				line, more, err := lines.ReadLine()
				for err == nil && more {
					_, more, err = lines.ReadLine()
				}
				if err != nil {
					if t := events.Load(); t != nil && ctx.Err() == nil && !errors.Is(err, io.EOF) {
						t.done(0, 0, err)
					}
					return
				}
				if at := sent[k].Load(); !first && at != 0 {
					if t := events.Load(); t != nil {
						t.done(r.clock.Now()-time.Duration(at), len(line), nil)
					}
				}
			}
		})
		return nil
	}
	err := r.row(ctx, "watches begun", func(_ context.Context, t *timed) error {
		for k := range n {
			began := r.clock.Now()
			err := follow(k)
			t.done(r.clock.Now()-began, 0, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return r.row(ctx, "events, 1,000 changes/s: from the sending of the change to its event", func(_ context.Context, t *timed) error {
		events.Store(t)
		defer events.Store(nil)
		writes := &timed{times: measure.NewHistogram()}
		r.paced(ctx, writes, 1000, func(i int) (*client.Conn, client.Request) {
			k := rand.IntN(n)
			sent[k].Store(int64(r.clock.Now()))
			return r.conns[i%len(r.conns)], client.Request{
				Method: http.MethodPatch, Path: configMapsPath + "/" + name(k), Header: client.MergeBody, Body: fmt.Appendf(nil, `{"metadata":{"labels":{"turn":"%d"}}}`, i),
			}
		})
		measure.Pause(ctx, r.o.Duration/20)
		if writes.errors.Load() > 0 {
			return fmt.Errorf("%d changes failed: %w", writes.errors.Load(), *writes.first.Load())
		}
		return nil
	})
}

// heartbeats of n nodes, spread evenly in the mean.
func (r *run) heartbeats(ctx context.Context, n int) error {
	leases, status, events := float64(n)/10, float64(n)/300, 200*float64(n)/5000
	all := leases + status + events
	return r.row(ctx, "heartbeats: a tenth as many leases a second as nodes, statuses, Events", func(ctx context.Context, t *timed) error {
		r.paced(ctx, t, all, func(i int) (*client.Conn, client.Request) {
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
