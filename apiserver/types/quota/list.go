package quota

import (
	"math"
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/proto"
	"k8s.io/apimachinery/pkg/api/resource"
)

// List is amounts of resources. No name is there twice. The zero List has nothing.
type List []Item

// Item is so much of a resource.
type Item struct {
	Name     string
	Quantity resource.Quantity
}

func (l List) find(name string) *resource.Quantity {
	for i := range l {
		if l[i].Name == name {
			return &l[i].Quantity
		}
	}
	return nil
}

// Get is how much there is of a resource.
func (l List) Get(name string) resource.Quantity {
	if q := l.find(name); q != nil {
		return q.DeepCopy()
	}
	return resource.Quantity{}
}

// add adds so much of a resource.
func (l *List) add(name string, q resource.Quantity) {
	if there := l.find(name); there != nil {
		there.Add(q)
		return
	}
	*l = append(*l, Item{name, q.DeepCopy()})
}

// set makes it so much of a resource.
func (l *List) set(name string, q resource.Quantity) {
	if there := l.find(name); there != nil {
		*there = q
		return
	}
	*l = append(*l, Item{name, q})
}

func (l *List) addAll(other List) {
	for i := range other {
		l.add(other[i].Name, other[i].Quantity)
	}
}

// raise makes it at least what another list has, resource by resource.
func (l *List) raise(other List) {
	for i := range other {
		there := l.find(other[i].Name)
		switch {
		case there == nil:
			*l = append(*l, Item{other[i].Name, other[i].Quantity.DeepCopy()})
		case other[i].Quantity.Cmp(*there) > 0:
			*there = other[i].Quantity.DeepCopy()
		}
	}
}

func count(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.DecimalSI) }

// read adds what a map of quantities in an object says. Objects were validated: what is no
// quantity is not there.
func (l *List) read(v any) {
	for name, text := range tree.As(v) {
		if q, ok := quantityOf(text); ok {
			l.add(name, q)
		}
	}
}

func quantityOf(v any) (resource.Quantity, bool) {
	text := tree.Scalar(v)
	if text == "" {
		return resource.Quantity{}, false
	}
	q, err := tree.ParseQuantity(text)
	return q, err == nil
}

// amounts are a list in whole numbers, sorted by name, without what is zero.
func (l List) amounts() []*proto.Amount {
	made := make([]proto.Amount, 0, len(l))
	for i := range l {
		if n := Amount(l[i].Name, l[i].Quantity); n > 0 {
			made = append(made, proto.Amount{Name: l[i].Name, Value: n})
		}
	}
	out := make([]*proto.Amount, len(made))
	for i := range made {
		out[i] = &made[i]
	}
	slices.SortFunc(out, func(a, b *proto.Amount) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// inMilli reports whether a resource is counted in thousandths.
func inMilli(name string) bool { return name == requestsCPU || name == limitsCPU }

func scaleOf(name string) resource.Scale {
	if inMilli(name) {
		return resource.Milli
	}
	return 0
}

// Amount is a quantity of a resource as the state machine counts it, rounded up. Less than
// nothing is nothing, and more than there are numbers is the greatest.
func Amount(name string, q resource.Quantity) int64 {
	if q.Sign() <= 0 {
		return 0
	}
	scale := scaleOf(name)
	if q.Cmp(*resource.NewScaledQuantity(math.MaxInt64, scale)) >= 0 {
		return math.MaxInt64
	}
	return q.ScaledValue(scale)
}

// Bound is a quantity that bounds a resource, as the state machine counts it: rounded down.
func Bound(name string, q resource.Quantity) int64 {
	n := Amount(name, q)
	if n > 0 && resource.NewScaledQuantity(n, scaleOf(name)).Cmp(q) > 0 {
		n--
	}
	return n
}

// Quantity is an amount as a quantity, in the format of another.
func Quantity(name string, n int64, like resource.Format) resource.Quantity {
	q := *resource.NewScaledQuantity(n, scaleOf(name))
	q.Format = like
	return q
}
