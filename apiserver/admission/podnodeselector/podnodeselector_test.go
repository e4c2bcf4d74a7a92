package podnodeselector

import (
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/admissiontest"
	"github.com/quorate/quorate/apiserver/admission/state"
)

func TestPodNodeSelector(t *testing.T) {
	admissiontest.Run(t, "testdata/pods.txt", func(s *state.State) admission.Plugin {
		p, err := New(s, strings.NewReader("podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: usual=yes, strict: \"usual=yes,disk=ssd\"}"))
		if err != nil {
			t.Fatal(err)
		}
		return p
	})
}

// TestMistakes: a configuration that says nothing useful ends the start.
func TestMistakes(t *testing.T) {
	for _, config := range []string{
		`podNodeSelectorPluginConfig: [1]`,
		`podNodeSelectorPluginConfig: {a: "x in (y)"}`,
	} {
		if _, err := New(nil, strings.NewReader(config)); err == nil {
			t.Errorf("%s is taken", config)
		}
	}
}
