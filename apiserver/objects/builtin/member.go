package builtin

import (
	"errors"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/quoratev1"
	"github.com/quorate/quorate/apiserver/types/tree"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// memberStrategy leaves metadata to clients, and nothing else: the status is a subresource that they cannot write.
var memberStrategy = objects.Strategy{ForUser: refuseNewMember}

// refuseNewMember refuses a Member that a client would make: an apply can do that to a kind that has no create.
func refuseNewMember(o *objects.Op, _, old tree.Object) error {
	if !o.Client || old != nil {
		return nil
	}
	return apierrors.NewForbidden(quoratev1.Resource.GroupResource(), o.Info.Name,
		errors.New("the leader makes an object for each member of the cluster; a node becomes a member when it is started with --join"))
}
