package apiserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/access/fairness"
	"github.com/quorate/quorate/apiserver/controllers"
	"github.com/quorate/quorate/internal/must"
	flowcontrol "k8s.io/api/flowcontrol/v1"
)

const flows = "/apis/flowcontrol.apiserver.k8s.io/v1/"

// newFairEnv is a server with priority and fairness, on which users may do
// everything, and which looks after the objects that configure it.
func newFairEnv(t *testing.T, seats int, change ...func(*apiserver.Config)) *env {
	t.Helper()
	controller := fairness.New(seats, slog.New(slog.DiscardHandler))
	e := newEnv(t, func(c *apiserver.Config) {
		c.Fairness = controller
		c.Authorizer = auth.AuthorizerFunc(func(context.Context, auth.Attributes) (auth.Decision, string, error) {
			return auth.Allow, "", nil
		})
		c.Log = slog.New(slog.DiscardHandler)
		for _, f := range change {
			f(c)
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	stored := fairness.NewView(e.store, slog.New(slog.DiscardHandler))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := controller.Follow(ctx, stored, e.api.Objects().WatchTable); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	e.run(controllers.Config{Controllers: []controllers.Name{controllers.FlowControlController}, FlowControl: stored})
	return e
}

func user(name string) http.Header { return http.Header{"Test-User": {name}} }

// awaitFlow waits until a user's requests are of a FlowSchema, by its uid.
func (e *env) awaitFlow(t *testing.T, name, schema string) (schemaUID, levelUID string) {
	t.Helper()
	must.Await(t, patience, "the flow of "+name, func() string {
		_, answer := e.do(http.MethodGet, flows+"flowschemas/"+schema, nil, "")
		var f flowcontrol.FlowSchema
		if err := json.Unmarshal([]byte(answer), &f); err != nil || f.UID == "" {
			return answer
		}
		w, _ := e.do(http.MethodGet, maps+"/none", user(name), "")
		schemaUID, levelUID = w.Header.Get(flowcontrol.ResponseHeaderMatchedFlowSchemaUID), w.Header.Get(flowcontrol.ResponseHeaderMatchedPriorityLevelConfigurationUID)
		if schemaUID != string(f.UID) || levelUID == "" {
			return fmt.Sprintf("schema %q, level %q; %s has %q", schemaUID, levelUID, schema, f.UID)
		}
		return ""
	})
	return schemaUID, levelUID
}

// TestFlowControlObjects: a cluster has upstream's objects; they are kept as far as
// nobody has taken them over, and say whether their level exists.
func TestFlowControlObjects(t *testing.T) {
	var calls atomic.Int64
	e := newFairEnv(t, 600, func(c *apiserver.Config) {
		// No two times are the same.
		began := time.Now()
		c.Now = func() time.Time { return began.Add(time.Duration(calls.Add(1)) * time.Minute) }
	})
	schema := func(name string) (f flowcontrol.FlowSchema) {
		w, answer := e.do(http.MethodGet, flows+"flowschemas/"+name, nil, "")
		if w.StatusCode == http.StatusNotFound {
			return f
		}
		must.OK(t, json.Unmarshal([]byte(answer), &f))
		return f
	}
	must.Await(t, patience, "the initial objects", func() string {
		var levels flowcontrol.PriorityLevelConfigurationList
		var schemas flowcontrol.FlowSchemaList
		_, answer := e.do(http.MethodGet, flows+"prioritylevelconfigurations", nil, "")
		must.OK(t, json.Unmarshal([]byte(answer), &levels))
		_, answer = e.do(http.MethodGet, flows+"flowschemas", nil, "")
		must.OK(t, json.Unmarshal([]byte(answer), &schemas))
		if len(levels.Items) != 8 || len(schemas.Items) != 11 {
			return fmt.Sprintf("%d levels, %d schemas", len(levels.Items), len(schemas.Items))
		}
		for _, f := range schemas.Items {
			if f.Annotations[flowcontrol.AutoUpdateAnnotationKey] != "true" {
				return f.Name + " has no annotation"
			}
			if len(f.Status.Conditions) != 1 || f.Status.Conditions[0].Status != flowcontrol.ConditionFalse || f.Status.Conditions[0].Reason != "Found" {
				return fmt.Sprintf("%s: %+v", f.Name, f.Status.Conditions)
			}
		}
		return ""
	})
	merge := http.Header{"Content-Type": {"application/merge-patch+json"}}
	patch := func(name, body string) {
		t.Helper()
		if w, answer := e.do(http.MethodPatch, flows+"flowschemas/"+name, merge, body); w.StatusCode != 200 {
			t.Fatal(answer)
		}
	}
	precedence := func(name string, want int32) func() string {
		return func() string {
			if f := schema(name); f.Spec.MatchingPrecedence != want {
				return fmt.Sprintf("%s: precedence %d, want %d", name, f.Spec.MatchingPrecedence, want)
			}
			return ""
		}
	}
	// Kept: its annotation says so.
	patch("probes", `{"spec":{"matchingPrecedence":7}}`)
	must.Await(t, patience, "a spec that is kept", precedence("probes", 2))
	// Left alone: its annotation says so.
	patch("global-default", `{"metadata":{"annotations":{"apf.kubernetes.io/autoupdate-spec":"false"}},"spec":{"matchingPrecedence":9800}}`)
	// Nobody changes what is mandatory.
	if w, answer := e.do(http.MethodPatch, flows+"flowschemas/catch-all", merge, `{"spec":{"matchingPrecedence":9999}}`); w.StatusCode != 422 || !strings.Contains(answer, "must equal the fixed value") {
		t.Errorf("%d %s", w.StatusCode, answer)
	}
	if wrong := precedence("global-default", 9800)(); wrong != "" {
		t.Error(wrong)
	}
	// Made again.
	if w, answer := e.do(http.MethodDelete, flows+"flowschemas/probes", nil, ""); w.StatusCode != 200 {
		t.Fatal(answer)
	}
	must.Await(t, patience, "an object that was deleted", precedence("probes", 2))
	// Dangling.
	body := `{"metadata":{"name":"mine"},"spec":{"matchingPrecedence":50,"priorityLevelConfiguration":{"name":"none"}}}`
	if w, answer := e.do(http.MethodPost, flows+"flowschemas", nil, body); w.StatusCode != 201 {
		t.Fatal(answer)
	}
	must.Await(t, patience, "a level that does not exist", func() string {
		f := schema("mine")
		if len(f.Status.Conditions) != 1 || f.Status.Conditions[0].Status != flowcontrol.ConditionTrue || f.Status.Conditions[0].Reason != "NotFound" {
			return fmt.Sprintf("%+v", f.Status.Conditions)
		}
		return ""
	})
	// Another message is no transition; another status is.
	since := schema("mine").Status.Conditions[0].LastTransitionTime
	for _, level := range []struct {
		name  string
		moves bool
	}{{"neither", false}, {"exempt", true}} {
		patch("mine", fmt.Sprintf(`{"spec":{"priorityLevelConfiguration":{"name":%q}}}`, level.name))
		must.Await(t, patience, "the condition about "+level.name, func() string {
			c := schema("mine").Status.Conditions[0]
			if !strings.Contains(c.Message, level.name) {
				return c.Message
			}
			if moved := !c.LastTransitionTime.Equal(&since); moved != level.moves {
				t.Errorf("%s: lastTransitionTime was %v and is %v", c.Message, since, c.LastTransitionTime)
			}
			return ""
		})
	}
}

// narrow is a level with one seat and no queues, for the user narrow.
func (e *env) narrow(t *testing.T) (schemaUID, levelUID string) {
	t.Helper()
	for path, body := range map[string]string{
		"prioritylevelconfigurations": `{"metadata":{"name":"narrow"},"spec":{"type":"Limited","limited":{"nominalConcurrencyShares":1,"borrowingLimitPercent":0,"limitResponse":{"type":"Reject"}}}}`,
		"flowschemas": `{"metadata":{"name":"narrow"},"spec":{"matchingPrecedence":50,"priorityLevelConfiguration":{"name":"narrow"},
			"distinguisherMethod":{"type":"ByUser"},"rules":[{"subjects":[{"kind":"User","user":{"name":"narrow"}}],
			"resourceRules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"],"namespaces":["*"],"clusterScope":true}]}]}}`,
	} {
		if w, answer := e.do(http.MethodPost, flows+path, nil, body); w.StatusCode != 201 {
			t.Fatal(answer)
		}
	}
	return e.awaitFlow(t, "narrow", "narrow")
}

// TestPriorityLevel: a level that a user made bounds whom it is for and nobody
// else; answers say which level it was, refusals too.
func TestPriorityLevel(t *testing.T) {
	e := newFairEnv(t, 100)
	schemaUID, levelUID := e.narrow(t)
	// A body that does not come holds the one seat.
	body, send := io.Pipe()
	defer send.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.http.URL+maps, body)
	must.OK(t, err)
	r.Header = user("narrow")
	r.Header.Set("Content-Type", "application/json")
	created := make(chan int, 1)
	go func() {
		w, err := e.http.Client().Do(r)
		if err != nil {
			created <- 0
			return
		}
		w.Body.Close()
		created <- w.StatusCode
	}()
	if _, err := send.Write([]byte(`{"metadata":{"name":"slow"`)); err != nil {
		t.Fatal(err)
	}
	// A body that stops coming would give the seat back.
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			case <-time.After(5 * time.Millisecond):
				_, _ = send.Write([]byte{' '})
			}
		}
	}()
	must.Await(t, patience, "the seat is taken", func() string {
		w, answer := e.do(http.MethodGet, maps, user("narrow"), "")
		if w.StatusCode != http.StatusTooManyRequests {
			return w.Status
		}
		for name, want := range map[string]string{
			"Retry-After": "1", "Content-Type": "text/plain; charset=utf-8",
			flowcontrol.ResponseHeaderMatchedFlowSchemaUID:                 schemaUID,
			flowcontrol.ResponseHeaderMatchedPriorityLevelConfigurationUID: levelUID,
		} {
			if got := w.Header.Get(name); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		if answer != "Too many requests, please try again later.\n" {
			t.Errorf("%q", answer)
		}
		return ""
	})
	for _, other := range []http.Header{nil, user("other")} {
		if w, answer := e.do(http.MethodGet, maps, other, ""); w.StatusCode != http.StatusOK || w.Header.Get(flowcontrol.ResponseHeaderMatchedFlowSchemaUID) == schemaUID {
			t.Errorf("another user: %d %s", w.StatusCode, answer)
		}
	}
	close(end)
	<-ended
	if _, err := send.Write([]byte(`}}`)); err != nil {
		t.Fatal(err)
	}
	send.Close()
	if code := <-created; code != http.StatusCreated {
		t.Errorf("the request that held the seat: %d", code)
	}
	if w, answer := e.do(http.MethodGet, maps, user("narrow"), ""); w.StatusCode != http.StatusOK {
		t.Errorf("%d %s", w.StatusCode, answer)
	}
}

// TestWatchGivesUpItsSeat: watches that have begun take no place from others.
func TestWatchGivesUpItsSeat(t *testing.T) {
	e := newFairEnv(t, 100)
	e.narrow(t)
	for range 5 {
		ctx, cancel := context.WithCancel(context.Background())
		t.Cleanup(cancel)
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, e.http.URL+maps+"?watch=1&allowWatchBookmarks=true", nil)
		must.OK(t, err)
		r.Header = user("narrow")
		must.Await(t, patience, "a watch begins", func() string {
			w, err := e.http.Client().Do(r)
			must.OK(t, err)
			t.Cleanup(func() { w.Body.Close() })
			if w.StatusCode != http.StatusOK {
				return w.Status
			}
			return ""
		})
	}
	must.Await(t, patience, "a read", func() string {
		if w, answer := e.do(http.MethodGet, maps, user("narrow"), ""); w.StatusCode != http.StatusOK {
			return answer
		}
		return ""
	})
}

// TestFlowHeaders: every answer behind authentication names its flow, whatever it
// says.
func TestFlowHeaders(t *testing.T) {
	e := newFairEnv(t, 600)
	e.awaitFlow(t, "alice", "global-default")
	for _, row := range []struct {
		method, path string
		header       http.Header
		code         int
	}{
		{http.MethodGet, maps, user("alice"), 200},
		{http.MethodGet, maps + "/none", user("alice"), 404},
		{http.MethodGet, "/nothing", user("alice"), 404},
		{http.MethodPost, maps, user("alice"), 400},
		{http.MethodGet, maps, user(auth.Anonymous), 200},
	} {
		w, answer := e.do(row.method, row.path, row.header, "")
		if row.header.Get("Test-User") != auth.Anonymous && w.StatusCode != row.code && !strings.HasPrefix(row.path, "/nothing") {
			t.Errorf("%s %s: %d %s", row.method, row.path, w.StatusCode, answer)
		}
		if w.Header.Get(flowcontrol.ResponseHeaderMatchedFlowSchemaUID) == "" || w.Header.Get(flowcontrol.ResponseHeaderMatchedPriorityLevelConfigurationUID) == "" {
			t.Errorf("%s %s as %s: %v", row.method, row.path, row.header.Get("Test-User"), w.Header)
		}
	}
	w, _ := e.do(http.MethodGet, maps, http.Header{"Test-Unauthorized": {"1"}}, "")
	if w.StatusCode != 401 || w.Header.Get(flowcontrol.ResponseHeaderMatchedFlowSchemaUID) != "" {
		t.Errorf("%d %v: who is nobody has no flow", w.StatusCode, w.Header)
	}
}
