package objects_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/auth"
	"github.com/quorate/quorate/apiserver/builtin"
	"github.com/quorate/quorate/apiserver/builtin/service"
	"github.com/quorate/quorate/apiserver/codec"
	"github.com/quorate/quorate/apiserver/crd"
	"github.com/quorate/quorate/apiserver/kinds"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/patch"
	"github.com/quorate/quorate/apiserver/rbac"
	"github.com/quorate/quorate/apiserver/request"
	"github.com/quorate/quorate/apiserver/status"
	"github.com/quorate/quorate/apiserver/tree"
	"github.com/quorate/quorate/consistency"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/memstore"
	"github.com/quorate/quorate/raftstore/mvcc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// TestOperations runs testdata/operations/*.txt: what operations do with a store in memory,
// without HTTP, at noon. A file has cases, each with a store of its own, and a case operations
// with what must come of them:
//
//	== title
//	as alice                       who asks from here on; before, an administrator
//	VERB RESOURCE NAME ?QUERY {}   RESOURCE is a plural with its group and, behind a slash, a
//	                               subresource; @v2 is another version than v1. NAME is namespace/name
//	list RESOURCE NAMESPACE ?QUERY         the same of a collection; clear deletes what a list
//	clear RESOURCE NAMESPACE ?QUERY        would have, events are what a watch would have been
//	events RESOURCE NAMESPACE ?QUERY       sent from the beginning
//	dry ...                        one of these as a dry run
//	: created                      or changed, unchanged, deleted; of a collection the names, and
//	                               more if there is another page
//	! 422 text                     it is refused with this code and this text, which may go on
//	= path {...}                   a field of what came of it, as JSON; without {...}: it is not there
//	% manager Apply v1: .data.k    the entries of managedFields, all of them
//	w text                         a warning
//	$var path                      ${var} is the field of what came of it from here on; ${large}
//	                               is more than an object may have
//	rows TABLE KEY...              the keys of the rows of a table
//	behind ...                     one of these on a node that has nothing yet, and does not know it
//
// VERB is create, put, merge, json, strategic, apply, delete or get.
func TestOperations(t *testing.T) {
	files, err := filepath.Glob("testdata/operations/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no operations: %v", err)
	}
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		at := 1 + strings.Count(strings.SplitN("\n"+string(raw), "\n== ", 2)[0], "\n")
		for _, block := range strings.Split("\n"+string(raw), "\n== ")[1:] {
			title, _, _ := strings.Cut(block, "\n")
			begin := at
			at += 1 + strings.Count(block, "\n")
			t.Run(strings.TrimSuffix(filepath.Base(f), ".txt")+"/"+title, func(t *testing.T) {
				newOperations(t).run(filepath.Base(f), begin, block)
			})
		}
	}
}

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// operations is a store of objects on a memory store, who asks it, and what came of that last.
type operations struct {
	t     *testing.T
	mem   *lagging
	store *objects.Store
	user  *auth.User
	vars  map[string]string

	outcome  string
	object   tree.Object
	warnings []string
	err      error
	checked  bool // the error is one that the case expects
	before   proto.Revision
	fields   []string
}

// lagging is a store that may have nothing yet.
type lagging struct {
	*memstore.Store
	behind atomic.Pointer[mvcc.State] // nil: it has everything
}

func (l *lagging) State() *mvcc.State {
	if s := l.behind.Load(); s != nil {
		return s
	}
	return l.Store.State()
}

func (l *lagging) Propose(ctx context.Context, w *proto.Write) (mvcc.Result, error) {
	r, err := l.Store.Propose(ctx, w)
	l.behind.Store(nil) // the entry, and all before it, was applied here
	return r, err
}

// reads bring what lags up to date.
type reads struct {
	*consistency.Reader
	of *lagging
}

func (r reads) Await(ctx context.Context, p consistency.Plan) (proto.Revision, error) {
	r.of.behind.Store(nil)
	return r.Reader.Await(ctx, p)
}

// mostly allows everybody to do anything but create what is put or applied.
type mostly struct{}

func (mostly) Authorize(_ context.Context, a auth.Attributes) (auth.Decision, string, error) {
	if slices.Contains(a.User.Groups, auth.Masters) || a.Verb != "create" {
		return auth.Allow, "", nil
	}
	return auth.NoOpinion, "", nil
}

func newOperations(t *testing.T) *operations {
	t.Helper()
	mem := &lagging{Store: memstore.New()}
	reader := consistency.NewReader(mem.Store, consistency.Options{Grace: -1, UnconfirmedTimeout: 100 * time.Millisecond})
	registry, err := kinds.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	life, end := context.WithCancel(context.Background())
	s := &operations{
		t: t, mem: mem, vars: map[string]string{"large": strings.Repeat("x", 70_000)}, checked: true,
		user: &auth.User{Name: "admin", Groups: []string{auth.Masters, auth.Authenticated}},
	}
	s.store = objects.NewStore(objects.Config{
		Storage: mem, Reads: reads{reader, mem}, Kinds: crd.New(mem, registry, log).Current, Authorizer: mostly{},
		Strategies: builtin.Strategies(builtin.Config{
			Roles: rbac.New(mem, log), ServiceBlocks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")},
			ServicePorts: service.PortRange{First: 30000, Last: 30002},
		}), Custom: &builtin.Custom, Life: life, EventTTL: time.Hour, MaxObject: 64 << 10, MaxWrite: 10 * time.Second,
		GarbageCollector: true,
		Retried:          func(*request.Kind) {}, Panicked: func(*request.Kind) { t.Error("a panic") },
		Log: log, Now: func() time.Time { return noon },
	})
	t.Cleanup(func() {
		end()
		reader.Close()
		if err := mem.Close(); err != nil {
			t.Errorf("close store: %v", err)
		}
	})
	s.do(`create namespaces default {"metadata":{"name":"default"}}`)
	return s
}

// run plays a case, which begins at a line of a file.
func (s *operations) run(file string, at int, text string) {
	s.t.Helper()
	for i, line := range strings.Split(text, "\n")[1:] {
		for name, value := range s.vars {
			line = strings.ReplaceAll(line, "${"+name+"}", value)
		}
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "# ") {
			continue
		}
		if err := s.line(line); err != nil {
			s.t.Fatalf("%s:%d: %.200s\n%v", file, at+i+1, line, err)
		}
	}
	if !s.checked {
		s.t.Fatalf("%s: the last operation failed: %v", file, s.err)
	}
}

func (s *operations) line(line string) error {
	word, rest, _ := strings.Cut(line, " ")
	if word == "!" {
		return s.refused(rest)
	}
	if !s.checked {
		return fmt.Errorf("the operation before failed: %w", s.err)
	}
	switch word {
	case ":":
		return same(s.outcome, rest)
	case "=":
		path, want, _ := strings.Cut(rest, " ")
		return same(s.field(path), want)
	case "w":
		if !slices.ContainsFunc(s.warnings, func(w string) bool { return strings.Contains(w, rest) }) {
			return fmt.Errorf("the warnings are %q", s.warnings)
		}
		return nil
	case "%":
		i := slices.Index(s.fields, rest)
		if i < 0 {
			return fmt.Errorf("managedFields are %q", s.fields)
		}
		s.fields = slices.Delete(s.fields, i, i+1)
		return nil
	case "rows":
		table, want, _ := strings.Cut(rest, " ")
		versions, err := s.store.Range(table, "")
		if err != nil {
			return err
		}
		var keys []string
		for _, v := range versions {
			keys = append(keys, v.Key)
		}
		return same(strings.Join(keys, " "), want)
	}
	if name, ok := strings.CutPrefix(word, "$"); ok {
		s.vars[name] = strings.Trim(s.field(rest), `"`)
		return nil
	}
	if word == "as" {
		s.user = &auth.User{Name: rest, Groups: []string{auth.Authenticated}}
		return nil
	}
	s.do(line)
	return nil
}

func same(got, want string) error {
	if got != want {
		return fmt.Errorf("got  %s\nwant %s", got, want)
	}
	return nil
}

// refused compares the error of the last operation.
func (s *operations) refused(want string) error {
	if s.err == nil {
		return errors.New("it was not refused")
	}
	s.checked = true
	code, text, _ := strings.Cut(want, " ")
	if got := status.From(s.err); fmt.Sprint(got.Code) != code || !strings.HasPrefix(got.Message, text) {
		return fmt.Errorf("got  %d %s", got.Code, got.Message)
	}
	return nil
}

// field is a field of what came of the last operation, as JSON.
func (s *operations) field(path string) string {
	v := tree.Lookup(s.object, path)
	if v == nil {
		return ""
	}
	b, err := json.Marshal(v)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(b)
}

// do runs an operation.
func (s *operations) do(line string) {
	verb, rest, _ := strings.Cut(line, " ")
	switch verb {
	case "dry":
		verb, rest, _ = strings.Cut(rest, " ")
		rest = addQuery(rest, "dryRun=All")
	case "behind":
		verb, rest, _ = strings.Cut(rest, " ")
		s.mem.behind.Store(mvcc.New())
	}
	resource, rest, _ := strings.Cut(rest, " ")
	name, rest, _ := strings.Cut(rest, " ")
	query := ""
	if strings.HasPrefix(rest, "?") {
		query, rest, _ = strings.Cut(rest[1:], " ")
	}
	s.before = s.mem.Applied()
	o, body := s.op(verb, resource, name), []byte(rest)
	s.outcome, s.object, s.fields, s.err = "", nil, nil, o.Options.Parse(query, o.Info.Verb)
	if s.err == nil {
		s.err = s.serve(o, verb, body)
	}
	s.warnings, s.checked = o.Warnings(), s.err == nil
	if s.err == nil && s.object != nil {
		s.fields = managed(s.t, s.object)
	}
}

// addQuery adds a parameter to those of an operation.
func addQuery(rest, parameter string) string {
	words := strings.SplitN(rest, " ", 3)
	tail := ""
	if len(words) > 2 {
		tail = words[2]
	}
	if strings.HasPrefix(tail, "?") {
		return words[0] + " " + words[1] + " ?" + parameter + "&" + tail[1:]
	}
	return words[0] + " " + words[1] + " ?" + parameter + " " + tail
}

// verbs are those of requests.
var verbs = map[string]string{"put": "update", "merge": "patch", "json": "patch", "strategic": "patch", "apply": "patch", "clear": "deletecollection", "events": "watch"}

// op is an operation as a request has it.
func (s *operations) op(verb, resource, name string) *objects.Op {
	s.t.Helper()
	resource, sub, _ := strings.Cut(resource, "/")
	resource, version, _ := strings.Cut(resource, "@")
	var res *kinds.Resource
	for _, r := range s.store.Kinds().All() {
		if r.GroupResource().String() == resource && r.Version == cmp.Or(version, "v1") {
			res = r
		}
	}
	if res == nil {
		s.t.Fatalf("there is no resource %s", resource)
	}
	if v, ok := verbs[verb]; ok {
		verb = v
	}
	o := &objects.Op{Store: s.store, Context: s.t.Context(), User: s.user, Resource: res, Start: noon, Client: true}
	o.Info = request.Info{IsResource: true, Verb: verb, Group: res.Group, Version: res.Version, Resource: res.Plural, Subresource: sub, Name: name}
	if res.Namespaced {
		o.Info.Namespace, o.Info.Name, _ = strings.Cut(name, "/")
		o.Info.ObjectNamespace = o.Info.Namespace
	}
	if sub != "" {
		o.Subresource = res.Subresource(sub)
	}
	return o
}

// serve does what a call does between the body and the answer.
func (s *operations) serve(o *objects.Op, verb string, body []byte) error {
	on := objects.Whole
	switch o.Info.Subresource {
	case "status":
		on = objects.PartOf(objects.CopyStatus)
	case "scale":
		on = objects.Scale
	}
	o.Manager = o.Options.FieldManager
	var (
		want objects.Source
		err  error
	)
	switch verb {
	case "create":
		obj, err := o.DecodeBody("", body, o.Resource)
		if err != nil {
			return err
		}
		return s.written(o, on)(o.Create(obj))
	case "delete":
		options := new(metav1.DeleteOptions)
		if len(body) > 0 {
			if err := json.Unmarshal(body, options); err != nil {
				s.t.Fatal(err)
			}
		}
		w, _, err := o.Delete(options)
		return s.written(o, on)(w, err)
	case "get":
		v, err := s.store.Current(o.Resource.Table(), o.Key())
		if v == nil {
			return cmpErr(err, o.NotFound())
		}
		return s.written(o, on)(objects.Written{Version: v}, err)
	case "list", "clear", "events":
		return s.collection(o)
	case "put":
		want, err = o.DecodePut("", body, on)
	case "apply":
		want, err = o.DecodeApply(body, on)
	default:
		var p *patch.Patch
		media := map[string]string{"merge": "application/merge-patch+json", "json": "application/json-patch+json", "strategic": "application/strategic-merge-patch+json"}[verb]
		p, err = patch.Parse(media, body, o.Resource.Custom)
		want = objects.Patch{Patch: p}
	}
	if err != nil {
		return err
	}
	return s.written(o, on)(o.Modify(want, on))
}

func cmpErr(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

// written keeps what came of a write, as clients are shown it.
func (s *operations) written(o *objects.Op, on objects.Target) func(objects.Written, error) error {
	return func(w objects.Written, err error) error {
		if err != nil {
			return err
		}
		switch {
		case w.Deleted:
			s.outcome = "deleted"
		case w.Created:
			s.outcome = "created"
		case w.Version != nil && w.Version.Revision <= s.before:
			s.outcome = "unchanged"
		default:
			s.outcome = "changed"
		}
		obj := w.Object
		if w.Version != nil && (on != objects.Scale || obj == nil) {
			v, err := o.ConvertOne(w.Version)
			if err != nil {
				return err
			}
			if obj, err = codec.DecodeStored(o.Resource, v); err != nil {
				return err
			}
		}
		s.object = on.Shown(o, obj)
		return nil
	}
}

// collection keeps the names of a page, and where the next one begins.
func (s *operations) collection(o *objects.Op) error {
	sel, err := o.Select()
	if err != nil {
		return err
	}
	s.object = tree.Object{}
	if o.Info.Verb == "watch" {
		return s.events(o, sel)
	}
	plan, err := o.PlanList(o.ListParams(sel))
	if err != nil {
		return err
	}
	at, err := s.store.Reads.Await(o.Context, plan)
	if err != nil {
		return err
	}
	page, at, err := o.Page(plan, at, sel)
	if err != nil {
		return err
	}
	var names []string
	for _, v := range page.Versions {
		names = append(names, v.Key)
	}
	if page.More {
		names = append(names, "more")
		s.object["continue"] = url.QueryEscape(consistency.After(page.Versions[len(page.Versions)-1].Key, at).Encode())
		s.object["remaining"] = page.Remaining
	}
	s.outcome = strings.Join(names, " ")
	if o.Info.Verb == "deletecollection" {
		return o.DeleteListed(page.Versions, new(metav1.DeleteOptions))
	}
	return nil
}

// events keeps what the history means to a watch.
func (s *operations) events(o *objects.Op, sel *objects.Selection) error {
	cursor, err := s.mem.Watch(o.Resource.Table(), 0, sel.Interest())
	if err != nil {
		return err
	}
	defer cursor.Close()
	batch := make([]*mvcc.Version, 100)
	n, _, err := cursor.Next(batch)
	if err != nil {
		return err
	}
	var events []string
	for _, v := range batch[:n] {
		if !sel.Covers(v.Key) {
			continue
		}
		event, content, err := sel.Event(v)
		if err != nil {
			return err
		}
		if event != "" {
			events = append(events, event+" "+content.Key)
		}
	}
	s.outcome = strings.Join(events, ", ")
	return nil
}

// managed are the entries of an object's managedFields as lines.
func managed(t *testing.T, obj tree.Object) (lines []string) {
	t.Helper()
	list, _ := tree.Lookup(obj, "metadata.managedFields").([]any)
	raw, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	var entries []metav1.ManagedFieldsEntry
	if err := json.Unmarshal(raw, &entries); err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		set := fieldpath.NewSet()
		if err := set.FromJSON(e.FieldsV1.GetRawReader()); err != nil {
			t.Fatal(err)
		}
		var paths []string
		set.Leaves().Iterate(func(p fieldpath.Path) { paths = append(paths, p.String()) })
		slices.Sort(paths)
		sub := ""
		if e.Subresource != "" {
			sub = " on " + e.Subresource
		}
		lines = append(lines, fmt.Sprintf("%s %s %s%s: %s", e.Manager, e.Operation, e.APIVersion, sub, strings.Join(paths, " ")))
	}
	return lines
}
