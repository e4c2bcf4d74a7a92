package validation

import (
	"github.com/quorate/quorate/apiserver/types/quoratev1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// quorateKinds are validated by their metadata alone: what else they have only the server writes.
var quorateKinds = map[string]Kind{
	"members.quorate.io": rules[quoratev1.Member, quoratev1.Member]{
		convert: func(in, out *quoratev1.Member, _ conversion.Scope) error { *out = *in; return nil },
		create:  func(*quoratev1.Member) field.ErrorList { return nil },
		update:  none[quoratev1.Member],
	},
}
