package admissiontest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/memstore"
	"github.com/quorate/quorate/raftstore/view"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// Run runs the cases of a file, each with a plugin of its own. It is for tests.
func Run(t *testing.T, file string, make func(t *testing.T, s view.Store) admission.Plugin) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	everywhere, cases := parse(t, string(raw))
	for _, c := range cases {
		t.Run(c.title, func(t *testing.T) {
			store := memstore.New()
			t.Cleanup(func() { _ = store.Close() })
			for i, h := range slices.Concat(everywhere, c.has) {
				put(t, store, i, h)
			}
			if got := c.play(t, make(t, store)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// thing is an object that is there.
type thing struct {
	table  string
	object tree.Object
}

// step is a case.
type step struct {
	title       string
	has         []thing
	operation   string
	resource    string
	object, old tree.Object
	want        string
}

func parse(t *testing.T, text string) (everywhere []thing, cases []*step) {
	t.Helper()
	var now *step
	for _, l := range strings.Split(strings.NewReplacer("\n  ", " ", "\n\t", " ").Replace(text), "\n") {
		word, rest, _ := strings.Cut(l, " ")
		switch word {
		case "", "#":
		case "==":
			now = &step{title: rest}
			cases = append(cases, now)
		case "has":
			table, body, _ := strings.Cut(rest, " ")
			if h := (thing{table, object(t, body)}); now == nil {
				everywhere = append(everywhere, h)
			} else {
				now.has = append(now.has, h)
			}
		case "CREATE", "UPDATE", "DELETE", "CONNECT":
			resource, body, _ := strings.Cut(rest, " ")
			now.operation, now.resource, now.object = word, resource, object(t, body)
		case "OLD":
			now.old = object(t, rest)
		case "=":
			if now.want = "same"; rest != "same" {
				now.want = line(object(t, rest))
			}
		case "!":
			now.want = l
		default:
			t.Fatalf("no line begins with %q: %s", word, l)
		}
	}
	return everywhere, cases
}

func object(t *testing.T, body string) tree.Object {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(body))
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	var obj tree.Object
	if err := utiljson.Unmarshal(raw, &obj); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return obj
}

func line(obj tree.Object) string {
	raw, err := json.Marshal(obj)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

func put(t *testing.T, store *memstore.Store, i int, h thing) {
	t.Helper()
	meta := tree.As(h.object["metadata"])
	key := tree.Text(meta, "name")
	if ns := tree.Text(meta, "namespace"); ns != "" {
		key = ns + "/" + key
	}
	w := &proto.Write{
		Table: h.table, Key: key, Op: proto.Op_OP_PUT, Value: []byte(line(h.object)),
		RequestId: fmt.Appendf(nil, "%0*d", proto.RequestIDSize, i),
	}
	for name, value := range tree.As(meta["labels"]) {
		w.Labels = append(w.Labels, &proto.Attribute{Name: name, Value: value.(string)})
	}
	if _, err := store.Propose(t.Context(), w); err != nil {
		t.Fatalf("put %s %s: %v", h.table, key, err)
	}
}

// play asks the plugin, and says what has come of it.
func (c *step) play(t *testing.T, p admission.Plugin) string {
	t.Helper()
	before, old := line(c.object), line(c.old)
	a := c.attributes(t)
	err := ask(t.Context(), p, a)
	if line(c.object) != before || line(c.old) != old {
		t.Errorf("below its first level the object was changed, and not replaced: %s", line(c.object))
	}
	switch {
	case err != nil && apierrors.ReasonForError(err) != "":
		return fmt.Sprintf("! %s: %v", apierrors.ReasonForError(err), err)
	case err != nil:
		return "! " + err.Error()
	case a.Object == nil || reflect.DeepEqual(a.Object, c.object):
		return "same"
	}
	got := line(a.Object)
	var again tree.Object
	if err := utiljson.Unmarshal([]byte(got), &again); err != nil || !reflect.DeepEqual(again, a.Object) {
		t.Errorf("the object has values that no decoder makes: %#v", a.Object)
	}
	return got
}

func (c *step) attributes(t *testing.T) *admission.Attributes {
	resource, sub, _ := strings.Cut(c.resource, "/")
	meta := tree.As(c.object["metadata"])
	a := &admission.Attributes{
		Operation: admission.Operation(c.operation), Subresource: sub,
		Namespace: tree.Text(meta, "namespace"), Name: tree.Text(meta, "name"),
		Old: c.old,
	}
	a.Resource, a.Kind = known(t, schema.ParseGroupResource(resource), sub)
	if c.operation == "DELETE" {
		a.Old = c.object
		return a
	}
	a.Object = maps.Clone(c.object)
	if meta != nil {
		a.Object["metadata"] = maps.Clone(meta)
	}
	return a
}

// known is a resource in one of the versions in which it can be served, and the kind of what is written to it.
func known(t *testing.T, gr schema.GroupResource, sub string) (schema.GroupVersionResource, schema.GroupVersionKind) {
	t.Helper()
	all, err := kinds.Available()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all.All() {
		if gvr := r.GVR(); gvr.GroupResource() == gr {
			return gvr, all.KindFor(gvr, sub)
		}
	}
	t.Fatalf("there is no resource %s", gr)
	return schema.GroupVersionResource{}, schema.GroupVersionKind{}
}

func ask(ctx context.Context, p admission.Plugin, a *admission.Attributes) error {
	if !p.Handles(a) {
		return nil
	}
	if m, ok := p.(admission.Mutator); ok {
		if err := m.Admit(ctx, a); err != nil {
			return err
		}
	}
	if v, ok := p.(admission.Validator); ok {
		return v.Validate(ctx, a)
	}
	return nil
}
