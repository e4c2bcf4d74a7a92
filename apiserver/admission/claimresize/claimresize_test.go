package claimresize_test

import (
	"testing"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/claimresize"
	"github.com/quorate/quorate/apiserver/admission/state"
	"github.com/quorate/quorate/apiserver/auth"
	"github.com/quorate/quorate/apiserver/objects/objectstest"
	"github.com/quorate/quorate/raftstore/view"
)

func TestOperations(t *testing.T) {
	objectstest.Run(t, "testdata/*.txt", objectstest.Options{Admission: func(s view.Store, _ auth.Authorizer) []admission.Named {
		return []admission.Named{{Name: "PersistentVolumeClaimResize", Plugin: claimresize.New(state.New(s))}}
	}})
}
