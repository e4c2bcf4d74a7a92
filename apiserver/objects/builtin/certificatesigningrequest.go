package builtin

import (
	"crypto/rsa"
	"encoding/base64"
	"fmt"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/tree"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/certificates"
)

var signingRequestStrategy = objects.Strategy{
	ForUser: requestedBy,
	// What is requested stays: an update that says something else is about its metadata.
	Prepare: func(obj, old tree.Object) {
		if old != nil {
			tree.CopyField(obj, old, "spec")
		}
	},
	Parts: map[string]objects.Part{"approval": copyApproval, "status": copyRequestStatus},
}

// requestedBy writes who asks into a new CertificateSigningRequest, whatever it says
// itself: signers go by it. Nobody asks and approves at once.
func requestedBy(o *objects.Op, obj, old tree.Object) error {
	if old != nil {
		obj["spec"] = old["spec"] // whatever an update says
		return nil
	}
	spec := tree.Clone(obj["spec"])
	if err := o.Invalid(o.Info.Name, boundRequest(tree.Text(spec, "request"))); err != nil {
		return err
	}
	for _, name := range [...]string{"username", "uid", "groups", "extra"} {
		delete(spec, name)
	}
	if o.User.Name != "" {
		spec["username"] = o.User.Name
	}
	if o.User.UID != "" {
		spec["uid"] = o.User.UID
	}
	if len(o.User.Groups) > 0 {
		spec["groups"] = tree.FromStrings(o.User.Groups)
	}
	if len(o.User.Extra) > 0 {
		extra := tree.Object{}
		for k, v := range o.User.Extra {
			extra[k] = tree.FromStrings(v)
		}
		spec["extra"] = extra
	}
	obj["spec"], obj["status"] = spec, tree.Object{}
	return nil
}

const (
	// maxRequest bounds what is requested, in bytes of PEM: a certificate of 100 names takes 10 KiB.
	maxRequest = 64 << 10
	// maxRSABits is what crypto/tls takes of a peer: a certificate of a longer key is of no use.
	maxRSABits = 8192
)

// boundRequest refuses what would take long to verify: whether the signature is right is part of
// validation, and with an RSA key of 32 KiB that took a processor 12 s. What cannot be read is for
// validation to say.
func boundRequest(encoded string) field.ErrorList {
	path := field.NewPath("spec", "request")
	raw, err := base64.StdEncoding.DecodeString(encoded)
	switch {
	case err != nil:
		return nil
	case len(raw) > maxRequest:
		return field.ErrorList{field.TooLong(path, field.OmitValueType{}, maxRequest)}
	}
	request, err := certificates.ParseCSR(raw)
	if err != nil {
		return nil
	}
	if key, ok := request.PublicKey.(*rsa.PublicKey); ok && key.N.BitLen() > maxRSABits {
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, fmt.Sprintf("RSA keys may have %d bits at most", maxRSABits))}
	}
	return nil
}

const (
	approved = "Approved"
	denied   = "Denied"
)

// copyApproval is the part of certificatesigningrequests/approval: the conditions.
func copyApproval(o *objects.Op, obj, sent, old tree.Object) error {
	state := tree.Clone(old["status"])
	tree.SetList(state, "conditions", stampConditions(o, sent, old))
	obj["status"] = state
	return nil
}

// copyRequestStatus is the part of certificatesigningrequests/status, of which the
// approval is not.
func copyRequestStatus(o *objects.Op, obj, sent, old tree.Object) error {
	list := stampConditions(o, sent, old)
	// What approves stays as it was written there.
	for i, x := range list {
		if kind := tree.Text(tree.As(x), "type"); kind == approved || kind == denied {
			if j := tree.ConditionIndex(conditionsOf(old), kind); j >= 0 {
				list[i] = conditionsOf(old)[j]
			}
		}
	}
	state := tree.Clone(sent["status"])
	tree.SetList(state, "conditions", list)
	obj["status"] = state
	return nil
}

func conditionsOf(obj tree.Object) []any {
	list, _ := tree.Lookup(obj, "status.conditions").([]any)
	return list
}

// stampConditions returns the conditions that were sent, with the times that they
// leave to the server.
func stampConditions(o *objects.Op, sent, old tree.Object) []any {
	now := tree.Timestamp(o.Store.Now())
	before := map[string]tree.Object{}
	for _, x := range conditionsOf(old) {
		if was := tree.As(x); before[tree.Text(was, "type")] == nil {
			before[tree.Text(was, "type")] = was
		}
	}
	var out []any
	for _, x := range conditionsOf(sent) {
		x := tree.Clone(x)
		if tree.Text(x, "lastUpdateTime") == "" {
			x["lastUpdateTime"] = now
		}
		if tree.Text(x, "lastTransitionTime") == "" {
			x["lastTransitionTime"] = now
			if was := before[tree.Text(x, "type")]; was != nil {
				if at := tree.Text(was, "lastTransitionTime"); at != "" && was["status"] == x["status"] {
					x["lastTransitionTime"] = at
				}
			}
		}
		out = append(out, x)
	}
	return out
}
