package plugins_test

import (
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/defaultclass"
	"github.com/quorate/quorate/apiserver/objects/objectstest"
	"github.com/quorate/quorate/apiserver/types/state"
	"github.com/quorate/quorate/raftstore/view"
)

// TestDefaultClassOperations: each object is a second newer than the one before.
func TestDefaultClassOperations(t *testing.T) {
	var calls atomic.Int64
	o := defaultClasses()
	o.Now = func() time.Time { return time.Unix(1767268800+calls.Add(1), 0) }
	objectstest.Run(t, "testdata/defaultclass/classes.txt", o)
}

// TestDefaultClassSameSecond: all classes are equally old.
func TestDefaultClassSameSecond(t *testing.T) {
	objectstest.Run(t, "testdata/defaultclass/same-second.txt", defaultClasses())
}

func defaultClasses() objectstest.Options {
	return objectstest.Options{Admission: func(s view.Store, _ auth.Authorizer) []admission.Named {
		log := slog.New(slog.DiscardHandler)
		return []admission.Named{
			{Name: "DefaultStorageClass", Plugin: defaultclass.Storage(state.New(s), log)},
			{Name: "DefaultIngressClass", Plugin: defaultclass.Ingress(state.New(s), log)},
		}
	}}
}

// TestDefaultClassConsulted: a plugin that has looked says so, also if there was no class.
func TestDefaultClassConsulted(t *testing.T) {
	c := objectstest.NewCase(t, objectstest.Options{})
	p := defaultclass.Storage(state.New(c.Memory), slog.New(slog.DiscardHandler))
	for _, x := range []struct {
		name   string
		spec   map[string]any
		looked bool
	}{
		{"without a class", map[string]any{}, true},
		{"with a class", map[string]any{"storageClassName": "a"}, false},
		{"with the class that is none", map[string]any{"storageClassName": ""}, false},
	} {
		a := admission.Attributes{Operation: admission.Create, Object: map[string]any{"metadata": map[string]any{}, "spec": x.spec}}
		a.Resource.Version, a.Resource.Resource = "v1", "persistentvolumeclaims"
		if err := p.Admit(t.Context(), &a); err != nil {
			t.Fatalf("%s: %v", x.name, err)
		}
		if rules, _ := a.Decided(); (rules != 0) != x.looked {
			t.Errorf("%s: rules %b", x.name, rules)
		}
	}
}
