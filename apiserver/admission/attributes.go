package admission

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
)

// Operation is what is done to an object.
type Operation = admission.Operation

// The operations, in upstream's words. Patches and applies are creates or updates.
const (
	Create  = admission.Create
	Update  = admission.Update
	Delete  = admission.Delete
	Connect = admission.Connect
)

// Attributes of a write. They are not to be kept. For one goroutine, but AddAnnotation and Warn.
type Attributes struct {
	Operation   Operation
	Kind        schema.GroupVersionKind // of Object: that of the body where a subresource has its own
	Resource    schema.GroupVersionResource
	Subresource string
	Namespace   string
	Name        string // empty for each object of a collection that is deleted
	Generated   bool   // the server has made the name
	User        *auth.User
	DryRun      bool
	// FieldManager and FieldValidation are the options of a write, Delete those of a deletion.
	FieldManager, FieldValidation string
	DeleteOptions                 *metav1.DeleteOptions
	// Object is the object as it will be, nil for a deletion; Old as it was, nil for a create.
	// The first level of Object and of its metadata are its own and are changed in place. What
	// is below may be shared, also with Old, and is replaced, not changed.
	Object, Old tree.Object

	// Interfaces make, convert and default objects of any kind for upstream's plugins. Those of
	// Object belong to this decision: what is converted into it replaces it.
	Interfaces admission.ObjectInterfaces

	// Told is told of warnings and of annotations of the audit event. Nil: nobody is.
	Told Told

	mu          sync.Mutex
	annotations map[string]string
	rules       Rules
	ranges      []Range
	limiter     Limiter
	reinvoked   reinvocation
	replaced    bool                      // Object is another one than it was
	object, old unstructured.Unstructured // Object and Old, as upstream's plugins want them
}

// Reset makes the attributes of the next decision of them.
func (a *Attributes) Reset() {
	a.Operation, a.Kind, a.Resource, a.Subresource = "", schema.GroupVersionKind{}, schema.GroupVersionResource{}, ""
	a.Namespace, a.Name, a.Generated, a.User, a.DryRun = "", "", false, nil, false
	a.FieldManager, a.FieldValidation, a.DeleteOptions = "", "", nil
	a.Object, a.Old, a.Interfaces, a.Told, a.replaced = nil, nil, nil, nil, false
	a.annotations, a.rules, a.ranges, a.limiter, a.reinvoked = nil, 0, a.ranges[:0], nil, reinvocation{}
	a.object.Object, a.old.Object = nil, nil
}

// Is reports whether the write is of a resource itself, and not of a subresource.
func (a *Attributes) Is(group, resource string) bool {
	return a.Subresource == "" && a.Resource.Resource == resource && a.Resource.Group == group
}

// Meta is the metadata of the object, its own map; nil for a deletion.
func (a *Attributes) Meta() tree.Object { return tree.As(a.Object["metadata"]) }

// SetObject replaces the object by another one, which is not used after that.
func (a *Attributes) SetObject(obj tree.Object) {
	if m := tree.As(obj["metadata"]); m != nil {
		obj["metadata"] = maps.Clone(m)
	}
	if len(a.Object) > 0 && len(obj) > 0 {
		keep := maps.Clone(obj) // obj may be a.Object
		clear(a.Object)
		obj = keep
	}
	maps.Copy(a.Object, obj)
	a.replaced = true
}

// Replaced reports whether SetObject was called.
func (a *Attributes) Replaced() bool { return a.replaced }

// Warn tells the client something besides the answer.
func (a *Attributes) Warn(text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.Told != nil {
		a.Told.Warn([]string{text})
	}
}

// Told takes what a decision says besides yes and no. It is called by one goroutine at a time.
type Told interface {
	// Warn tells the client besides the answer.
	Warn(texts []string)
	// Annotate adds a note to the audit event, if that is recorded at a level or above.
	Annotate(key, value string, from auditinternal.Level)
}

// Rules are tables that a decision follows from, as bits.
type Rules uint32

// Range is a part of a table that a decision follows from: the keys with a prefix. With a uid, the
// prefix is a key, and what counts is that the object with that uid is there.
type Range struct{ Table, Prefix, UID string }

// Consulted notes rule tables that the plugin has looked at, also if nothing was there: the
// write is decided again if one of them changes before it is in the log.
func (a *Attributes) Consulted(rules Rules) { a.rules |= rules }

// maxRanges is how many parts of tables an entry names. It can have a few more.
const maxRanges = 192

// ConsultedRange notes a part of another table that the plugin has looked at, such as the
// parameters of a policy. Of too many parts it is all of their table that counts.
func (a *Attributes) ConsultedRange(r Range) {
	if slices.ContainsFunc(a.ranges, func(has Range) bool {
		return has == r || has.UID == "" && has.Table == r.Table && strings.HasPrefix(r.Prefix, has.Prefix)
	}) {
		return
	}
	if len(a.ranges) >= maxRanges {
		r.Prefix, r.UID = "", ""
		a.ranges = slices.DeleteFunc(a.ranges, func(has Range) bool { return has.Table == r.Table })
	}
	a.ranges = append(a.ranges, r)
}

const roleRules = Rules(proto.RuleRoles | proto.RuleClusterRoles | proto.RuleRoleBindings | proto.RuleClusterRoleBindings)

// Follows implements auth.Basis: what is decided follows from an object being there.
func (a *Attributes) Follows(from auth.Object) {
	a.ConsultedRange(Range{from.Table, from.Key, from.UID})
}

// ConsultedRoles notes that a decision follows from somebody's permissions in a namespace, which
// is empty for those of the cluster.
func (a *Attributes) ConsultedRoles(namespace string) {
	a.Consulted(roleRules)
	if namespace != "" && namespace != a.GetNamespace() {
		a.consultedRolesIn(namespace + "/")
	}
}

// ConsultedAllRoles is ConsultedRoles for all namespaces.
func (a *Attributes) ConsultedAllRoles() {
	a.Consulted(roleRules)
	a.consultedRolesIn("")
}

func (a *Attributes) consultedRolesIn(prefix string) {
	for i := range proto.Rules {
		if r := &proto.Rules[i]; Rules(r.Bit)&roleRules != 0 && r.Scope == proto.RuleOfNamespace {
			a.ConsultedRange(Range{Table: r.Table, Prefix: prefix})
		}
	}
}

// Limit has the state machine refuse the write if a quota would be exceeded when it is applied,
// whatever this node sees now. by words what the client is told then.
func (a *Attributes) Limit(by Limiter) { a.limiter = by }

// Limiter words the refusals of the state machine.
type Limiter interface {
	// Exceeded is the answer to a write that would have exceeded a quota when it was applied.
	Exceeded(a *Attributes, e *proto.Exceeded) error
}

// Limited reports whether a plugin has called Limit.
func (a *Attributes) Limited() bool { return a.limiter != nil }

// Exceeded is the refusal of a write for which Limit was called.
func (a *Attributes) Exceeded(e *proto.Exceeded) error { return a.limiter.Exceeded(a, e) }

// Decided returns what the plugins have consulted.
func (a *Attributes) Decided() (Rules, []Range) { return a.rules, a.ranges }
