package autoprovision

import (
	"context"
	"errors"
	"testing"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/admissiontest"
	"github.com/quorate/quorate/apiserver/admission/state"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestAutoProvision: which namespaces are created.
func TestAutoProvision(t *testing.T) {
	admissiontest.Run(t, "testdata/namespaces.txt", func(s *state.State) admission.Plugin {
		return New(s, func(_ context.Context, name string) error {
			switch name {
			case "raced":
				return apierrors.NewAlreadyExists(corev1.Resource("namespaces"), name)
			case "there":
				t.Error("a namespace that is there is created")
			}
			return errors.New("create " + name)
		})
	})
}
