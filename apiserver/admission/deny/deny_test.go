package deny

import (
	"testing"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/admissiontest"
	"github.com/quorate/quorate/apiserver/admission/state"
)

func TestAlwaysDeny(t *testing.T) {
	admissiontest.Run(t, "testdata/all.txt", func(*state.State) admission.Plugin { return Plugin{} })
}
