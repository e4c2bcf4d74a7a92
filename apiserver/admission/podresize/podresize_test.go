package podresize

import (
	"testing"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/admissiontest"
	"github.com/quorate/quorate/apiserver/admission/state"
)

func TestPodResize(t *testing.T) {
	admissiontest.Run(t, "testdata/pods.txt", func(s *state.State) admission.Plugin { return New(s) })
}
