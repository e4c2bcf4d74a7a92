package plugins_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/admissiontest"
	"github.com/quorate/quorate/apiserver/admission/alwayspullimages"
	"github.com/quorate/quorate/apiserver/admission/antiaffinity"
	"github.com/quorate/quorate/apiserver/admission/autoprovision"
	"github.com/quorate/quorate/apiserver/admission/claimresize"
	"github.com/quorate/quorate/apiserver/admission/defaulttolerationseconds"
	"github.com/quorate/quorate/apiserver/admission/deny"
	"github.com/quorate/quorate/apiserver/admission/exists"
	"github.com/quorate/quorate/apiserver/admission/extendedresourcetoleration"
	"github.com/quorate/quorate/apiserver/admission/nodedeclaredfeatures"
	"github.com/quorate/quorate/apiserver/admission/nodetaint"
	"github.com/quorate/quorate/apiserver/admission/podnodeselector"
	"github.com/quorate/quorate/apiserver/admission/podresize"
	"github.com/quorate/quorate/apiserver/admission/podtolerationrestriction"
	"github.com/quorate/quorate/apiserver/admission/podtopologylabels"
	"github.com/quorate/quorate/apiserver/admission/priority"
	"github.com/quorate/quorate/apiserver/admission/runtimeclass"
	"github.com/quorate/quorate/apiserver/admission/storageprotection"
	"github.com/quorate/quorate/apiserver/objects/objectstest"
	"github.com/quorate/quorate/apiserver/types/state"
	"github.com/quorate/quorate/raftstore/view"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// each makes the plugins whose tests are text files, by the directory of these files in testdata.
// Their tests are together in this package, because each test binary costs a second of linking.
var each = map[string]func(t *testing.T, s *state.State) admission.Plugin{
	"alwayspullimages": func(*testing.T, *state.State) admission.Plugin { return alwayspullimages.Plugin{} },
	"antiaffinity":     func(*testing.T, *state.State) admission.Plugin { return antiaffinity.Plugin{} },
	"autoprovision": func(t *testing.T, s *state.State) admission.Plugin {
		return autoprovision.New(s, func(_ context.Context, name string) error {
			switch name {
			case "raced":
				return apierrors.NewAlreadyExists(corev1.Resource("namespaces"), name)
			case "there":
				t.Error("an existing namespace is created")
			}
			return errors.New("create " + name)
		})
	},
	"defaulttolerationseconds": func(*testing.T, *state.State) admission.Plugin { return defaulttolerationseconds.New(300, 7) },
	"deny":                     func(*testing.T, *state.State) admission.Plugin { return deny.Plugin{} },
	"exists":                   func(_ *testing.T, s *state.State) admission.Plugin { return exists.New(s) },
	"extendedresourcetoleration": func(*testing.T, *state.State) admission.Plugin {
		return extendedresourcetoleration.Plugin{}
	},
	"nodedeclaredfeatures": func(t *testing.T, s *state.State) admission.Plugin {
		p, err := nodedeclaredfeatures.New(s, "1.36")
		return must(t, p, err)
	},
	"nodetaint": func(*testing.T, *state.State) admission.Plugin { return nodetaint.Plugin{} },
	"podnodeselector": func(t *testing.T, s *state.State) admission.Plugin {
		p, err := podnodeselector.New(s, strings.NewReader("podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: usual=yes, strict: \"usual=yes,disk=ssd\"}"))
		return must(t, p, err)
	},
	"podresize": func(_ *testing.T, s *state.State) admission.Plugin { return podresize.New(s) },
	"podtolerationrestriction": func(t *testing.T, s *state.State) admission.Plugin {
		p, err := podtolerationrestriction.New(s, strings.NewReader(`{apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1, kind: Configuration, default: [{key: usual, operator: Exists}], whitelist: [{key: usual, operator: Exists}, {key: node.kubernetes.io/memory-pressure, operator: Exists}]}`))
		return must(t, p, err)
	},
	"podtopologylabels": func(_ *testing.T, s *state.State) admission.Plugin { return podtopologylabels.New(s) },
	"priority": func(_ *testing.T, s *state.State) admission.Plugin {
		return priority.New(s, slog.New(slog.DiscardHandler))
	},
	"runtimeclass": func(_ *testing.T, s *state.State) admission.Plugin {
		return runtimeclass.New(s, slog.New(slog.DiscardHandler))
	},
}

func must(t *testing.T, p admission.Plugin, err error) admission.Plugin {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestEach plays the files of each plugin.
func TestEach(t *testing.T) {
	for name, make := range each {
		files, err := filepath.Glob("testdata/" + name + "/*.txt")
		if err != nil || len(files) == 0 {
			t.Errorf("%s has the files %v, %v", name, files, err)
		}
		for _, file := range files {
			t.Run(name+"/"+strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
				admissiontest.Run(t, file, func(s *state.State) admission.Plugin { return make(t, s) })
			})
		}
	}
}

// TestClaimResize and TestStorageProtection play operations on objects.
func TestClaimResize(t *testing.T) {
	objectstest.Run(t, "testdata/claimresize/*.txt", objectstest.Options{Admission: func(s view.Store, _ auth.Authorizer) []admission.Named {
		return []admission.Named{{Name: "PersistentVolumeClaimResize", Plugin: claimresize.New(state.New(s))}}
	}})
}

func TestStorageProtection(t *testing.T) {
	objectstest.Run(t, "testdata/storageprotection/*.txt", objectstest.Options{Admission: func(view.Store, auth.Authorizer) []admission.Named {
		return []admission.Named{{Name: "StorageObjectInUseProtection", Plugin: storageprotection.New()}}
	}})
}

// TestMistakes: a configuration that cannot have an effect ends the start.
func TestMistakes(t *testing.T) {
	selector := func(r io.Reader) error { _, err := podnodeselector.New(nil, r); return err }
	restriction := func(r io.Reader) error { _, err := podtolerationrestriction.New(nil, r); return err }
	for _, c := range []struct {
		read   func(io.Reader) error
		config string
	}{
		{selector, `podNodeSelectorPluginConfig: [1]`},
		{selector, `podNodeSelectorPluginConfig: {a: "x in (y)"}`},
		{restriction, `{kind: Configuration}`},
		{restriction, `{`},
		{restriction, `{apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1, kind: Configuration, default: [{operator: Equal}]}`},
		{restriction, `{apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1, kind: Configuration, whitelist: [{key: a, effect: Sometimes}]}`},
	} {
		if err := c.read(strings.NewReader(c.config)); err == nil {
			t.Errorf("%s is taken", c.config)
		}
	}
}
