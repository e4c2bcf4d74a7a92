package node

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/admission/static"
	"github.com/quorate/quorate/apiserver/admission/suspension"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/raftstore"
)

// admissionAPI is what this node knows of the rules of admission, and which of them are suspended.
type admissionAPI struct {
	node        string // its name
	log         *slog.Logger
	store       *raftstore.Store
	suspensions *suspension.View
	fromFiles   []func() []static.Rule // what files say now, for each plugin
}

// routes serve `quorate admission`.
//
//	GET    admission                        AdmissionReport of this node
//	POST   admission/suspensions            SuspensionRequest -> Suspension
//	DELETE admission/suspensions/{resource}/{name}
func (a *admissionAPI) routes() []membership.AdminRoute {
	return []membership.AdminRoute{
		{Pattern: "GET admission", Serve: func(context.Context, *http.Request) (any, error) { return a.report() }},
		{Pattern: "POST admission/suspensions", Serve: a.suspend},
		{Pattern: "DELETE admission/suspensions/{resource}/{name}", Serve: a.resume},
	}
}

// SuspensionRequest asks for a configuration or a policy not to be asked for a time.
type SuspensionRequest struct {
	// Resource is one of suspension.Kinds, or empty if the name says which one is meant.
	Resource string `json:"resource,omitempty"`
	Name     string `json:"name"`
	Seconds  int64  `json:"seconds"`
}

// onlyMasters refuses everybody else, with membership.ErrForbidden: who may suspend the cluster's rules has none.
// It returns the caller's name, as userName does.
func onlyMasters(ctx context.Context) (string, error) {
	u := auth.UserFrom(ctx)
	if u == nil || !u.InGroup(auth.Masters) {
		return "", fmt.Errorf("%w: only members of the group %s may suspend admission", membership.ErrForbidden, auth.Masters)
	}
	return userName(ctx), nil
}

func (a *admissionAPI) suspend(ctx context.Context, r *http.Request) (any, error) {
	by, err := onlyMasters(ctx)
	if err != nil {
		return nil, err
	}
	var req SuspensionRequest
	if err := membership.ReadJSON(r, &req); err != nil {
		return nil, err
	}
	if req.Seconds < 1 || req.Seconds > int64(suspension.Max/time.Second) {
		return nil, fmt.Errorf("%w: seconds %d: must be from 1 to %d", membership.ErrBadRequest, req.Seconds, suspension.Max/time.Second)
	}
	s, err := a.suspendable(req.Resource, req.Name)
	if err != nil {
		return nil, err
	}
	s.By = by
	s.Since, s.Until = period(time.Now(), time.Duration(req.Seconds)*time.Second)
	value, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	if err := (membershipKV{a.store}).Put(ctx, suspension.Table(), s.Key(), value, false); err != nil {
		return nil, err
	}
	if v := suspension.ObjectOf(a.store.State(), s.Resource, s.Name); v == nil || v.UID != s.UID {
		return nil, fmt.Errorf("%w: %s was deleted or replaced at the same time; run it again: that is safe", membership.ErrConflict, s.Key())
	}
	a.log.Warn("admission: "+s.String(), "resource", s.Resource, "name", s.Name)
	a.forgetEnded(ctx)
	return s, nil
}

// period is from when until when something is suspended that is suspended now for d: in whole
// seconds, and never for less.
func period(now time.Time, d time.Duration) (since, until time.Time) {
	now = now.UTC()
	return now.Truncate(time.Second), now.Add(d + time.Second - 1).Truncate(time.Second)
}

func (a *admissionAPI) resume(ctx context.Context, r *http.Request) (any, error) {
	by, err := onlyMasters(ctx)
	if err != nil {
		return nil, err
	}
	s := &suspension.Suspension{Resource: r.PathValue("resource"), Name: r.PathValue("name")}
	if resource := s.Resource; resource == "-" || resource == "" {
		for _, active := range a.suspensions.Active() {
			if active.Name == s.Name {
				s.Resource = active.Resource
			}
		}
	}
	if !a.suspensions.Suspended(s.Resource, s.Name) {
		return nil, fmt.Errorf("%w: %s is not suspended", membership.ErrNotFound, s.Name)
	}
	if err := (membershipKV{a.store}).Delete(ctx, suspension.Table(), s.Key()); err != nil {
		return nil, err
	}
	a.log.Info("admission: a suspension was ended", "resource", s.Resource, "name", s.Name, "user", by)
	return s, nil
}

// forgetEnded deletes the rows of suspensions that have ended. That it fails costs nothing:
// they have no effect.
func (a *admissionAPI) forgetEnded(ctx context.Context) {
	for _, s := range a.suspensions.Stored() {
		if time.Now().After(s.Until.Add(time.Minute)) { // also by the clocks of other nodes
			_ = (membershipKV{a.store}).Delete(ctx, suspension.Table(), s.Key())
		}
	}
}

// suspendable finds what is meant by a name, with its uid. Errors: membership.ErrNotFound, ErrAmbiguous.
func (a *admissionAPI) suspendable(resource, name string) (*suspension.Suspension, error) {
	if resource != "" && !slices.Contains(suspension.Kinds[:], resource) {
		return nil, fmt.Errorf("%w: %.40q cannot be suspended: only %s can", membership.ErrBadRequest, resource, strings.Join(suspension.Kinds[:], ", "))
	}
	state := a.store.State()
	var found []*suspension.Suspension
	for _, kind := range suspension.Kinds {
		if resource != "" && resource != kind {
			continue
		}
		if v := suspension.ObjectOf(state, kind, name); v != nil {
			found = append(found, &suspension.Suspension{Resource: kind, Name: name, UID: v.UID})
		}
	}
	for _, list := range a.fromFiles {
		if len(found) == 0 && slices.ContainsFunc(list(), func(r static.Rule) bool { return r.Configuration == name }) {
			return nil, fmt.Errorf("%w: %.80q is from a file of each node, which the API cannot suspend: move the file out of its directory", membership.ErrRefused, name)
		}
	}
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("%w: there is no webhook configuration and no admission policy %.80q", membership.ErrNotFound, name)
	case 1:
		return found[0], nil
	}
	keys := make([]string, len(found))
	for i, s := range found {
		keys[i] = s.Key()
	}
	return nil, fmt.Errorf("%w: name one of %s", membership.ErrAmbiguous, strings.Join(keys, ", "))
}

// notices are what operators are told of in the status of the cluster.
func (n *Node) notices(members []membership.MemberStatus) []string {
	_, disks := n.store.Disk()
	out := append(storageNotice(n.store.Storage()), diskNotice(disks, members)...)
	if n.admission == nil {
		return out
	}
	for _, s := range n.admission.suspensions.Active() {
		out = append(out, "admission: "+s.String())
	}
	return out
}
