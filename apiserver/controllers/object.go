package controllers

// ObjectKey is where an object is: the store's table of its resource and its key
// in that table.
type ObjectKey struct{ Table, Key string }

// Object is what the garbage collector knows of an object.
type Object struct {
	ObjectKey
	UID string
	// Revision is the resourceVersion that says all this.
	Revision string
	Owners   []Owner
	Deleting bool
	// Foreground and Orphan: it has the finalizer foregroundDeletion or orphan.
	Foreground, Orphan bool
}

// awaits reports whether an object is being deleted and waits for the collector.
func (o *Object) awaits() bool { return o.Deleting && (o.Foreground || o.Orphan) }

// Owner is one of an object's ownerReferences.
type Owner struct {
	APIVersion, Kind, Name, UID string
	// Blocks: the owner's deletion in the foreground waits for this object.
	Blocks bool
}

// OwnerState is what has become of an owner.
type OwnerState int

// What a reference may lead to.
const (
	// OwnerThere: an object that stays, or that is deleted without waiting.
	OwnerThere OwnerState = iota
	// OwnerAbsent: no object of that name, or one with another uid.
	OwnerAbsent
	// OwnerWaiting: an object that is deleted in the foreground.
	OwnerWaiting
	// OwnerUnknown: nobody serves its kind, now.
	OwnerUnknown
	// OwnerImpossible: an object of a namespace, for one that is in none.
	OwnerImpossible
)

// Change is one event in the history of an object.
type Change struct {
	UID string
	// Object is nil if it is gone, or if the collector has nothing to do with it: it
	// has no owners and awaits nothing.
	Object *Object
	Gone   bool
}
