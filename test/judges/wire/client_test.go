package wire

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/test/judges/history"
)

// script is a World whose nodes answer what they are told to. Each call takes a second.
type script struct {
	now     time.Duration
	answers []any // Answer or error
	asked   []string
	garbled int
}

func (s *script) Now() time.Duration { return s.now }

func (s *script) Name(node string) string { return node }

func (s *script) Call(_ context.Context, node string, q Request) (Answer, error) {
	s.now += time.Second
	s.asked = append(s.asked, strings.TrimSpace(fmt.Sprintf("%s %s %s?%s %s%s", node, q.Method, q.Path, q.Query.Encode(), q.ContentType, q.Body)))
	next := s.answers[0]
	s.answers = s.answers[1:]
	if err, ok := next.(error); ok {
		return Answer{}, err
	}
	return next.(Answer), nil
}

func (s *script) Garbled(*history.Op, Answer, error) { s.garbled++ }

func (s *script) Item(o *Object) history.Item {
	return history.Item{Key: o.Metadata.Name, Value: o.Data["value"], Revision: o.Revision()}
}

func (s *script) ObjectPath(key string) string { return "/o/" + key }

func (s *script) CollectionPath(prefix string) string { return "/o" + prefix }

func newScripted(answers ...any) (*script, *Client[string]) {
	s := &script{answers: answers}
	return s, &Client[string]{World: s, Seen: &Seen{}, RNG: rand.New(rand.NewPCG(1, 1)), ID: 7, NextLife: 100}
}

func said(code int, body string) Answer {
	return Answer{Code: code, Header: http.Header{}, Body: []byte(body)}
}

const object = `{"metadata":{"name":"k","resourceVersion":"12"},"data":{"value":"v"}}`

// TestWrites compares what is recorded of a write, by what came of it.
func TestWrites(t *testing.T) {
	for _, x := range []struct {
		name   string
		op     history.Op
		answer any
		asked  string
		want   *history.Op // nil: nothing is recorded
		id     int         // that the client goes on under
	}{
		{"ok", history.Op{Kind: history.Create, Key: "k"}, said(201, object), "n POST /ok? body",
			&history.Op{Outcome: history.OK, Revision: 12, Return: time.Second}, 7},
		{"refused", history.Op{Kind: history.Update, Key: "k"}, said(409, `{"reason":"Conflict"}`), "n PUT /o/k? body",
			&history.Op{Outcome: history.Refused, Code: 409, Reason: "Conflict", Return: time.Second}, 7},
		{"it may yet happen", history.Op{Kind: history.Delete, Key: "k"}, said(504, `{"message":"late"}`), "n DELETE /o/k? body",
			&history.Op{Outcome: history.Unknown, Code: 504, Reason: "late", Return: history.Forever}, 107},
		{"no answer", history.Op{Kind: history.DeleteIf, Key: "k", Precondition: 5}, errors.New("reset"),
			`n DELETE /o/k? {"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"resourceVersion":"5"}}`,
			&history.Op{Outcome: history.Unknown, Reason: "reset", Return: history.Forever}, 107},
		{"half an answer", history.Op{Kind: history.UpdateIf, Key: "k"}, said(200, object[:9]), "n PUT /o/k? body",
			&history.Op{Outcome: history.Unknown, Reason: "unexpected end of JSON input", Return: history.Forever}, 107},
		{"nobody has seen it", history.Op{Kind: history.Create, Key: "k"}, fmt.Errorf("dial: %w", ErrNotSent), "n POST /ok? body", nil, 7},
	} {
		t.Run(x.name, func(t *testing.T) {
			s, k := newScripted(x.answer)
			outcome := k.Write(t.Context(), "n", x.op, k.WriteRequest(&x.op, []byte("body")))
			if s.asked[0] != x.asked {
				t.Errorf("asked %s, want %s", s.asked[0], x.asked)
			}
			if k.ID != x.id {
				t.Errorf("it goes on as %d, want %d", k.ID, x.id)
			}
			if x.want == nil {
				if outcome != "" || len(k.Ops) != 0 {
					t.Errorf("recorded %s %+v", outcome, k.Ops)
				}
				return
			}
			want := *x.want
			want.Kind, want.Key, want.Precondition, want.Client, want.Node = x.op.Kind, x.op.Key, x.op.Precondition, 7, "n"
			if len(k.Ops) != 1 || !reflect.DeepEqual(k.Ops[0], want) || outcome != want.Outcome {
				t.Errorf("%s, recorded\n%+v\nwant\n%+v", outcome, k.Ops, want)
			}
			if ok := outcome == history.OK; (k.Seen.Of("k") == 12) != ok {
				t.Errorf("the newest of the key is %d", k.Seen.Of("k"))
			}
			if half := x.name == "half an answer"; half != (s.garbled == 1) {
				t.Errorf("%d garbled", s.garbled)
			}
		})
	}
}

// TestReads compares what is recorded of gets.
func TestReads(t *testing.T) {
	for _, x := range []struct {
		name   string
		answer any
		want   *history.Op
	}{
		{"ok", said(200, object), &history.Op{Outcome: history.OK, Items: []history.Item{{Key: "k", Value: "v", Revision: 12}}}},
		{"not there", said(404, `{"reason":"NotFound"}`), &history.Op{Outcome: history.Refused, Code: 404, Reason: "NotFound"}},
		{"no answer", errors.New("reset"), &history.Op{Outcome: history.Refused, Reason: "reset"}},
		{"nobody has seen it", ErrNotSent, nil},
	} {
		s, k := newScripted(x.answer)
		k.Get(t.Context(), "n", history.Op{Kind: history.Get, Key: "k", Mode: history.NotOlderThan, Asked: 9})
		if want := "n GET /o/k?resourceVersion=9"; s.asked[0] != want {
			t.Errorf("%s: asked %s, want %s", x.name, s.asked[0], want)
		}
		if x.want == nil {
			if len(k.Ops) != 0 {
				t.Errorf("%s: recorded %+v", x.name, k.Ops)
			}
			continue
		}
		want := *x.want
		want.Kind, want.Key, want.Mode, want.Asked = history.Get, "k", history.NotOlderThan, 9
		want.Client, want.Node, want.Return = 7, "n", time.Second
		if len(k.Ops) != 1 || !reflect.DeepEqual(k.Ops[0], want) {
			t.Errorf("%s: recorded\n%+v\nwant\n%+v", x.name, k.Ops, want)
		}
	}
}

// TestPages reads a list in pages, each from another node.
func TestPages(t *testing.T) {
	page := func(name, token string) Answer {
		return said(200, `{"metadata":{"resourceVersion":"20","continue":"`+token+`"},"items":[{"metadata":{"name":"`+name+`","resourceVersion":"3"}}]}`)
	}
	s, k := newScripted(page("a", "t1"), page("b", "t2"), page("c", ""))
	k.List(t.Context(), "n", history.Op{Kind: history.List, Mode: history.MostRecent, Limit: 1}, url.Values{"labelSelector": {"x"}},
		func(n string) string { return n + "n" })
	want := "n GET /o?labelSelector=x&limit=1 | nn GET /o?continue=t1&limit=1 | nnn GET /o?continue=t2&limit=1"
	if got := strings.Join(s.asked, " | "); got != want {
		t.Errorf("asked\n%s\nwant\n%s", got, want)
	}
	for i, want := range []history.Op{
		{Mode: history.MostRecent, More: true, Items: []history.Item{{Key: "a", Revision: 3}}},
		{Mode: history.Exact, Asked: 20, After: "a", More: true, Items: []history.Item{{Key: "b", Revision: 3}}},
		{Mode: history.Exact, Asked: 20, After: "b", Items: []history.Item{{Key: "c", Revision: 3}}},
	} {
		got := k.Ops[i]
		want.Kind, want.Limit, want.Revision, want.Outcome, want.Client = history.List, 1, 20, history.OK, 7
		want.Node, want.Call, want.Return = got.Node, got.Call, got.Return
		if !reflect.DeepEqual(got, want) {
			t.Errorf("page %d\n%+v\nwant\n%+v", i, got, want)
		}
	}
	if len(k.Ops) != 3 || k.Seen.Newest() != 20 {
		t.Errorf("%d pages, the newest is %d", len(k.Ops), k.Seen.Newest())
	}
}

// TestResume compares where a watcher goes on, after events in order.
func TestResume(t *testing.T) {
	newest := func(r *Watching, _ url.Values) { r.Newest() }
	any := func(r *Watching, q url.Values) { r.Any(q) }
	list := func(r *Watching, q url.Values) { r.List(q, 5) }
	listNewest := func(r *Watching, q url.Values) { r.List(q, 0) }
	after := func(r *Watching, q url.Values) { r.After(q, 5) }
	for _, x := range []struct {
		name      string
		bookmarks bool
		begin     func(*Watching, url.Values)
		query     string
		events    string // type and revision; * is the end of the initial events
		from      uint64
	}{
		{"every event behind a revision", false, after, "resourceVersion=5", "ADDED 7,MODIFIED 9", 9},
		{"no initial event", false, newest, "", "ADDED 7,ADDED 3", 0},
		{"what only a change makes", false, any, "resourceVersion=0", "ADDED 7,ADDED 3,MODIFIED 9", 9},
		{"not with bookmarks, which will tell", true, any, "allowWatchBookmarks=true&resourceVersion=0", "ADDED 7,MODIFIED 9", 0},
		{"a bookmark", true, any, "allowWatchBookmarks=true&resourceVersion=0", "ADDED 7,BOOKMARK 9,MODIFIED 11", 9},
		{"behind the end of the initial events", true, list,
			"allowWatchBookmarks=true&resourceVersion=5&resourceVersionMatch=NotOlderThan&sendInitialEvents=true", "ADDED 7,BOOKMARK 9*,ADDED 11", 11},
		{"the end of the initial events", true, listNewest,
			"allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true", "ADDED 7,BOOKMARK 9*", 9},
	} {
		w := &Watcher{Bookmarks: x.bookmarks, Selector: "red"}
		r, q := w.Watch(7, "n")
		x.begin(r, q)
		if q.Get("watch") != "1" || q.Get("labelSelector") != "color=red" {
			t.Errorf("%s: asked %s", x.name, q.Encode())
		}
		q.Del("watch")
		q.Del("labelSelector")
		if q.Encode() != x.query {
			t.Errorf("%s: asked %s, want %s", x.name, q.Encode(), x.query)
		}
		for _, text := range strings.Split(x.events, ",") {
			var f Frame
			kind, rv, _ := strings.Cut(text, " ")
			f.Type = history.EventType(kind)
			f.Object.Metadata.ResourceVersion = strings.TrimSuffix(rv, "*")
			if strings.HasSuffix(rv, "*") {
				f.Object.Metadata.Annotations = map[string]string{"k8s.io/initial-events-end": "true"}
			}
			var it history.Item
			if f.Type != history.Bookmark {
				it = history.Item{Key: "k", Revision: f.Object.Revision()}
			}
			r.Note(&f, it, time.Second)
		}
		r.Over("closed", 2*time.Second)
		if w.From != x.from {
			t.Errorf("%s: it resumes at %d, want %d", x.name, w.From, x.from)
		}
		if len(w.Watches) != 1 || w.Watches[0].Ended != "closed" || w.Watches[0].End != 2*time.Second ||
			len(w.Watches[0].Events) != 1+strings.Count(x.events, ",") {
			t.Errorf("%s: recorded %+v", x.name, w.Watches)
		}
	}
}
