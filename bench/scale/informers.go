package scale

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"

	"github.com/quorate/quorate/bench/client"
)

// informers follow all Secrets from one node: each has read them when the bookmark comes that
// ends its initial events.
func (r *run) informers(ctx context.Context, n int) error {
	return r.row(ctx, "informer", "informers that read all Secrets, at once, from one node", func(ctx context.Context, t *timed) error {
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() {
				began := r.clock.Now()
				bytes, err := r.informer(ctx, secretsPath)
				t.Note(r.clock.Now()-began, bytes, err)
			})
		}
		wg.Wait()
		return nil
	})
}

// informer reads the initial events of a watch from the first node.
func (r *run) informer(ctx context.Context, path string) (read int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := r.cluster.Nodes[0].Dial(ctx, r.cluster.TLS)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	resp, err := conn.Open(ctx, client.Request{
		Method: http.MethodGet, Path: path, Header: client.Plain,
		Query: "watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan",
	})
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	read, err = eachLine(resp.Body, 64<<10, func(begins []byte) bool { return !bytes.HasPrefix(begins, []byte(`{"type":"BOOKMARK"`)) })
	if err != nil {
		err = fmt.Errorf("before the end of the initial events: %w", err)
	}
	return read, err
}

// eachLine calls f with the beginning of each line, until it says no. Lines may be of megabytes; so much is read at once.
func eachLine(body io.Reader, size int, f func(begins []byte) bool) (read int, err error) {
	lines := bufio.NewReaderSize(body, size)
	for isFirst := true; ; {
		part, more, err := lines.ReadLine()
		if err != nil {
			return read, err
		}
		read += len(part)
		if isFirst && !f(part) {
			return read, nil
		}
		isFirst = !more
	}
}

// pageObjects is the size of the pages that informers ask for.
const pageObjects = 500

// walks has clients read a collection page by page, again and again; a page is an operation.
func (r *run) walks(ctx context.Context, id, what string, clients int, path string) error {
	return r.row(ctx, id, what, func(ctx context.Context, t *timed) error {
		next := make([]atomic.Pointer[string], clients) // continue tokens
		begins := fmt.Sprintf("limit=%d", pageObjects)
		r.workers(ctx, t, clients, func(worker, i int) (int, error) {
			query := begins
			if at := next[worker].Swap(nil); at != nil {
				query += "&continue=" + url.QueryEscape(*at)
			}
			head := &prefix{most: 4 << 10}
			n, err := read(ctx, r.conns[worker%len(r.conns)], client.Request{Method: http.MethodGet, Path: path, Query: query, Header: client.Plain}, head)
			if token := continueToken(head.bytes); token != "" {
				next[worker].Store(&token)
			}
			return n, err
		})
		return nil
	})
}

// continueToken finds a page's in the beginning of the answer, where the list's metadata are.
func continueToken(begins []byte) string {
	token, ok := client.Between(begins, `"continue":"`, '"')
	if !ok {
		return ""
	}
	return string(token)
}

// prefix keeps the beginning of what is written.
type prefix struct {
	bytes []byte
	most  int
}

func (p *prefix) Write(b []byte) (int, error) {
	p.bytes = append(p.bytes, b[:min(len(b), p.most-len(p.bytes))]...)
	return len(b), nil
}
