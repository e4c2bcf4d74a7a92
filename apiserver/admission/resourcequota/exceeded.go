package resourcequota

import (
	"strings"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/types/quota"
	"github.com/quorate/quorate/proto"
	"k8s.io/apimachinery/pkg/api/resource"
)

// excess is what a write would exceed of a quota, in upstream's words.
type excess struct {
	quota             string
	asked, used, most []string
}

func (e *excess) add(name string, asked, used, most resource.Quantity) {
	e.asked = append(e.asked, name+"="+asked.String())
	e.used = append(e.used, name+"="+used.String())
	e.most = append(e.most, name+"="+most.String())
}

func (e *excess) Error() string {
	return "exceeded quota: " + e.quota + ", requested: " + strings.Join(e.asked, ",") +
		", used: " + strings.Join(e.used, ",") + ", limited: " + strings.Join(e.most, ",")
}

// Exceeded implements admission.Limiter: the numbers are those of the place of the write in the
// log. The quota lends the names and formats of its bounds. If it is another one by now they are
// those of the state machine.
func (p *plugin) Exceeded(a *admission.Attributes, e *proto.Exceeded) error {
	r := p.requestOf(a, a.Resource.GroupResource())
	_, name, _ := strings.Cut(e.Key, "/")
	over := excess{quota: name}
	bounds := r.boundsOf(name, e)
	for i, x := range e.Bounds {
		if bounds == nil {
			asked, used := quota.Quantity(x.Name, x.Requested, resource.DecimalSI), quota.Quantity(x.Name, x.Used, resource.DecimalSI)
			over.add(x.Name, asked, used, quota.Quantity(x.Name, x.Max, resource.DecimalSI))
			continue
		}
		b := bounds[i]
		n, asked := r.requested(b, true)
		if n != x.Requested {
			if n, asked = r.requested(b, false); n != x.Requested {
				asked = quota.Quantity(x.Name, x.Requested, b.hard.Format)
			}
		}
		over.add(b.name, asked, quota.Quantity(b.Amount, x.Used, b.hard.Format), b.hard)
	}
	return r.Forbidden(&over)
}

// boundsOf are the bounds of a quota that were exceeded, nil if it does not have them any more.
func (r *request) boundsOf(name string, e *proto.Exceeded) (out []*bound) {
	q := r.quotas.Get(r.Namespace, name)
	for i := 0; q != nil && i < len(q.bounds) && len(out) < len(e.Bounds); i++ {
		if b, x := &q.bounds[i], e.Bounds[len(out)]; b.is(x.Name, x.Max) {
			out = append(out, b)
		}
	}
	if len(out) < len(e.Bounds) {
		return nil
	}
	return out
}

// is reports whether the state machine means this bound: it may know another version of the quota.
func (b *bound) is(entry string, most int64) bool { return b.entry == entry && b.most == most }
