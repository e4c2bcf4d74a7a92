package objects_test

import (
	"errors"
	"testing"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/objects/objectstest"
	"github.com/quorate/quorate/internal/must"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// allowedBy is a request that was allowed because an object is there, and no more when it is decided again.
type allowedBy struct {
	auth.Object
	again int
}

var errNoMore = errors.New("no more")

func (a *allowedBy) Basis() []auth.Object { return []auth.Object{a.Object} }

func (a *allowedBy) AuthorizeAgain() error { a.again++; return errNoMore }

// TestBasis: what an operation was allowed by is in the entry of its write, and is looked at before something
// is given away without one. What counts is that the object with that uid is there, and no other change of it.
func TestBasis(t *testing.T) {
	const pod = `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`
	for _, x := range []struct {
		name, lines string
		refused     bool
	}{
		{"nothing happens", "", false},
		{"its status is written", "merge pods/status default/p {\"status\":{\"message\":\"x\"}}", false},
		{"it is deleted", "delete pods default/p", true},
		{"another one has its name", "delete pods default/p\ncreate pods default/ " + pod, true},
	} {
		for way, do := range map[string]func(o *objects.Op) error{
			"write": func(o *objects.Op) error { _, _, err := o.Delete(&metav1.DeleteOptions{}); return err },
			"give":  (*objects.Op).StillDecided,
		} {
			t.Run(x.name+"/"+way, func(t *testing.T) {
				s := objectstest.NewCase(t, objectstest.Options{})
				s.Play("create configmaps default/ {\"metadata\":{\"name\":\"c\"}}\ncreate pods default/ " + pod)
				state := s.Memory.State()
				v, err := state.Table("pods").Get("default/p", state.Applied())
				must.OK(t, err)
				by := &allowedBy{Object: auth.Object{Table: "pods", Key: v.Key, UID: v.UID}}
				o := s.System(t.Context(), s.Kinds().Lookup(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}), "default", "c", "delete")
				o.Client, o.DecidedAt, o.Requester = true, state.Applied(), by
				s.Play(x.lines)
				err = do(o)
				if refused := errors.Is(err, errNoMore); refused != x.refused || !refused && err != nil {
					t.Errorf("%v", err)
				}
				if again := by.again > 0; again != x.refused {
					t.Errorf("decided again: %d times", by.again)
				}
			})
		}
	}
}
