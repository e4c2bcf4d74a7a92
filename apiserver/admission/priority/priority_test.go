package priority

import (
	"log/slog"
	"testing"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/admissiontest"
	"github.com/quorate/quorate/apiserver/admission/state"
)

func TestPriority(t *testing.T) {
	for _, file := range []string{"pods", "classes"} {
		admissiontest.Run(t, "testdata/"+file+".txt", func(s *state.State) admission.Plugin { return New(s, slog.New(slog.DiscardHandler)) })
	}
}
