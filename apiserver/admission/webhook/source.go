package webhook

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	upstreams "github.com/quorate/quorate/apiserver/admission/upstream"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// source is a table of configurations as upstream's plugin wants it: a lister, and what calls its
// event handlers. Nothing runs: update is called before every decision. Safe for concurrent use.
type source[P metav1.Object] struct {
	// list returns what is there now; as long as nothing has changed it is the same slice.
	list func() []P
	// suspended says which configurations are not asked at the moment, if there are suspensions.
	suspended   func(P) bool
	suspensions func() int
	// webhooks are those of a configuration, index all of those told.
	webhooks func(P) []hook
	kinds    *upstreams.Kinds
	index    atomic.Pointer[index]

	mu sync.Mutex // of those that bring it up to date
	// listed is what the lister shows, told what the handlers know of. They differ while the
	// handlers are called: by then the lister must show what they are called for, and nobody
	// may decide before they know it.
	listed, told atomic.Pointer[[]P]
	handlers     []cache.ResourceEventHandler
}

// update tells the handlers of what has changed since it was called last. It returns what there is
// now.
func (s *source[P]) update() *index {
	now := s.current()
	if told := s.told.Load(); told != nil && same(*told, now) {
		return s.index.Load()
	}
	return s.renew()
}

// renew is update when there is something to tell. It is apart so that update allocates nothing.
func (s *source[P]) renew() *index {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.current() // another goroutine may have been first, and further
	var before []P
	if told := s.told.Load(); told != nil {
		before = *told
	}
	s.listed.Store(&now)
	s.tell(before, now)
	var hooks []hook
	for _, p := range now {
		hooks = append(hooks, s.webhooks(p)...)
	}
	x := newIndex(s.kinds, hooks)
	s.index.Store(x)
	s.told.Store(&now)
	return x
}

// current is what counts now: those that are listed and not suspended.
func (s *source[P]) current() []P {
	all := s.list()
	if s.suspensions() == 0 {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), s.suspended)
}

// tell calls the handlers for the difference of two lists, both in the order of their names.
func (s *source[P]) tell(before, now []P) {
	for len(before) > 0 || len(now) > 0 {
		switch {
		case len(now) == 0 || len(before) > 0 && before[0].GetName() < now[0].GetName():
			for _, h := range s.handlers {
				h.OnDelete(before[0])
			}
			before = before[1:]
		case len(before) == 0 || now[0].GetName() < before[0].GetName():
			for _, h := range s.handlers {
				h.OnAdd(now[0], false)
			}
			now = now[1:]
		default:
			if any(before[0]) != any(now[0]) { // what has not changed is the same pointer
				for _, h := range s.handlers {
					h.OnUpdate(before[0], now[0])
				}
			}
			before, now = before[1:], now[1:]
		}
	}
}

// same reports whether two lists are one, or have the same in them.
func same[P metav1.Object](a, b []P) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || slices.EqualFunc(a, b, func(x, y P) bool { return any(x) == any(y) }))
}

// visible is what the lister shows.
func (s *source[P]) visible() []P {
	if listed := s.listed.Load(); listed != nil {
		return *listed
	}
	return nil
}

// shown are the configurations as upstream's plugin lists them. It never gets one by its name.
func shown[T any, P interface {
	*T
	metav1.Object
}](s *source[P]) *upstreams.Informers {
	list := func() (all []*T) {
		for _, p := range s.visible() {
			all = append(all, p)
		}
		return all
	}
	i := &upstreams.Informers{}
	upstreams.Show(i, func(string) (*T, error) { return nil, errors.ErrUnsupported }, list, s.AddEventHandler)
	return i
}

// AddEventHandler keeps a handler. It is called before update is.
func (s *source[P]) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	s.handlers = append(s.handlers, h)
	return registered{}, nil
}

// registered is a handler that has seen everything: update is called before it is asked.
type registered struct {
	cache.ResourceEventHandlerRegistration
}

func (registered) HasSynced() bool { return true }
