package suspension

import (
	"slices"
	"sync/atomic"
)

// named is an object of a resource that can be suspended.
type named interface{ GetName() string }

// filtered is what Filter returned last.
type filtered[P named] struct {
	all       []P
	suspended []string
	rest      []P
}

// Filter returns what gives those objects of a resource that are not suspended. They are in
// the order of all, and the same slice as long as all gives the same one and nothing begins or
// ends to be suspended. A nil view suspends nothing. What it returns is safe for concurrent use.
func Filter[P named](v *View, resource string, all func() []P) func() []P {
	var last atomic.Pointer[filtered[P]]
	return func() []P {
		if len(v.Stored()) == 0 {
			return all()
		}
		var names []string
		for _, s := range v.Active() {
			if s.Resource == resource {
				names = append(names, s.Name)
			}
		}
		now := all()
		if len(names) == 0 || len(now) == 0 {
			return now
		}
		if f := last.Load(); f != nil && slices.Equal(f.suspended, names) && len(f.all) == len(now) && &f.all[0] == &now[0] {
			return f.rest
		}
		f := &filtered[P]{all: now, suspended: names}
		for _, p := range now {
			if !slices.Contains(names, p.GetName()) {
				f.rest = append(f.rest, p)
			}
		}
		last.Store(f) // two at once make the same of the same
		return f.rest
	}
}
