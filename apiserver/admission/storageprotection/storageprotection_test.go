package storageprotection_test

import (
	"testing"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/storageprotection"
	"github.com/quorate/quorate/apiserver/auth"
	"github.com/quorate/quorate/apiserver/objects/objectstest"
	"github.com/quorate/quorate/raftstore/view"
)

func TestOperations(t *testing.T) {
	objectstest.Run(t, "testdata/*.txt", objectstest.Options{Admission: func(view.Store, auth.Authorizer) []admission.Named {
		return []admission.Named{{Name: "StorageObjectInUseProtection", Plugin: storageprotection.New()}}
	}})
}
