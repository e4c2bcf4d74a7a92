package objectstest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/objects/patch"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/apiserver/wire/codec"
	"github.com/quorate/quorate/apiserver/wire/request"
	"github.com/quorate/quorate/consistency"
	"github.com/quorate/quorate/raftstore/mvcc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// verb is what a case does: the verb of the request, and what a call does with it between the
// body and the answer.
type verb struct {
	request string
	serve   func(c *Case, o *objects.Op, body []byte) error
}

var verbs = map[string]verb{
	"create":    {"create", (*Case).create},
	"put":       {"update", (*Case).put},
	"merge":     {"patch", patchOf("application/merge-patch+json")},
	"json":      {"patch", patchOf("application/json-patch+json")},
	"strategic": {"patch", patchOf("application/strategic-merge-patch+json")},
	"apply":     {"patch", (*Case).apply},
	"delete":    {"delete", (*Case).delete},
	"get":       {"get", (*Case).get},
	"list":      {"list", (*Case).list},
	"clear":     {"deletecollection", (*Case).list},
	"events":    {"watch", (*Case).events},
}

// modifiers are the words before a verb, and what they do to the operation.
var modifiers = map[string]func(c *Case, o *objects.Op){
	"dry":    func(_ *Case, o *objects.Op) { o.Options.DryRun = []string{metav1.DryRunAll} },
	"behind": func(c *Case, _ *objects.Op) { c.lag.behind.Store(mvcc.New()) },
}

// do runs an operation. Its error is the language's; what the operation says is c.err.
func (c *Case) do(line string) error {
	word, rest, _ := strings.Cut(line, " ")
	modify := modifiers[word]
	if modify != nil {
		word, rest, _ = strings.Cut(rest, " ")
	}
	v, ok := verbs[word]
	if !ok {
		return fmt.Errorf("what is %q?", word)
	}
	resource, rest, _ := strings.Cut(rest, " ")
	name, rest, _ := strings.Cut(rest, " ")
	query := ""
	if strings.HasPrefix(rest, "?") {
		query, rest, _ = strings.Cut(rest[1:], " ")
	}
	o, err := c.op(v.request, resource, name)
	if err != nil {
		return err
	}
	c.before = c.Memory.Applied()
	c.outcome, c.object, c.fields, c.err = "", nil, nil, o.Options.Parse(query, o.Info.Verb)
	o.Manager = o.Options.FieldManager
	if modify != nil {
		modify(c, o)
	}
	if c.err == nil {
		c.err = v.serve(c, o, []byte(rest))
	}
	c.warnings, c.expected = o.Warnings(), c.err == nil
	if c.err != nil {
		c.object = nil
		return nil
	}
	c.fields, err = managedFields(c.object)
	return err
}

// Op is an operation of the user who asks, as a request with a verb of the API has it. The resource
// and the name are as in lines.
func (c *Case) Op(verb, resource, name string) *objects.Op {
	c.t.Helper()
	o, err := c.op(verb, resource, name)
	if err != nil {
		c.t.Fatal(err)
	}
	return o
}

func (c *Case) op(verb, resource, name string) (*objects.Op, error) {
	resource, sub, _ := strings.Cut(resource, "/")
	plural, version, _ := strings.Cut(resource, "@")
	all := c.Kinds().All()
	i := slices.IndexFunc(all, func(r *kinds.Resource) bool {
		return r.GroupResource().String() == plural && r.Version == cmp.Or(version, "v1")
	})
	if i < 0 {
		return nil, fmt.Errorf("there is no resource %s", resource)
	}
	res, namespace := all[i], ""
	if res.Namespaced {
		namespace, name, _ = strings.Cut(name, "/")
	} else {
		name = strings.TrimPrefix(name, "/")
	}
	collection := slices.Contains([]string{"create", "list", "watch", "deletecollection"}, verb) && sub == ""
	if collection != (name == "") || strings.Contains(name, "/") {
		return nil, errors.New("a path has a name, but that of a create, a list, a clear or events")
	}
	o := objects.NewOp(objects.Request{
		Store: c.Store.Store, Context: c.t.Context(), User: c.user, Resource: res, Start: noon, Client: true,
		Info: request.Info{
			IsResource: true, Verb: verb, Group: res.Group, Version: res.Version, Resource: res.Plural, Subresource: sub,
			Namespace: namespace, ObjectNamespace: namespace, Name: name,
		},
	})
	if sub != "" {
		if o.Subresource = res.Subresource(sub); o.Subresource == nil {
			return nil, fmt.Errorf("%s has no subresource %s", plural, sub)
		}
	}
	return &o, nil
}

// target is what of an object a write may change.
func target(o *objects.Op) objects.Target {
	if o.Subresource == nil {
		return objects.Whole
	}
	name := o.Subresource.Name
	switch take := o.Strategy().Parts[name]; {
	case take != nil:
		return objects.PartOf(take)
	case name == "status":
		return objects.PartOf(objects.CopyStatus)
	case name == "scale":
		return objects.Scale
	}
	return objects.Whole
}

func (c *Case) create(o *objects.Op, body []byte) error {
	own, post := o.Strategy(), o.Strategy().Post
	if o.Subresource != nil {
		post = own.Posts[o.Subresource.Name]
	}
	switch {
	case post != nil:
		return c.post(o, post, body)
	case o.Subresource != nil || o.Resource.Virtual:
		return errors.New("nothing is posted there")
	}
	w, err := o.CreateSent("", body)
	return c.written(o, objects.Whole, w, err)
}

// post is a create of what is not stored.
func (c *Case) post(o *objects.Op, p *objects.Creater, body []byte) error {
	out, err := o.PostSent(p, "", body)
	if err != nil {
		return err
	}
	c.outcome = "created"
	if out.Object == nil { // a Status says so
		return nil
	}
	raw, err := json.Marshal(out.Object)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, &c.object)
}

func (c *Case) put(o *objects.Op, body []byte) error {
	on := target(o)
	want, err := o.DecodePut("", body, on)
	if err != nil {
		return err
	}
	return c.modify(o, want, on)
}

func (c *Case) apply(o *objects.Op, body []byte) error {
	on := target(o)
	want, err := o.DecodeApply(body, on)
	if err != nil {
		return err
	}
	return c.modify(o, want, on)
}

func patchOf(media string) func(c *Case, o *objects.Op, body []byte) error {
	return func(c *Case, o *objects.Op, body []byte) error {
		parse := patch.Parse
		if target(o) == objects.Scale {
			parse = patch.ParseOfScale
		}
		p, err := parse(media, body, o.Resource.Custom)
		if err != nil {
			return err
		}
		return c.modify(o, objects.Patch{Patch: p}, target(o))
	}
}

func (c *Case) modify(o *objects.Op, want objects.Source, on objects.Target) error {
	w, err := o.Modify(want, on)
	return c.written(o, on, w, err)
}

func (c *Case) delete(o *objects.Op, body []byte) error {
	options := new(metav1.DeleteOptions)
	if len(body) > 0 {
		if err := json.Unmarshal(body, options); err != nil {
			return err
		}
	}
	w, _, err := o.Delete(options)
	return c.written(o, objects.Whole, w, err)
}

func (c *Case) get(o *objects.Op, _ []byte) error {
	v, err := c.Current(o.Resource.Table(), o.Key())
	if err == nil && v == nil {
		err = o.NotFound()
	}
	return c.written(o, target(o), objects.Written{Version: v}, err)
}

// written keeps what came of a write, as clients are shown it.
func (c *Case) written(o *objects.Op, on objects.Target, w objects.Written, err error) error {
	if err != nil {
		return err
	}
	switch {
	case w.Deleted:
		c.outcome = "deleted"
	case w.Created:
		c.outcome = "created"
	case w.Version != nil && w.Version.Revision <= c.before:
		c.outcome = "unchanged"
	default:
		c.outcome = "changed"
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
	c.object = on.Shown(o, obj)
	return nil
}

// list keeps the names of a page, and where the next one begins; a deletion of the collection
// deletes them.
func (c *Case) list(o *objects.Op, _ []byte) error {
	sel, err := o.Select()
	if err != nil {
		return err
	}
	plan, err := o.PlanList(o.ListParams(sel))
	if err != nil {
		return err
	}
	at, err := c.Reads.Await(o.Context, plan)
	if err != nil {
		return err
	}
	page, at, err := o.Page(plan, at, sel)
	if err != nil {
		return err
	}
	c.object = tree.Object{}
	var names []string
	for _, v := range page.Versions {
		names = append(names, v.Key)
	}
	if page.More {
		names = append(names, "more")
		c.object["continue"] = url.QueryEscape(consistency.After(page.Versions[len(page.Versions)-1].Key, at).Encode())
		c.object["remaining"] = page.Remaining
	}
	c.outcome = strings.Join(names, " ")
	if o.Info.Verb == "deletecollection" {
		return o.DeleteListed(page.Versions, new(metav1.DeleteOptions))
	}
	return nil
}

// events keeps what the history means to a watch.
func (c *Case) events(o *objects.Op, _ []byte) error {
	sel, err := o.Select()
	if err != nil {
		return err
	}
	cursor, err := c.Memory.Watch(o.Resource.Table(), 0, sel.Interest())
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
	c.outcome = strings.Join(events, ", ")
	return nil
}
