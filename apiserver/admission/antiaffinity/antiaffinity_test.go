package antiaffinity

import (
	"testing"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/admissiontest"
	"github.com/quorate/quorate/apiserver/admission/state"
)

func TestAntiAffinity(t *testing.T) {
	admissiontest.Run(t, "testdata/pods.txt", func(*state.State) admission.Plugin { return Plugin{} })
}
