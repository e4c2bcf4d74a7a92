package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/quorate/quorate/bench/client"
)

// verb is a kind of operation.
type verb string

const (
	create verb = "create"
	get    verb = "get"  // resourceVersion unset
	get0   verb = "get0" // resourceVersion=0
	list   verb = "list"
	list0  verb = "list0"
	page   verb = "page" // the first 500
	update verb = "update"
	patch  verb = "patch"
	apply  verb = "apply"
	watch  verb = "watch" // of one object, until its state is there
)

// verbs are all of them.
var verbs = []verb{create, get, get0, list, list0, page, update, patch, apply, watch}

func verbNames() []string { return texts(verbs) }

func texts(list []verb) []string {
	var out []string
	for _, v := range list {
		out = append(out, string(v))
	}
	return out
}

// writesOne reports whether an operation of the verb changes an object that is there: two
// must not do that at the same time.
func (v verb) writesOne() bool { return v == update || v == patch || v == apply }

// pageSize is that of page.
const pageSize = 500

// bodies are what is sent for the objects, encoded beforehand.
type bodies struct {
	created [][]byte
	// turns are two encodings of each object, used in turns, so that each update changes
	// something.
	turns   [2][]replacement
	times   []int
	applied []replacement
}

// prepareVerb encodes what operations of the verb send, and learns what they need to know.
func (b *bench) prepareVerb(ctx context.Context, v verb) error {
	switch v {
	case create:
		if b.bodies.created == nil {
			b.bodies.created = make([][]byte, b.Objects)
			for i := range b.bodies.created {
				b.bodies.created[i] = object(b.namespace, i, b.round, "")
			}
		}
	case update:
		for t := range b.bodies.turns {
			b.round++
			b.bodies.turns[t] = make([]replacement, b.Objects)
			for i := range b.bodies.turns[t] {
				b.bodies.turns[t][i] = newReplacement(b.namespace, i, b.round)
			}
		}
		b.bodies.times = make([]int, b.Objects)
		return b.learnVersions(ctx)
	case apply:
		b.bodies.applied = make([]replacement, b.Objects)
		for i := range b.bodies.applied {
			b.bodies.applied[i] = newConfiguration(b.namespace, i)
		}
	}
	return nil
}

// operate makes one operation with object i over worker w's connection. Of a create, an i
// beyond the objects is a new one of the mix or the rate, which lies elsewhere, so that
// lists stay as long as they are.
func (b *bench) operate(ctx context.Context, v verb, w, i int, buf *bytes.Buffer) error {
	if b.target.Etcd {
		return b.operateEtcd(ctx, v, w, i, buf)
	}
	read := client.Request{Method: http.MethodGet, Path: b.path(i), Header: client.Plain}
	switch v {
	case create:
		if i >= b.Objects {
			body := object(b.elsewhere(), i, b.round, "")
			_, err := b.conn(w).Do(ctx, client.Request{Method: http.MethodPost, Path: b.collectionOf(b.elsewhere()), Header: client.JSONBody, Body: body}, buf)
			return err
		}
		return b.write(ctx, w, i, client.Request{Method: http.MethodPost, Path: b.collection(), Header: client.JSONBody, Body: b.bodies.created[i]}, buf)
	case get0:
		read.Query = "resourceVersion=0"
		fallthrough
	case get:
		_, err := b.conn(w).Do(ctx, read, buf)
		return err
	case list:
		return b.list(ctx, w, "", b.Objects)
	case list0:
		return b.list(ctx, w, "resourceVersion=0", b.Objects)
	case page:
		return b.list(ctx, w, "limit="+strconv.Itoa(pageSize), min(pageSize, b.Objects))
	case update:
		b.bodies.times[i]++
		body := b.bodies.turns[b.bodies.times[i]%2][i].at(b.versions[i])
		return b.write(ctx, w, i, client.Request{Method: http.MethodPut, Path: b.path(i), Header: client.JSONBody, Body: body}, buf)
	case patch:
		// The round is the time of its start.
		return b.write(ctx, w, i, client.Request{Method: http.MethodPatch, Path: b.path(i), Header: client.MergeBody, Body: mergePatch(time.Now().UnixNano())}, buf)
	case apply:
		// The whole object, as kubectl apply --server-side does, with a label that is new.
		body := b.bodies.applied[i].at(strconv.AppendInt(nil, time.Now().UnixNano(), 10))
		return b.write(ctx, w, i, client.Request{Method: http.MethodPatch, Path: b.path(i), Query: "fieldManager=bench&force=true", Header: client.ApplyBody, Body: body}, buf)
	case watch:
		return b.watchOne(ctx, w, i)
	}
	return fmt.Errorf("there is no verb %q", v)
}

// write sends a write of object i and remembers its new version.
func (b *bench) write(ctx context.Context, w, i int, r client.Request, buf *bytes.Buffer) error {
	if _, err := b.conn(w).Do(ctx, r, buf); err != nil {
		return err
	}
	v, err := client.VersionOf(buf.Bytes())
	if err == nil {
		b.versions[i] = append(b.versions[i][:0], v...)
	}
	return err
}

// list reads the collection, or its first page. An answer that is too short to hold the
// objects' values is an error.
func (b *bench) list(ctx context.Context, w int, query string, expected int) error {
	resp, err := b.conn(w).Open(ctx, client.Request{Method: http.MethodGet, Path: b.collection(), Query: query, Header: client.Plain})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err == nil && n < int64(expected*valueSize) {
		err = fmt.Errorf("a list of %d objects has only %d bytes", expected, n)
	}
	return err
}

// watchOne opens a watch of one object and ends it when the object's state has come.
func (b *bench) watchOne(ctx context.Context, w, i int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	query := "watch=true&fieldSelector=metadata.name%3D" + name(i)
	resp, err := b.conn(w).Open(ctx, client.Request{Method: http.MethodGet, Path: b.collection(), Query: query, Header: client.Plain})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	head := make([]byte, len(addedEvent))
	if _, err := io.ReadFull(resp.Body, head); err != nil {
		return fmt.Errorf("read the first event: %w", err)
	}
	if string(head) != addedEvent {
		return fmt.Errorf("the first event of a watch begins with %q", head)
	}
	return nil
}

const addedEvent = `{"type":"ADDED"`

// mine is the object that worker w writes in its nth operation of a closed loop.
func (b *bench) mine(w, n, workers int) int {
	share := (b.Objects - w + workers - 1) / workers
	return n%share*workers + w
}

// pick chooses the object of an operation of a closed loop: one of the worker's own for
// writes, so that nobody waits and nobody conflicts.
func (b *bench) pick(v verb, w, n, workers int) int {
	switch {
	case v == create:
		return b.Objects + int(b.made.Add(1)-1)
	case v.writesOne():
		return b.mine(w, n, workers)
	}
	return rand.IntN(b.Objects)
}

// learnVersions reads the versions of objects that an earlier run has made.
func (b *bench) learnVersions(ctx context.Context) error {
	if b.versions[0] != nil {
		return nil
	}
	bufs := make([]bytes.Buffer, b.Workers)
	t := newTally(1)
	each(ctx, b.Workers, b.Objects, t, func(ctx context.Context, w, i int) error { return b.learn(ctx, w, i, &bufs[w]) })
	if err := errors.Join(t.first, ctx.Err()); err != nil {
		return fmt.Errorf("read the objects' versions: %w", err)
	}
	return nil
}

// learn reads the version of one.
func (b *bench) learn(ctx context.Context, w, i int, buf *bytes.Buffer) error {
	if b.target.Etcd {
		return b.learnEtcd(ctx, w, i, buf)
	}
	return b.write(ctx, w, i, client.Request{Method: http.MethodGet, Path: b.path(i), Header: client.Plain}, buf)
}
