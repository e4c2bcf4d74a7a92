package objects_test

import (
	"context"
	"slices"
	"testing"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/objects/objectstest"
)

// TestOperations runs testdata/operations/*.txt: what operations do with a store, without HTTP.
// Package objectstest has the language.
func TestOperations(t *testing.T) {
	objectstest.Run(t, "testdata/operations/*.txt", objectstest.Options{Authorizer: mostly{}})
}

// mostly allows everybody to do anything but create what is put or applied.
type mostly struct{}

func (mostly) Authorize(_ context.Context, a auth.Attributes) (auth.Decision, string, error) {
	if slices.Contains(a.User.Groups, auth.Masters) || a.Verb != "create" {
		return auth.Allow, "", nil
	}
	return auth.NoOpinion, "", nil
}
