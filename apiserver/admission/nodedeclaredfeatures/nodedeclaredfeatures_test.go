package nodedeclaredfeatures

import (
	"testing"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/admissiontest"
	"github.com/quorate/quorate/apiserver/admission/state"
)

func TestNodeDeclaredFeatures(t *testing.T) {
	admissiontest.Run(t, "testdata/pods.txt", func(s *state.State) admission.Plugin {
		p, err := New(s, "1.36")
		if err != nil {
			t.Fatal(err)
		}
		return p
	})
}
