package nodetaint

import (
	"testing"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/admissiontest"
	"github.com/quorate/quorate/apiserver/admission/state"
)

func TestNodeTaint(t *testing.T) {
	admissiontest.Run(t, "testdata/nodes.txt", func(*state.State) admission.Plugin { return Plugin{} })
}
