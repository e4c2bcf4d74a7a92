package exists

import (
	"testing"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/admissiontest"
	"github.com/quorate/quorate/apiserver/admission/state"
)

func TestExists(t *testing.T) {
	admissiontest.Run(t, "testdata/namespaces.txt", func(s *state.State) admission.Plugin { return New(s) })
}
