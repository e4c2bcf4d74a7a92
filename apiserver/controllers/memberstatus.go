package controllers

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/apiserver/types/quoratev1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// What the objects of members say follows from what the leader sees, and from what they said before: functions without a
// clock and without the store.

// memberNames are the names of the members' objects, by id: their own names in lower case, as far as objects can be called so.
// Of two members with one name the one that has the object keeps it, and else the lower id gets it; the other is called by its
// id, as is one without a name, and one whose name an object has that somebody else holds: held says so of names.
func memberNames(seen []MemberSeen, has map[string]*storedMember, held map[string]bool) map[string]string {
	wanted, out, taken := map[string]string{}, map[string]string{}, map[string]bool{}
	for _, m := range seen {
		wanted[m.ID] = m.ID
		if name := strings.ToLower(m.Name); len(validation.IsDNS1123Subdomain(name)) == 0 {
			wanted[m.ID] = name
		}
		taken[m.ID] = true // nobody else's name
	}
	for name, is := range held {
		taken[name] = taken[name] || is
	}
	for _, m := range seen {
		if s := has[m.ID]; s != nil && s.Name == wanted[m.ID] {
			out[m.ID], taken[s.Name] = s.Name, true
		}
	}
	for _, m := range slices.SortedFunc(slices.Values(seen), func(a, b MemberSeen) int { return cmp.Compare(a.ID, b.ID) }) {
		switch name := wanted[m.ID]; {
		case out[m.ID] != "":
		case taken[name]:
			out[m.ID] = m.ID
		default:
			out[m.ID], taken[name] = name, true
		}
	}
	return out
}

// nextMember is the status of a member as it is seen; old is the one before, nil for a new object.
func nextMember(old *quoratev1.MemberStatus, m MemberSeen, now time.Time) quoratev1.MemberStatus {
	next := quoratev1.MemberStatus{
		ID: m.ID, Name: m.Name, Role: roleOf(m), PeerAddress: m.PeerAddress, APIAddress: m.APIAddress,
		Version: m.Version, FeatureVersion: m.FeatureVersion,
	}
	if old != nil {
		// What one that does not answer has said before holds.
		next.Name, next.APIAddress = cmp.Or(next.Name, old.Name), cmp.Or(next.APIAddress, old.APIAddress)
		next.Version, next.FeatureVersion = cmp.Or(next.Version, old.Version), cmp.Or(next.FeatureVersion, old.FeatureVersion)
		next.Conditions = slices.Clone(old.Conditions)
	}
	set := func(kind string, status bool, reason, message string) {
		c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(now)}
		if status {
			c.Status = metav1.ConditionTrue
		}
		// The words for one reason may have numbers that always change.
		if was := meta.FindStatusCondition(next.Conditions, kind); was != nil && was.Status == c.Status && was.Reason == c.Reason {
			return
		}
		meta.SetStatusCondition(&next.Conditions, c)
	}
	if m.Down == "" {
		set(quoratev1.Ready, true, "Answers", "it answers, follows the leader and is not far behind")
	} else {
		set(quoratev1.Ready, false, m.Down, m.Why)
	}
	if m.Voter {
		set(quoratev1.VoterCondition, true, "HasVote", "it counts for the majority")
	} else {
		set(quoratev1.VoterCondition, false, "HasNoVote", "it serves reads and watches, and takes no part in quorums")
	}
	for _, c := range []struct{ kind, reason, found string }{
		{quoratev1.LostEntries, "MustBeReplaced", m.LostEntries},
		{quoratev1.WrongState, "MustBeReplaced", m.WrongState},
		{quoratev1.DiskSpaceLow, diskReasons[m.DiskSpace], diskWords(m.DiskSpace)},
	} {
		if c.found != "" {
			set(c.kind, true, c.reason, c.found)
		} else if c.kind != quoratev1.DiskSpaceLow || m.Version != "" { // one that does not answer has no more room than before
			meta.RemoveStatusCondition(&next.Conditions, c.kind)
		}
	}
	sortConditions(next.Conditions)
	return next
}

func sortConditions(list []metav1.Condition) {
	slices.SortFunc(list, func(a, b metav1.Condition) int { return cmp.Compare(a.Type, b.Type) })
}

// diskReasons are those of the condition DiskSpaceLow. A disk may change between low and full all the time.
var diskReasons = map[string]string{"reserve": "OnReserve", "low": "NoRoom", "full": "NoRoom", "snapshot": "NoRoomForSnapshot", "read-only": "ReadOnly"}

// diskWords says what a disk lacks.
func diskWords(space string) string {
	switch space {
	case "":
		return ""
	case "reserve":
		return "its file system has no room beside what the node has reserved for itself: make room there"
	case "low":
		return "its disk has no room for what makes objects larger: make room there"
	case "snapshot":
		return "its disk has no room for the snapshot that it needs to follow: make room there"
	case "read-only":
		return "its file system takes no writes: mend it, and start the node again"
	}
	return "its disk is " + space + ": make room there"
}

func roleOf(m MemberSeen) quoratev1.Role {
	switch {
	case m.Leader:
		return quoratev1.Leader
	case m.Voter:
		return quoratev1.Voter
	}
	return quoratev1.Nonvoter
}

// sameMember reports whether a status need not be written.
func sameMember(a, b *quoratev1.MemberStatus) bool { return reflect.DeepEqual(a, b) }

// readyDelay is for how long a member is otherwise ready than its object says before that is written: what passes costs no write.
const readyDelay = 5 * time.Second

// progress is since when a member has applied nothing.
type progress struct {
	applied uint64
	since   time.Time
}

// seen is the progress by what is seen of a member now. One that has lacked entries for lagDelay, and has applied none meanwhile, is not ready: it cannot
// write its log, or waits for a snapshot.
func (p progress) seen(m *MemberSeen, now time.Time) progress {
	if m.Down != "" || m.Leader || m.Lag == 0 || m.Applied != p.applied || p.since.IsZero() {
		return progress{m.Applied, now}
	}
	if now.Sub(p.since) >= lagDelay {
		m.Down, m.Why = "Lagging", fmt.Sprintf("it lacks %d entries, and takes none", m.Lag)
	}
	return p
}

// pendingReady is what may become of the condition Ready.
type pendingReady struct {
	down  string // that is seen
	since time.Time
}

// held is a member as its object is to show it: with another readiness than it shows only when that has been seen for readyDelay.
// pending: it may be another in a moment.
func (p *pendingReady) held(conditions []metav1.Condition, m MemberSeen, now time.Time) (shown MemberSeen, pending bool) {
	c := meta.FindStatusCondition(conditions, quoratev1.Ready)
	if c == nil {
		return m, false
	}
	shows := c.Reason
	if c.Status == metav1.ConditionTrue {
		shows = ""
	}
	if m.Down == shows {
		*p = pendingReady{}
		return m, false
	}
	// That one reason follows another makes it no readier.
	if p.since.IsZero() || (m.Down == "") != (p.down == "") || shows != "" && m.Down != p.down {
		p.since = now
	}
	p.down = m.Down
	if now.Sub(p.since) < readyDelay {
		m.Down, m.Why = shows, c.Message
		return m, true
	}
	*p = pendingReady{}
	return m, false
}

// nextRemovals are the members that may be removed, of those that were declared gone, in the order in which to try: those without a
// vote, those that do not answer, and the leader last, which hands over first. blocked are those that cannot be, because nobody would
// be left.
func nextRemovals(seen, gone []MemberSeen) (remove, blocked []MemberSeen) {
	stays := slices.ContainsFunc(seen, func(m MemberSeen) bool {
		return m.Voter && !slices.ContainsFunc(gone, func(g MemberSeen) bool { return g.ID == m.ID })
	})
	for _, m := range gone {
		if m.Voter && !stays {
			blocked = append(blocked, m)
		} else {
			remove = append(remove, m)
		}
	}
	rank := func(m MemberSeen) int {
		switch {
		case !m.Voter:
			return 0
		case m.Down != "":
			return 1
		case !m.Leader:
			return 2
		}
		return 3
	}
	slices.SortStableFunc(remove, func(a, b MemberSeen) int { return cmp.Or(rank(a)-rank(b), cmp.Compare(a.ID, b.ID)) })
	return remove, blocked
}

// eventText is what an event says.
type eventText struct{ kind, reason, message string }

// Events that are no change of a status.
const (
	joinedEvent  = "Joined"
	removedEvent = "Removed"
)

// eventOf is what is told of a member that came or went.
func eventOf(reason string, m *quoratev1.Member) eventText {
	e := eventText{kind: corev1.EventTypeNormal, reason: reason}
	switch ready := meta.FindStatusCondition(m.Status.Conditions, quoratev1.Ready); {
	case reason == joinedEvent:
		e.message = fmt.Sprintf("Node %s at %s is a member, without a vote as yet", m.Status.ID, m.Status.PeerAddress)
		if m.Status.Role != quoratev1.Nonvoter {
			e.message = fmt.Sprintf("Node %s at %s is a member", m.Status.ID, m.Status.PeerAddress)
		}
	case ready != nil && ready.Status == metav1.ConditionFalse:
		e.message = fmt.Sprintf("Node %s is no member any more; it had not been ready since %s", m.Status.ID, ready.LastTransitionTime.UTC().Format(time.RFC3339))
	default:
		e.message = fmt.Sprintf("Node %s is no member any more", m.Status.ID)
	}
	return e
}

// changesOf is what is told of a member whose status was another one.
func changesOf(was *quoratev1.MemberStatus, m *quoratev1.Member) (out []eventText) {
	add := func(kind, reason, message string) { out = append(out, eventText{kind, reason, message}) }
	now := &m.Status
	voted, votes := was.Role != quoratev1.Nonvoter, now.Role != quoratev1.Nonvoter
	switch {
	case votes && !voted:
		add(corev1.EventTypeNormal, "Promoted", "It has a vote")
	case voted && !votes:
		add(corev1.EventTypeNormal, "Demoted", "It has no vote any more")
	}
	if now.Role == quoratev1.Leader && was.Role != quoratev1.Leader {
		add(corev1.EventTypeNormal, "LeadershipMoved", "It leads the cluster")
	}
	for _, c := range now.Conditions {
		before := meta.FindStatusCondition(was.Conditions, c.Type)
		changed := before == nil || before.Status != c.Status
		switch {
		case c.Type == quoratev1.Ready && changed && c.Status == metav1.ConditionTrue:
			add(corev1.EventTypeNormal, "Ready", c.Message)
		case c.Type == quoratev1.Ready && changed:
			add(corev1.EventTypeWarning, "NotReady", c.Reason+": "+c.Message)
		case c.Type == quoratev1.RemovalBlocked && (changed || before.Message != c.Message),
			(c.Type == quoratev1.LostEntries || c.Type == quoratev1.WrongState) && changed,
			c.Type == quoratev1.DiskSpaceLow && (changed || before.Reason != c.Reason):
			add(corev1.EventTypeWarning, c.Type, c.Message)
		}
	}
	return out
}
