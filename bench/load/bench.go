package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/bench/host"
)

// bench is one run: the connections, the objects, and what is known of them.
type bench struct {
	options
	cluster *cluster
	conns   []*client.Conn
	// versions holds each object's resourceVersion. Object i is written by
	// worker i%workers alone, so nobody waits and nobody conflicts.
	versions [][]byte
	// round numbers changes, so that each one changes something. Rounds rise
	// from the start time on; runs that share a namespace do not meet.
	round int64
}

func newBench(o options, c *cluster, conns []*client.Conn) *bench {
	return &bench{options: o, cluster: c, conns: conns, versions: make([][]byte, o.objects), round: time.Now().UnixNano()}
}

// conn is worker w's connection.
func (b *bench) conn(w int) *client.Conn { return b.conns[w%len(b.conns)] }

func (b *bench) collection() string {
	return "/api/v1/namespaces/" + b.namespace + "/configmaps"
}

func (b *bench) path(i int) string { return b.collection() + "/" + name(i) }

// measure works through the scenarios, after it has seen to the objects.
func (b *bench) measure(ctx context.Context, chosen []scenario, progress io.Writer) (*report, error) {
	there, err := b.prepareNamespace(ctx)
	if err != nil {
		return nil, err
	}
	if !there && chosen[0].name != "create" {
		fmt.Fprintf(progress, "creating %d objects\n", b.objects)
		if out, err := create(ctx, b); err != nil || out.errors > 0 {
			return nil, errors.Join(fmt.Errorf("create the objects"), err, out.first)
		}
	}
	r := newReport(b)
	if err := b.calibrateInto(ctx, r, progress); err != nil {
		return nil, err
	}
	for _, s := range chosen {
		fmt.Fprintf(progress, "measuring %s\n", s.title)
		row, err := b.row(ctx, s)
		if err != nil {
			return nil, fmt.Errorf("measure %s: %w", s.name, err)
		}
		r.Rows = append(r.Rows, row)
	}
	if err := b.calibrateInto(ctx, r, progress); err != nil {
		return nil, err
	}
	if r.ResidentBytes, err = host.ResidentMemory(b.cluster.pids()); err != nil {
		return nil, err
	}
	fmt.Fprintf(progress, "waiting %s for memory that is given back\n", atRest)
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(atRest):
	}
	r.RestBytes, err = host.ResidentMemory(b.cluster.pids())
	return r, err
}

// atRest is how long after the last row memory is measured again.
const atRest = 10 * time.Second

// calibrateInto measures the bare server if that is asked for.
func (b *bench) calibrateInto(ctx context.Context, r *report, progress io.Writer) error {
	if !b.calibrate {
		return nil
	}
	fmt.Fprintln(progress, "measuring a bare server")
	one, err := b.bareCost(ctx)
	r.Bare = append(r.Bare, one)
	return err
}

func (b *bench) row(ctx context.Context, s scenario) (row, error) {
	if s.prepare != nil {
		if err := s.prepare(ctx, b); err != nil {
			return row{}, err
		}
	}
	before, err := host.CPUTimes(b.cluster.pids())
	if err != nil {
		return row{}, err
	}
	out, err := s.run(ctx, b)
	if err != nil {
		return row{}, err
	}
	after, err := host.CPUTimes(b.cluster.pids())
	if err != nil {
		return row{}, err
	}
	if err := ctx.Err(); err != nil {
		return row{}, err
	}
	return newRow(s, out, before, after), nil
}

// prepareNamespace makes the namespace and says whether it was there before; if
// so, it is expected to hold the objects of a run with --keep.
func (b *bench) prepareNamespace(ctx context.Context) (there bool, err error) {
	var buf bytes.Buffer
	body := []byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"` + b.namespace + `"}}`)
	_, err = b.conn(0).Do(ctx, client.Request{Method: http.MethodPost, Path: "/api/v1/namespaces", Header: client.JSONBody, Body: body}, &buf)
	var refused *client.Refusal
	if errors.As(err, &refused) && refused.Code == http.StatusConflict {
		return true, nil
	}
	return false, err
}

// clean deletes what the run made.
func (b *bench) clean(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var buf bytes.Buffer
	for _, path := range []string{b.collection(), "/api/v1/namespaces/" + b.namespace} {
		if _, err := b.conn(0).Do(ctx, client.Request{Method: http.MethodDelete, Path: path, Header: client.Plain}, &buf); err != nil {
			return fmt.Errorf("delete what was made: %w", err)
		}
	}
	return nil
}
