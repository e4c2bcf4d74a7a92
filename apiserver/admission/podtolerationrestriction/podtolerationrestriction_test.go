package podtolerationrestriction

import (
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/admissiontest"
	"github.com/quorate/quorate/apiserver/admission/state"
)

func TestPodTolerationRestriction(t *testing.T) {
	admissiontest.Run(t, "testdata/pods.txt", func(s *state.State) admission.Plugin {
		p, err := New(s, strings.NewReader(`{apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1, kind: Configuration, default: [{key: usual, operator: Exists}], whitelist: [{key: usual, operator: Exists}, {key: node.kubernetes.io/memory-pressure, operator: Exists}]}`))
		if err != nil {
			t.Fatal(err)
		}
		return p
	})
}

// TestMistakes: a configuration that says nothing useful ends the start.
func TestMistakes(t *testing.T) {
	for _, config := range []string{
		`{kind: Configuration}`,
		`{`,
		`{apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1, kind: Configuration, default: [{operator: Equal}]}`,
		`{apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1, kind: Configuration, whitelist: [{key: a, effect: Sometimes}]}`,
	} {
		if _, err := New(nil, strings.NewReader(config)); err == nil {
			t.Errorf("%s is taken", config)
		}
	}
}
