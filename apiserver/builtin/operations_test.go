package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/auth"
	"github.com/quorate/quorate/apiserver/auth/token"
	"github.com/quorate/quorate/apiserver/builtin/service"
	"github.com/quorate/quorate/apiserver/codec"
	"github.com/quorate/quorate/apiserver/crd"
	"github.com/quorate/quorate/apiserver/kinds"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/rbac"
	"github.com/quorate/quorate/apiserver/request"
	"github.com/quorate/quorate/apiserver/tree"
	"github.com/quorate/quorate/consistency"
	"github.com/quorate/quorate/raftstore/memstore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestOperations runs testdata/operations/*.txt: what strategies do with a store and a user,
// without HTTP. The store is one in memory, the roles are those that a case creates, and it is
// noon. A case is a list of operations, each with what must come of it:
//
//	== title
//	as alice group...              who asks from here on; before, an administrator
//	create RESOURCE NAME {...}     RESOURCE is a code-name, NAME is namespace/name
//	update RESOURCE NAME {...}
//	delete RESOURCE NAME {...}     with its DeleteOptions
//	part RESOURCE/SUB NAME {...}   an update of a part of the object
//	post RESOURCE/SUB NAME {...}   what is posted; /SUB is left out for kinds that are not stored
//	put RESOURCE/SUB NAME {...}    the whole object, to a subresource that has an update of its own
//	get RESOURCE NAME
//	dry ...                        one of these as a dry run
//	! 422 text                     it is refused with this code and this text, which may go on
//	= path {...}                   a field of what came of it, as JSON; without {...}: it is not there
//	w text                         a warning
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
		for _, block := range strings.Split("\n"+string(raw), "\n== ")[1:] {
			title, body, _ := strings.Cut(block, "\n")
			t.Run(strings.TrimSuffix(filepath.Base(f), ".txt")+"/"+title, func(t *testing.T) {
				newOperations(t).run(body)
			})
		}
	}
}

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// operations is a store of objects on a memory store, and who asks it.
type operations struct {
	t     *testing.T
	store *objects.Store
	user  *auth.User

	// Of the operation that was run last.
	line     string
	object   tree.Object
	warnings []string
	err      error
	checked  bool // its error is one that the case expects
}

func newOperations(t *testing.T) *operations {
	mem := memstore.New()
	reader := consistency.NewReader(mem, consistency.Options{Grace: -1, UnconfirmedTimeout: 100 * time.Millisecond})
	registry, err := kinds.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	roles := rbac.New(mem, log)
	life, end := context.WithCancel(context.Background())
	s := &operations{t: t, user: &auth.User{Name: "admin", Groups: []string{auth.Masters, auth.Authenticated}}}
	s.store = objects.NewStore(objects.Config{
		Storage: mem, Reads: reader, Kinds: crd.New(mem, registry, log).Current, Authorizer: auth.Roles(roles, roles.Empty),
		Strategies: Strategies(Config{
			Roles: roles, Reviewer: testReviewer{}, Tokens: testTokens{}, MaxToken: 2 * time.Hour,
			ServiceBlocks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/29")}, ServicePorts: service.PortRange{First: 30000, Last: 30002},
		}), Custom: &Custom, Life: life, EventTTL: time.Hour, MaxObject: 1 << 20, MaxWrite: 10 * time.Second,
		Retried: func(*request.Kind) {}, Log: log, Now: func() time.Time { return noon },
	})
	t.Cleanup(func() {
		end()
		reader.Close()
		if err := mem.Close(); err != nil {
			t.Errorf("close store: %v", err)
		}
	})
	s.run(`create namespaces default {}`)
	return s
}

// testTokens says what it was asked to issue.
type testTokens struct{}

func (testTokens) Audiences() []string { return []string{"https://quorate"} }

func (testTokens) Issue(s token.Spec) (string, error) {
	bound, c := "", s.Claims
	if c.Pod != nil {
		bound += " with pod " + c.Pod.Name
	}
	if c.Secret != nil {
		bound += " with secret " + c.Secret.Name
	}
	if c.Node != nil {
		bound += " on " + c.Node.Name
	}
	return fmt.Sprint(auth.ServiceAccountUser(c.Namespace, c.Account.Name), bound, " for ", s.Audiences, " from ", s.Now.Format("15:04"), " valid ", s.ValidFor, " warn ", s.WarnAfter), nil
}

// testReviewer takes the name of a user for a token.
type testReviewer struct{}

func (testReviewer) Review(_ context.Context, token string, audiences []string) (*auth.User, []string, error) {
	if token == "wrong" {
		return nil, nil, errors.New("this token does not hold")
	}
	return &auth.User{Name: token, Groups: []string{auth.Authenticated}}, audiences, nil
}

func (s *operations) run(body string) {
	s.t.Helper()
	for _, line := range strings.Split(body, "\n") {
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "", "#":
		case "as":
			names := strings.Fields(rest)
			s.finish()
			s.user = &auth.User{Name: names[0], UID: "uid of " + names[0], Groups: append(names[1:], auth.Authenticated)}
		case "!":
			if got := codeOf(s.err) + " " + fmt.Sprint(s.err); !strings.HasPrefix(got, rest) {
				s.t.Errorf("%s\ngot  ! %s\nwant ! %s", s.line, got, rest)
			}
			s.checked = true
		case "=":
			path, want, _ := strings.Cut(rest, " ")
			got := ""
			if v := tree.Lookup(s.object, path); v != nil {
				got = string(bytesOf(s.t, tree.Object{"": v}))
				got = got[len(`{"":`) : len(got)-1]
			}
			if got != want {
				s.t.Errorf("%s\ngot  = %s %s\nwant = %s %s", s.line, path, got, path, want)
			}
		case "w":
			if !strings.Contains(strings.Join(s.warnings, "\n"), rest) {
				s.t.Errorf("%s\ngot warnings %q\nwant w %s", s.line, s.warnings, rest)
			}
		default:
			s.finish()
			s.line, s.checked = line, false
			s.do(line)
		}
	}
	s.finish()
}

// finish fails the test if the last operation failed and was not to.
func (s *operations) finish() {
	s.t.Helper()
	if s.err != nil && !s.checked {
		s.t.Errorf("%s\ngot  ! %s %v", s.line, codeOf(s.err), s.err)
	}
	s.err = nil
}

func codeOf(err error) string {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		return "500"
	}
	return fmt.Sprint(known.Status().Code)
}

func (s *operations) do(line string) {
	s.t.Helper()
	line, dry := strings.CutPrefix(line, "dry ")
	words := strings.SplitN(line, " ", 4)
	if len(words) < 3 {
		s.t.Fatalf("what is %q?", line)
	}
	body := tree.Object{}
	if len(words) > 3 {
		body = treeOf(s.t, words[3])
	}
	o := s.op(words[0], words[1], words[2])
	if dry {
		o.Options.DryRun = []string{metav1.DryRunAll}
	}
	if s.object, s.err = s.operate(o, words[0], body); s.err != nil {
		s.object = nil
	}
	s.warnings = o.Warnings()
}

// op is an operation on a resource, or a subresource of it, as the user who asks.
func (s *operations) op(verb, what, name string) *objects.Op {
	s.t.Helper()
	resource, sub, _ := strings.Cut(what, "/")
	namespace := ""
	if ns, in, ok := strings.Cut(name, "/"); ok {
		namespace, name = ns, in
	}
	for _, res := range s.store.Kinds().All() {
		if res.GroupResource().String() != resource || res.Namespaced != (namespace != "") {
			continue
		}
		o := s.store.System(s.t.Context(), res, namespace, name, verb)
		o.User, o.Client, o.Manager = s.user, true, "test"
		if sub != "" {
			o.Subresource, o.Info.Subresource = res.Subresource(sub), sub
		}
		return o
	}
	s.t.Fatalf("no resource %q that has objects like %q", what, name)
	return nil
}

// operate does what verb says, as the verbs of the API do, and returns the object that came of it.
func (s *operations) operate(o *objects.Op, verb string, body tree.Object) (tree.Object, error) {
	h := o.Strategy()
	switch verb {
	case "get":
		v, err := s.store.Current(o.Resource.Table(), o.Key())
		if err == nil && v == nil {
			err = o.NotFound()
		}
		if err != nil {
			return nil, err
		}
		return codec.DecodeStored(o.Resource, v)
	case "delete":
		options := new(metav1.DeleteOptions)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(body, options); err != nil {
			return nil, err
		}
		w, _, err := o.Delete(options)
		return w.Object, err
	case "post":
		post := h.Post
		if o.Subresource != nil {
			post = h.Posts[o.Subresource.Name]
		}
		if post == nil {
			return nil, errors.New("nothing is posted there")
		}
		in := post.New()
		if err := json.Unmarshal(bytesOf(s.t, body), in); err != nil {
			return nil, err
		}
		out, err := post.Create(o, in)
		if err != nil || out.Object == nil {
			return nil, err
		}
		return treeOf(s.t, string(bytesOf(s.t, out.Object))), nil
	}
	sent, err := s.fit(o, body)
	if err != nil {
		return nil, err
	}
	var w objects.Written
	switch verb {
	case "create":
		o.Info.Name = ""
		w, err = o.Create(sent)
	case "update":
		w, err = o.Modify(objects.Put{Sent: sent}, objects.Whole)
	case "put":
		w, err = h.Updates[o.Subresource.Name](o, sent)
	case "part":
		take := h.Parts[o.Subresource.Name]
		if take == nil {
			take = objects.CopyStatus
		}
		w, err = o.Modify(objects.Put{Sent: sent}, objects.PartOf(take))
	default:
		s.t.Fatalf("what is %q?", verb)
	}
	return w.Object, err
}

// fit is a body as it is decoded: with its kind and its name, in the form of the model.
func (s *operations) fit(o *objects.Op, body tree.Object) (tree.Object, error) {
	body["kind"], body["apiVersion"] = o.Resource.Kind, o.Resource.GroupVersion().String()
	meta := tree.Clone(body["metadata"])
	meta["name"] = o.Info.Name
	if o.Info.ObjectNamespace != "" {
		meta["namespace"] = o.Info.ObjectNamespace
	}
	body["metadata"] = meta
	model, err := o.Model()
	if err != nil {
		return nil, err
	}
	if unknown, err := model.Fit(body); err != nil || len(unknown) > 0 {
		return nil, fmt.Errorf("%v, unknown fields %q", err, unknown)
	}
	return body, nil
}

// TestClaimAgain: the rows of a stored Service that are missing can be made, and no other's.
func TestClaimAgain(t *testing.T) {
	s := newOperations(t)
	s.run(`create services default/a {"spec":{"type":"NodePort","clusterIP":"10.0.0.2","ports":[{"port":80,"nodePort":30000}]}}`)
	for _, c := range []struct {
		key  objects.ClaimKey
		want error
	}{
		{objects.ClaimKey{Table: AddressesTable, Key: "10.0.0.2"}, objects.ErrTaken},
		{objects.ClaimKey{Table: AddressesTable, Key: "10.0.0.3"}, nil},
		{objects.ClaimKey{Table: AddressesTable, Key: "fd00::3"}, nil},
		{objects.ClaimKey{Table: NodePortsTable, Key: "30000"}, objects.ErrTaken},
		{objects.ClaimKey{Table: NodePortsTable, Key: "30001"}, nil},
		{objects.ClaimKey{Table: NodePortsTable, Key: "http"}, strconv.ErrSyntax},
	} {
		if err := ClaimAgain(s.op("update", "services", "default/b"), c.key); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.key.Key, err, c.want)
		}
	}
	s.run("get ipaddresses.networking.k8s.io 10.0.0.3\n" +
		`= spec.parentRef {"group":"","name":"b","namespace":"default","resource":"services"}` + "\n" +
		"get ipaddresses.networking.k8s.io fd00::3\n" +
		`= metadata.labels {"ipaddress.kubernetes.io/ip-family":"IPv6","ipaddress.kubernetes.io/managed-by":"ipallocator.k8s.io"}`)
}
