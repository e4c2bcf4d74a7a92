package alwayspullimages

import (
	"testing"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/admissiontest"
	"github.com/quorate/quorate/apiserver/admission/state"
)

func TestAlwaysPullImages(t *testing.T) {
	admissiontest.Run(t, "testdata/pods.txt", func(*state.State) admission.Plugin { return Plugin{} })
}
