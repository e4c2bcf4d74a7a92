package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/quoratev1"
	"github.com/quorate/quorate/apiserver/wire/codec"
	"github.com/quorate/quorate/raftstore/mvcc"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Members is the cluster that the objects Member show. All functions may be called at any time.
type Members struct {
	// List returns the members as this node has them in memory: who they are, and nothing of how they are.
	List func() ([]MemberSeen, error)
	// Ask asks all members how they are.
	Ask func(ctx context.Context) ([]MemberSeen, error)
	// Remove removes a member from the cluster. What is refused, because it would endanger the cluster, is a
	// RemovalRefused. Of one that is no member it is no error.
	Remove func(ctx context.Context, id string) error
}

// MemberSeen is how the leader sees a member.
type MemberSeen struct {
	ID, Name, PeerAddress, APIAddress string
	Voter, Leader                     bool
	// Down is why the member is not ready, in one word such as NotAnswering; Why is that for a person.
	Down, Why string
	// Version and FeatureVersion are of its release; empty: it did not answer.
	Version        string
	FeatureVersion int64
	// Applied is the index of the last entry that it has applied, Lag how many more are committed.
	Applied, Lag uint64
	// DiskSpace is what its disk lacks: reserve, low, snapshot, full or read-only; empty: nothing.
	DiskSpace string
	// LostEntries and WrongState say, for a person, why it must be replaced. Empty: it need not.
	LostEntries, WrongState string
}

// RemovalRefused is why a member cannot be removed now, for a person.
type RemovalRefused struct{ Why string }

func (r *RemovalRefused) Error() string { return r.Why }

var membersTable = kinds.BuiltinTable(quoratev1.Resource.GroupResource())

const (
	// askPeriod is how often the members are asked how they are. Of who is a member, and who leads, the leader knows
	// by itself (membersPeriod).
	askPeriod = 5 * time.Second
	// settleDelay is for how long no other member has been declared gone, and none taken back, before the first is removed, so
	// that one command which deletes all of them is seen as what it is, and can be taken back; of one that is ready it is longer: to remove that by mistake costs most.
	settleDelay      = time.Second
	settleDelayReady = 5 * time.Second
	// nameDelay is for how long a member without a name has no object. New members say their names in a moment.
	nameDelay = 10 * time.Second
	// lagDelay is for how long a member may apply nothing while it lacks entries.
	lagDelay = 15 * time.Second
)

// memberSync keeps an object Member for each member of the cluster, and removes those whose objects are deleted.
type memberSync struct {
	base
	members   Members
	res       *kinds.Resource
	events    memberEvents
	readiness map[string]pendingReady // by id
	progress  map[string]progress     // by id
	unnamed   map[string]time.Time    // by id: since when
	declared  map[string]declaration  // by id
	takenBack time.Time               // the last declaration
	shown     map[string]bool         // by id: it had an object in this term
}

// declaration is an object that was deleted, and when that was first seen.
type declaration struct {
	uid   types.UID
	since time.Time
}

func (k *memberSync) run(ctx context.Context) error {
	wake, stop, err := k.objects.WatchTable(membersTable)
	if err != nil {
		return err
	}
	defer stop()
	k.res, k.events = k.objects.Kinds().Lookup(quoratev1.Resource), memberEvents{base: k.base, of: map[eventKey]*memberEvent{}}
	k.readiness, k.progress, k.unnamed = map[string]pendingReady{}, map[string]progress{}, map[string]time.Time{}
	k.declared, k.shown = map[string]declaration{}, map[string]bool{}
	var known []MemberSeen
	var due time.Time
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		woken := false
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-wake:
			woken = true
		case <-timer.C:
		}
		listed, err := k.members.List()
		tried := err != nil
		if now := time.Now(); err == nil && (woken || !now.Before(due) || !slices.Equal(listed, known)) {
			due, tried = now.Add(askPeriod), true
			var again bool
			if again, err = k.sync(ctx); err == nil {
				known = listed
			}
			if again {
				due = now
			}
		}
		if tried && ctx.Err() == nil && !apierrors.IsConflict(err) {
			k.reports.tried("cannot show the members as objects, retrying", err)
		}
		timer.Reset(membersPeriod)
		if woken && !pause(ctx, coalesceDelay) {
			return context.Cause(ctx)
		}
	}
}

// storedMember is an object with the version that it was read from.
type storedMember struct {
	quoratev1.Member
	version *mvcc.Version
}

// sync compares the objects with what members say, once. again: there is more to be done soon.
func (k *memberSync) sync(ctx context.Context) (again bool, err error) {
	seen, err := k.members.Ask(ctx)
	if err != nil {
		return false, fmt.Errorf("ask the members: %w", err)
	}
	if len(seen) == 0 {
		return true, nil
	}
	stored, err := k.stored()
	if err != nil {
		return false, err
	}
	now := time.Now()
	for i := range seen {
		m := &seen[i]
		k.progress[m.ID] = k.progress[m.ID].seen(m, now)
	}
	all := seen
	seen = slices.DeleteFunc(slices.Clone(seen), func(m MemberSeen) bool {
		if m.Name != "" || slices.ContainsFunc(stored, func(s storedMember) bool { return s.Status.ID == m.ID }) {
			delete(k.unnamed, m.ID)
			return false
		}
		if k.unnamed[m.ID].IsZero() {
			k.unnamed[m.ID] = now
		}
		return now.Sub(k.unnamed[m.ID]) < nameDelay
	})
	has := map[string]*storedMember{} // by id
	ending := map[string]bool{}       // names of objects of nodes that are no members any more: whether somebody else holds them
	for i := range stored {
		s := &stored[i]
		switch member := slices.ContainsFunc(all, func(m MemberSeen) bool { return m.ID == s.Status.ID }); {
		case !member:
			again = again || s.DeletionTimestamp == nil || slices.Contains(s.Finalizers, quoratev1.Finalizer) // it is not gone before the next time
			ending[s.Name] = !onlyOurs(s.Finalizers)
			err = k.end(ctx, s)
		case has[s.Status.ID] == nil:
			has[s.Status.ID], k.shown[s.Status.ID] = s, true
		default: // two leaders have made one
			err = k.drop(ctx, s)
		}
		if err != nil {
			return false, err
		}
	}
	names := memberNames(seen, has, ending)
	var errs []error
	for _, m := range seen {
		s := has[m.ID]
		if s != nil && s.Name != names[m.ID] && s.DeletionTimestamp == nil && onlyOurs(s.Finalizers) {
			if err := k.drop(ctx, s); err != nil {
				return false, err
			}
			again, s = true, nil
			delete(has, m.ID)
		}
		if _, there := ending[names[m.ID]]; there && s == nil {
			again = true
			continue
		}
		if s == nil {
			err = k.create(ctx, names[m.ID], m, len(stored) > 0)
		} else {
			var pending bool
			pending, err = k.update(ctx, s, m, now)
			again = again || pending
		}
		if err != nil { // which keeps no other member waiting
			errs = append(errs, err)
		}
	}
	more, err := k.removeDeclared(ctx, seen, has, now)
	return again || more, errors.Join(append(errs, err)...)
}

// onlyOurs reports whether nobody else holds an object.
func onlyOurs(finalizers []string) bool {
	return !slices.ContainsFunc(finalizers, func(f string) bool { return f != quoratev1.Finalizer })
}

func (k *memberSync) stored() ([]storedMember, error) {
	versions, err := k.objects.Range(membersTable, "")
	if err != nil {
		return nil, fmt.Errorf("list members: %w", err)
	}
	out := make([]storedMember, len(versions))
	for i, v := range versions {
		obj, err := codec.DecodeStored(k.res, v)
		if err == nil {
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(obj, &out[i].Member)
		}
		if err != nil {
			return nil, fmt.Errorf("decode member %s: %w", v.Key, err)
		}
		out[i].version = v
	}
	return out, nil
}

// create makes the object of a member. joined: there are others already, so it has joined them.
func (k *memberSync) create(ctx context.Context, name string, m MemberSeen, joined bool) error {
	o := &quoratev1.Member{Status: nextMember(nil, m, k.objects.Now())}
	o.Name, o.Finalizers = name, []string{quoratev1.Finalizer}
	if err := k.api.Create(ctx, quoratev1.Resource, "", o); err != nil {
		return fmt.Errorf("create member %s: %w", name, err)
	}
	if joined && !k.shown[m.ID] {
		return k.told(ctx, o, eventOf(joinedEvent, o))
	}
	return nil
}

// update writes what has changed of a member. pending: it may be another in a moment.
func (k *memberSync) update(ctx context.Context, s *storedMember, m MemberSeen, now time.Time) (pending bool, err error) {
	if s.DeletionTimestamp == nil && !slices.Contains(s.Finalizers, quoratev1.Finalizer) {
		s.Finalizers = append(s.Finalizers, quoratev1.Finalizer)
		return true, k.api.Update(ctx, quoratev1.Resource, "", s.Name, &s.Member)
	}
	p := k.readiness[m.ID]
	m, pending = p.held(s.Status.Conditions, m, now)
	k.readiness[m.ID] = p
	next := nextMember(&s.Status, m, k.objects.Now())
	return pending, k.write(ctx, s, next)
}

// write writes the status of an object, unless it is that already, and tells what it means.
func (k *memberSync) write(ctx context.Context, s *storedMember, next quoratev1.MemberStatus) error {
	if sameMember(&s.Status, &next) {
		return nil
	}
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&next)
	if err != nil {
		return err
	}
	o := k.objects.System(ctx, k.res, "", s.Name, "update")
	o.Info.Subresource, o.Subresource = "status", k.res.Subresource("status")
	w, err := o.GuaranteedUpdate(o.Key(), func(cur *mvcc.Version) (objects.Change, error) {
		if cur == nil || cur.Revision != s.version.Revision { // decided on another one
			return objects.Change{}, apierrors.NewConflict(quoratev1.Resource.GroupResource(), s.Name, errors.New("the object has changed"))
		}
		old, obj, _, err := o.Editable(cur)
		if err != nil {
			return objects.Change{}, err
		}
		obj["status"] = status
		return o.Replace(cur, obj, old)
	})
	if err != nil {
		return fmt.Errorf("write the status of member %s: %w", s.Name, err)
	}
	was := s.Status
	s.Status, s.version = next, w.Version
	return k.told(ctx, &s.Member, changesOf(&was, &s.Member)...)
}

// drop takes an object of a member away that has or gets another one. It is one write, so that no leader ever takes it for a
// deletion that somebody has asked for.
func (k *memberSync) drop(ctx context.Context, s *storedMember) error {
	if err := k.removeVersion(ctx, membersTable, s.version); err != nil {
		return fmt.Errorf("delete member %s: %w", s.Name, err)
	}
	return nil
}

// end takes the object of a node that is no member any more away.
func (k *memberSync) end(ctx context.Context, s *storedMember) error {
	if s.DeletionTimestamp == nil {
		err := k.api.Delete(ctx, quoratev1.Resource, "", s.Name, s.UID)
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete member %s: %w", s.Name, err)
		}
		return nil
	}
	i := slices.Index(s.Finalizers, quoratev1.Finalizer)
	if i < 0 {
		return nil // somebody else holds it
	}
	s.Finalizers = slices.Delete(s.Finalizers, i, i+1)
	if err := k.api.Update(ctx, quoratev1.Resource, "", s.Name, &s.Member); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("let member %s go: %w", s.Name, err)
	}
	delete(k.readiness, s.Status.ID)
	delete(k.progress, s.Status.ID)
	delete(k.shown, s.Status.ID)
	return k.told(ctx, &s.Member, eventOf(removedEvent, &s.Member))
}

// removeDeclared removes one member that was declared gone: the next one is decided on what is then.
func (k *memberSync) removeDeclared(ctx context.Context, seen []MemberSeen, has map[string]*storedMember, now time.Time) (again bool, err error) {
	var gone []MemberSeen
	settled, declared := true, map[string]declaration{}
	for _, m := range seen {
		s, was := has[m.ID], k.declared[m.ID]
		if s == nil || s.DeletionTimestamp == nil || !slices.Contains(s.Finalizers, quoratev1.Finalizer) {
			if was.uid != "" {
				k.takenBack = now // others may follow it
			}
			continue
		}
		gone = append(gone, m)
		if was.uid != s.UID {
			was = declaration{s.UID, now}
		}
		declared[m.ID] = was
		delay := settleDelay
		if m.Down == "" {
			delay = settleDelayReady
		}
		settled = settled && min(now.Sub(was.since), now.Sub(k.takenBack)) >= delay
	}
	k.declared = declared
	if !settled {
		return true, nil
	}
	remove, blocked := nextRemovals(seen, gone)
	for _, m := range blocked {
		if err := k.block(ctx, has[m.ID], "AllVoters", "all voters are declared gone, and one must stay"); err != nil {
			return false, err
		}
	}
	for _, m := range remove {
		// By all that was acknowledged: the deletion may have been taken back.
		is, err := k.newest(ctx, has[m.ID])
		if err != nil || !is {
			return true, err
		}
		err = k.members.Remove(ctx, m.ID)
		var refused *RemovalRefused
		switch {
		case errors.As(err, &refused):
			if err := k.block(ctx, has[m.ID], "Refused", refused.Why); err != nil {
				return false, err
			}
		case err != nil:
			return false, fmt.Errorf("remove member %s, whose object is deleted: %w", m.ID, err)
		default:
			return true, nil
		}
	}
	return false, nil
}

// newest reports whether an object is as it was read, by all that was acknowledged.
func (k *memberSync) newest(ctx context.Context, s *storedMember) (bool, error) {
	if err := k.objects.Confirm(ctx); err != nil {
		return false, fmt.Errorf("read member %s: %w", s.Name, err)
	}
	v, err := k.objects.Current(membersTable, s.Name)
	return err == nil && v != nil && v.Revision == s.version.Revision, err
}

// block says of a member that was declared gone why it is one still.
func (k *memberSync) block(ctx context.Context, s *storedMember, reason, why string) error {
	next := s.Status
	next.Conditions = slices.Clone(next.Conditions)
	meta.SetStatusCondition(&next.Conditions, metav1.Condition{
		Type: quoratev1.RemovalBlocked, Status: metav1.ConditionTrue, Reason: reason, LastTransitionTime: metav1.NewTime(k.objects.Now()),
		Message: why + ". It is removed as soon as that is safe; who takes the finalizer " + quoratev1.Finalizer + " off the object takes the deletion back",
	})
	sortConditions(next.Conditions)
	return k.write(ctx, s, next)
}

// told makes events of what has become of a member. Nothing waits for them: one that cannot be written is lost.
func (k *memberSync) told(ctx context.Context, m *quoratev1.Member, events ...eventText) error {
	for _, e := range events {
		k.events.add(ctx, m, e)
	}
	return context.Cause(ctx)
}
