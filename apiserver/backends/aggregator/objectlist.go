package aggregator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// statusError is an answer that is not a success.
type statusError struct {
	code    int
	message string
}

// Error implements error.
func (e *statusError) Error() string { return e.message }

// notSupported reports whether a server does not have that verb, or what it was asked for.
func notSupported(err error) bool {
	e := (*statusError)(nil)
	return errors.As(err, &e) && (e.code == http.StatusMethodNotAllowed || e.code == http.StatusNotFound)
}

// isConflict reports whether an object was another one.
func isConflict(err error) bool {
	e := (*statusError)(nil)
	return errors.As(err, &e) && e.code == http.StatusConflict
}

func escape(text string) string { return url.QueryEscape(text) }

// deleteOptions are those of upstream's namespace controller: nobody is orphaned. uid, if there is one, is a
// condition.
func deleteOptions(uid string) string {
	o := map[string]any{"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": metav1.DeletePropagationBackground}
	if uid != "" {
		o["preconditions"] = map[string]any{"uid": uid}
	}
	text, err := json.Marshal(o)
	if err != nil {
		panic(err) // strings can be encoded
	}
	return string(text)
}

const acceptMetadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"

// do sends a request. A success is read by read, if there is one: that bounds what it takes.
func (e *emptying) do(ctx context.Context, timeout time.Duration, method, path, query, body string, read func(io.Reader) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	h := http.Header{"Accept": {"application/json"}}
	if read != nil {
		h.Set("Accept", acceptMetadata)
	}
	if body != "" {
		h.Set("Content-Type", "application/json")
	}
	res, err := e.a.send(ctx, e.c.server, method, url.URL{Path: path, RawQuery: query}, body, h, e.user)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode < 200 || res.StatusCode >= 300 {
		return refusal(method, path, res)
	}
	if read == nil {
		// The answer to the deletion of a collection has all its objects, and nobody wants them. Of a short
		// one the rest is read, so that the connection can be used again.
		err = leave(res)
	} else {
		err = read(res.Body)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// leave reads the rest of an answer if it is short.
func leave(res *http.Response) error {
	_, err := io.CopyN(io.Discard, res.Body, 64<<10)
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// refusal is what a server says when it does not do what it was asked for.
func refusal(method, path string, res *http.Response) error {
	e := &statusError{res.StatusCode, fmt.Sprintf("%s %s: %d", method, path, res.StatusCode)}
	text, err := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	var s metav1.Status
	if err == nil && json.Unmarshal(text, &s) == nil && s.Message != "" {
		e.message = strings.ToValidUTF8(fmt.Sprintf("%.*s", failureLength, s.Message), "")
	}
	return e
}

// listed is what lists say: how many objects, and who holds them.
type listed struct {
	objects    int
	finalizers map[string]int // nil: not counted
	next       string         // the token of the next page
	stop       func(*listedObject) bool
	stopped    bool // at an object that stop was true of; the numbers are not complete
	keep       bool // those objects of a page that can be deleted, up to maxKept
	kept       []deletable
}

// deletable is an object to delete.
type deletable struct{ name, uid string }

// listedObject is what is read of an object.
type listedObject struct {
	Metadata struct {
		Name              string   `json:"name"`
		UID               string   `json:"uid"`
		DeletionTimestamp *string  `json:"deletionTimestamp"`
		Finalizers        []string `json:"finalizers"`
	} `json:"metadata"`
}

// waits reports whether another delete would change nothing: a deletion runs, and the garbage collector
// has nothing to do with its dependents.
func (o *listedObject) waits() bool {
	return o.Metadata.DeletionTimestamp != nil &&
		!slices.Contains(o.Metadata.Finalizers, metav1.FinalizerDeleteDependents) && !slices.Contains(o.Metadata.Finalizers, metav1.FinalizerOrphanDependents)
}

var errNoList = errors.New("the answer is not a list of objects")

// read takes a list object by object: no more than one, and what a decoder has read ahead, is in memory, unless they are kept.
func (l *listed) read(from io.Reader) error {
	in := &allowance{from: from, left: maxObject}
	dec := json.NewDecoder(in)
	switch t, err := dec.Token(); {
	case err != nil:
		return noList(err)
	case t != json.Delim('{'):
		return errNoList
	}
	there := false
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return noList(err)
		}
		in.left = maxObject
		switch key {
		case "metadata":
			var meta metav1.ListMeta
			if err := dec.Decode(&meta); err != nil {
				return noList(err)
			}
			if len(meta.Continue) > maxToken {
				return fmt.Errorf("the token of the next page is longer than %d bytes", maxToken)
			}
			l.next = meta.Continue
		case "items":
			if there {
				return errNoList
			}
			there = true
			if err := l.items(dec, in); err != nil || l.stopped {
				return err
			}
		default:
			var skipped json.RawMessage
			if err := dec.Decode(&skipped); err != nil {
				return noList(err)
			}
		}
	}
	if !there {
		return errNoList // what is not a list is not an empty one
	}
	_, err := dec.Token()
	return noList(err)
}

func noList(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errLongObject):
		return errLongObject
	}
	return fmt.Errorf("the answer cannot be read: %w", err)
}

// items reads the objects of a list: null is none.
func (l *listed) items(dec *json.Decoder, in *allowance) error {
	t, err := dec.Token()
	if err != nil || t == nil {
		return noList(err)
	}
	if t != json.Delim('[') {
		return errNoList
	}
	for dec.More() {
		in.left = maxObject
		o := &listedObject{}
		if err := dec.Decode(o); err != nil {
			return noList(err)
		}
		if l.stop != nil && l.stop(o) {
			l.stopped = true
			return nil
		}
		l.add(o)
	}
	_, err = dec.Token()
	return noList(err)
}

func (l *listed) add(o *listedObject) {
	l.objects++
	if l.keep && len(l.kept) < maxKept && !o.waits() && isSegment(o.Metadata.Name) && len(o.Metadata.UID) <= maxName {
		l.kept = append(l.kept, deletable{o.Metadata.Name, o.Metadata.UID})
	}
	if l.finalizers == nil {
		return
	}
	for _, f := range o.Metadata.Finalizers {
		if len(f) > maxName {
			continue
		}
		if _, ok := l.finalizers[f]; ok || len(l.finalizers) < maxFinalizers {
			l.finalizers[f]++
		}
	}
}

var errLongObject = fmt.Errorf("an object of the answer is longer than %d bytes", maxObject)

// allowance ends a reader that gives more than what is left.
type allowance struct {
	from io.Reader
	left int
}

// Read implements io.Reader.
func (a *allowance) Read(b []byte) (int, error) {
	if a.left <= 0 {
		return 0, errLongObject
	}
	n, err := a.from.Read(b[:min(len(b), a.left)])
	a.left -= n
	return n, err
}
