//lint:file-ignore SA1019 orphanDependents is deprecated for clients, not for servers: older clients still send it

package objects

import (
	"bytes"
	"slices"
	"time"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	FinalizersKey        = []byte(`"finalizers":`)
	deletionTimestampKey = []byte(`"deletionTimestamp":`)
)

// decideDelete chooses between removing an object and its first phase.
func (o *Op) decideDelete(options *metav1.DeleteOptions, cur *mvcc.Version) (Change, error) {
	h := o.Strategy()
	if !o.Resource.GracePeriod && h.StartDelete == nil && !o.Options.IsDryRun() && o.wantedFinalizer(options, nil) == "" &&
		!bytes.Contains(cur.Value(), FinalizersKey) && !bytes.Contains(cur.Value(), deletionTimestampKey) {
		// The ordinary case, decided on the bytes: nothing holds the object, and
		// its tombstone keeps its last content.
		return Change{Op: proto.Op_OP_DELETE}, nil
	}
	old, obj, meta, err := o.Editable(cur)
	if err != nil {
		return Change{}, err
	}
	o.setDependentsFinalizer(meta, options)
	now, deleting := o.Store.Now(), tree.Text(meta, "deletionTimestamp") != ""
	switch {
	case h.StartDelete != nil && h.StartDelete(o, obj):
		// Something that only its own controller takes away. It is no grace period.
		if deleting {
			return Change{None: true, Object: old}, nil
		}
		meta["deletionTimestamp"] = tree.Timestamp(now)
		return o.PutUnlessSame(obj, cur)
	case o.Resource.GracePeriod:
		g := gracePeriod(options, obj, meta, now)
		if g.pending {
			// It ends as it has begun: the options come too late, also for finalizers.
			return Change{None: true, Object: old}, nil
		}
		markDeleting(meta, g.at, g.seconds)
		if g.seconds == 0 && !tree.HasFinalizers(meta) {
			return o.EncodeChange(proto.Op_OP_DELETE, obj)
		}
	case !tree.HasFinalizers(meta):
		return Change{Op: proto.Op_OP_DELETE, Object: obj}, nil
	default:
		markDeleting(meta, now, 0)
	}
	return o.PutUnlessSame(obj, cur)
}

func (o *Op) PutUnlessSame(obj tree.Object, cur *mvcc.Version) (Change, error) {
	ch, err := o.EncodeChange(proto.Op_OP_PUT, obj)
	if err != nil {
		return Change{}, err
	}
	ch.None = o.unchanged(&ch, cur)
	return ch, nil
}

// markDeleting begins a deletion, or moves the end of one that runs to an earlier
// time. The first mark counts as a change of the object's generation.
func markDeleting(meta tree.Object, at time.Time, seconds int64) {
	running, deleting := deletionTime(meta)
	if generation, ok := tree.Int(meta["generation"]); ok && generation > 0 && !deleting {
		meta["generation"] = generation + 1
	}
	if !deleting || running.After(at) {
		meta["deletionTimestamp"] = tree.Timestamp(at)
	}
	meta["deletionGracePeriodSeconds"] = seconds
}

func deletionTime(meta tree.Object) (at time.Time, ok bool) {
	s := tree.Text(meta, "deletionTimestamp")
	at, err := time.Parse(time.RFC3339, s)
	return at, s != "" && err == nil
}

// grace is how a kind with graceful deletion ends.
type grace struct {
	// pending: a deletion runs, and the options do not make it shorter.
	pending bool
	seconds int64
	at      time.Time // when it is over
}

// gracePeriod is what the options say, else what the object says, but nothing for
// an object that runs nowhere or has ended. What runs can only get shorter.
func gracePeriod(o *metav1.DeleteOptions, obj, meta tree.Object, now time.Time) grace {
	asked, given := int64(0), o.GracePeriodSeconds != nil
	if given {
		asked = positive(*o.GracePeriodSeconds)
	}
	if end, deleting := deletionTime(meta); deleting {
		running, _ := tree.Int(meta["deletionGracePeriodSeconds"])
		running = positive(running)
		switch {
		case running == 0:
			// It waits for finalizers alone.
			return grace{at: now}
		case !given || asked >= running:
			return grace{pending: true}
		}
		at := end.Add(time.Duration(asked-running) * time.Second)
		if at.Before(now) {
			// Too late for the shorter period. What ends the object must still see that
			// it is to end, unless the client wants it gone at once.
			at, asked = now, min(asked, 1)
		}
		return grace{seconds: asked, at: at}
	}
	seconds := asked
	if own, ok := tree.Int(tree.Lookup(obj, "spec.terminationGracePeriodSeconds")); ok && !given {
		seconds = positive(own)
	}
	phase, _ := tree.Lookup(obj, "status.phase").(string)
	if node, _ := tree.Lookup(obj, "spec.nodeName").(string); node == "" || phase == "Succeeded" || phase == "Failed" {
		seconds = 0
	}
	return grace{seconds: seconds, at: now.Add(time.Duration(seconds) * time.Second)}
}

// positive reads a negative grace period as upstream does: one second.
func positive(seconds int64) int64 {
	if seconds < 0 {
		return 1
	}
	return seconds
}

// setDependentsFinalizer puts the finalizer that tells the garbage collector what
// to do with dependents among the object's, and takes the other one out. Where
// nothing collects, it would never be taken off: nothing is changed.
func (r *Request) setDependentsFinalizer(meta tree.Object, options *metav1.DeleteOptions) {
	if !r.Store.GarbageCollector {
		return
	}
	list, _ := tree.Strings(meta["finalizers"])
	want := r.wantedFinalizer(options, list)
	kept := slices.DeleteFunc(slices.Clone(list), func(s string) bool {
		return s != want && (s == metav1.FinalizerOrphanDependents || s == metav1.FinalizerDeleteDependents)
	})
	if want != "" && !slices.Contains(kept, want) {
		kept = append(kept, want)
	}
	tree.SetFinalizers(meta, kept)
}

// wantedFinalizer is the finalizer for the dependents of an object that has the
// given ones, or "". The options come first, then what the object has, then what
// its kind does by default.
func (r *Request) wantedFinalizer(options *metav1.DeleteOptions, has []string) string {
	switch {
	case !r.Store.GarbageCollector, r.Resource.Dependents == kinds.DependentsUnsupported:
		return ""
	case options.OrphanDependents != nil:
		if *options.OrphanDependents {
			return metav1.FinalizerOrphanDependents
		}
		return ""
	case options.PropagationPolicy != nil:
		return finalizerOf[*options.PropagationPolicy]
	}
	for _, f := range has {
		if f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents {
			return f
		}
	}
	if r.Resource.Dependents == kinds.DependentsOrphaned {
		return metav1.FinalizerOrphanDependents
	}
	return ""
}

var finalizerOf = map[metav1.DeletionPropagation]string{
	metav1.DeletePropagationOrphan:     metav1.FinalizerOrphanDependents,
	metav1.DeletePropagationForeground: metav1.FinalizerDeleteDependents,
}

// Delete deletes the object that Info names, or begins to: with finalizers
// or a grace period it only gets a deletionTimestamp. uid is the object's.
func (o *Op) Delete(options *metav1.DeleteOptions) (w Written, uid string, err error) {
	if h := o.Strategy(); h.MayDelete != nil {
		if err := h.MayDelete(o.Info.Name); err != nil {
			return Written{}, "", err
		}
	}
	w, err = o.GuaranteedUpdate(o.Key(), func(cur *mvcc.Version) (Change, error) {
		if cur == nil {
			return Change{}, o.NotFound()
		}
		uid = cur.UID
		if err := o.CheckPreconditions(options, cur); err != nil {
			return Change{}, err
		}
		if err := o.admitDelete(options, cur); err != nil {
			return Change{}, err
		}
		return o.decideDelete(options, cur)
	})
	return w, uid, err
}
