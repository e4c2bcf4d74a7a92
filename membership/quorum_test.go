package membership

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
)

// TestMissingOf: who is missing for a majority, by name and address.
func TestMissingOf(t *testing.T) {
	// A member: name, v for a voter, ! for one that does not answer, * for one that leads.
	for _, c := range []struct{ members, want string }{
		{"av bv cv", ""},
		{"av bv cv!", ""},
		{"av bv! cv!", "of 3 voters a answers, and 2 are needed; b at host-b:7443: dead; c at host-c:7443: dead."},
		{"av* bv! cv!", ""}, // it hears them, or will soon know better
		{"av! bv! cv!", "of 3 voters none answers, and 2 are needed; "},
		{"av bv! c d", "of 2 voters a answers, and 2 are needed; b at host-b:7443: dead."}, // others make no quorum
		{"av bv cv! dv! ev!", "of 5 voters a, b answer, and 3 are needed; c at host-c:7443: dead; d"},
		{"av", ""},
		{"", ""},
	} {
		var members []*proto.Member
		answers := map[proto.NodeID]statusAnswer{}
		for word := range strings.FieldsSeq(c.members) {
			name := word[:1]
			members = append(members, &proto.Member{NodeId: "id-" + name, Name: name, PeerAddress: "host-" + name + ":7443", Voter: strings.Contains(word, "v")})
			a := statusAnswer{status: &proto.NodeStatus{Role: "candidate"}}
			if strings.Contains(word, "*") {
				a.status.Role = "leader"
			}
			if strings.Contains(word, "!") {
				a = statusAnswer{err: errors.New("dead")}
			}
			answers[proto.NodeID("id-"+name)] = a
		}
		st := mergeStatus(members, answers)
		if got := st.missing(); (got == "") != (c.want == "") || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q, want %q", c.members, got, c.want)
		}
	}
	if got := noAnswer("connection refused at h:1", "h:1"); got != ": connection refused at h:1" {
		t.Errorf("an address is said twice: %q", got)
	}
}

// TestChangeWithoutQuorum: a change is given up soon, with who is missing, and not while
// a majority can still elect a leader.
func TestChangeWithoutQuorum(t *testing.T) {
	t.Parallel()
	w, all := three(t)
	c := client(t, all[0])
	w.stop(all[1])
	w.stop(all[2])
	for what, change := range map[string]func() error{
		"promote":  func() error { _, err := c.Promote(t.Context(), all[1].name, false); return err },
		"remove":   func() error { _, err := c.Remove(t.Context(), all[1].name, true, KeepTokens{}); return err },
		"transfer": func() error { _, err := c.Transfer(t.Context(), ""); return err },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			err := change()
			if !errors.Is(err, ErrNoQuorum) {
				t.Fatalf("%v", err)
			}
			for _, want := range []string{"of 3 voters " + all[0].name + " answers, and 2 are needed", all[1].name + ": connection refused at " + all[1].address, all[2].name + ": ", "quorate status"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("it does not say %q: %v", want, err)
				}
			}
		})
	}
}

// TestNoQuorum: a request that has found no leader is told who is missing, by name, as soon as it is known, and
// requests need not wait for a leader from then on until a majority answers.
func TestNoQuorum(t *testing.T) {
	t.Parallel()
	w, all := three(t)
	leader, follower := all[0].node, all[1].node
	if why := follower.NoQuorum(t.Context(), true); why != "" || follower.QuorumIsLost() {
		t.Fatalf("with a quorum: %q, lost: %v", why, follower.QuorumIsLost())
	}
	w.stop(all[2])
	if why := leader.NoQuorum(t.Context(), true); why != "" {
		t.Errorf("with two of three: %q", why)
	}
	w.stop(all[0])
	want := "of 3 voters " + all[1].name + " answers, and 2 are needed; "
	w.await("who is missing is known", func() bool { return strings.HasPrefix(follower.NoQuorum(t.Context(), true), want) })
	if why := follower.NoQuorum(t.Context(), true); !strings.Contains(why, all[0].name+" does not answer") || strings.Contains(why, all[0].address) {
		t.Errorf("it is %q", why)
	}
	if !follower.QuorumIsLost() {
		t.Error("requests wait for a leader that nobody can elect")
	}
	w.run([]string{"start", all[0].name, "expect=3", "join=a,b,c"})
	w.await("there is a quorum", func() bool { return !follower.QuorumIsLost() && follower.NoQuorum(t.Context(), true) == "" })
}

// TestAnswersOfSeveralServers: what a client makes of servers that say different things,
// or nothing. Each server is what it answers to a change and to a question.
func TestAnswersOfSeveralServers(t *testing.T) {
	t.Parallel()
	noQuorum := func(w http.ResponseWriter) { answer(w, nil, fmt.Errorf("%w: cut off", ErrNoQuorum)) }
	noLeader := func(w http.ResponseWriter) { answer(w, nil, ErrNoLeader) }
	refused := func(w http.ResponseWriter) { answer(w, nil, fmt.Errorf("%w: no", ErrRefused)) }
	member := func(w http.ResponseWriter) { answer(w, MemberList{ClusterID: "c"}, nil) }
	status := func(quorum bool) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { answer(w, ClusterStatus{Quorum: quorum}, nil) }
	}
	type server struct {
		change, status func(http.ResponseWriter)
		frozen         bool
	}
	for _, c := range []struct {
		name    string
		servers []server
		want    error
	}{
		{"the cut off one first", []server{{change: noQuorum, status: status(false)}, {change: member, status: status(true)}}, nil},
		{"behind one that knows no leader", []server{{change: noLeader, status: status(false)}, {change: member, status: status(true)}}, nil},
		{"none has one", []server{{change: noQuorum, status: status(false)}, {change: refused, status: status(false)}}, ErrNoQuorum},
		{"the other is frozen", []server{{change: noQuorum, status: status(false)}, {frozen: true}}, ErrNoQuorum},
		{"an answer is an answer", []server{{change: refused, status: status(true)}, {change: member, status: status(true)}}, ErrRefused},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := &AdminClient{http: &http.Client{}}
			for _, s := range c.servers {
				if s.frozen {
					a.servers = append(a.servers, "http://"+frozenAddress(t))
					continue
				}
				h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodGet {
						s.status(w)
						return
					}
					s.change(w)
				}))
				t.Cleanup(h.Close)
				a.servers = append(a.servers, h.URL)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := a.Transfer(ctx, "")
			if c.want == nil && err != nil || !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

// TestKubernetesWithoutQuorum: what the Kubernetes API answers without a leader is said as the admin API
// says it: who is missing, unless a majority is there or another server has one.
func TestKubernetesWithoutQuorum(t *testing.T) {
	t.Parallel()
	const try, maybe = `{"reason":"ServerTimeout","message":"please try again"}`, `{"reason":"Timeout","message":"the outcome is unknown"}`
	rows := func(dead string, voters ...string) ClusterStatus {
		st := ClusterStatus{Voters: len(voters)}
		for _, name := range voters {
			m := MemberStatus{MemberInfo: MemberInfo{Name: name, PeerAddress: "host-" + name + ":7443", Voter: true}, Role: "candidate"}
			if strings.Contains(dead, name) {
				m.Role, m.Error = "", "dead"
			} else {
				st.LiveVoters++
			}
			st.Members = append(st.Members, m)
		}
		st.Quorum = st.LiveVoters > st.Voters/2
		return st
	}
	cutOff, whole := rows("bc", "a", "b", "c"), rows("c", "a", "b", "c")
	why := "of 3 voters a answers, and 2 are needed; b at host-b:7443: dead; c at host-c:7443: dead. "
	type server struct {
		code   int
		body   string
		status ClusterStatus
	}
	for _, x := range []struct {
		name    string
		servers []server
		want    error
		text    string
	}{
		{"nobody else", []server{{500, try, cutOff}}, ErrNoQuorum, "the cluster has no quorum: " + why},
		{"both cut off", []server{{500, try, cutOff}, {500, try, cutOff}}, ErrNoQuorum, "the cluster has no quorum: " + why},
		{"it may be done", []server{{504, maybe, cutOff}}, ErrNoQuorum, "may have been carried out"},
		{"the first is cut off", []server{{500, try, cutOff}, {200, `{"is":"done"}`, whole}}, nil, ""},
		{"the first waits for a cluster", []server{{500, try, ClusterStatus{AnsweredBy: "x", Waiting: "for two", Members: []MemberStatus{{MemberInfo: MemberInfo{ID: "x", Name: "a"}}}}}},
			ErrNoQuorum, "a waits for a cluster: for two"},
		{"a change of leader", []server{{500, try, whole}, {200, `{"is":"done"}`, whole}}, nil, ""},
		{"a change of leader, everywhere", []server{{500, try, whole}, {500, try, whole}}, ErrNoLeader, "please try again"},
		{"refused", []server{{403, `{"reason":"Forbidden","message":"no"}`, cutOff}, {200, `{"is":"done"}`, whole}}, ErrForbidden, "no"},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			a := &AdminClient{http: &http.Client{}}
			for _, s := range x.servers {
				asked := make(chan struct{}) // closed when its status was asked for
				first := sync.OnceFunc(func() { close(asked) })
				h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if strings.HasSuffix(r.URL.Path, "/status") {
						first()
						answer(w, s.status, nil)
						return
					}
					if s.code == 500 { // it waits for a leader, and the client looks elsewhere meanwhile
						select {
						case <-asked:
						case <-r.Context().Done():
						}
					}
					w.WriteHeader(s.code)
					_, _ = w.Write([]byte(s.body))
				}))
				t.Cleanup(h.Close)
				a.servers = append(a.servers, h.URL)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			var into map[string]string
			err := a.Kubernetes(ctx, http.MethodPost, "/api/v1/x", map[string]string{}, &into)
			switch {
			case x.text == "":
				if err != nil || into["is"] != "done" {
					t.Errorf("%v, %v", into, err)
				}
			case err == nil || !strings.Contains(err.Error(), x.text) || !errors.Is(err, x.want):
				t.Errorf("%v, want %v: %s", err, x.want, x.text)
			}
		})
	}
}

// TestQuestionsPassFrozenServers: a server that takes connections and says nothing costs a
// second, not the time that an answer may take.
func TestQuestionsPassFrozenServers(t *testing.T) {
	t.Parallel()
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(w, ClusterStatus{Quorum: true}, nil) }))
	t.Cleanup(h.Close)
	a := &AdminClient{http: &http.Client{}, servers: []string{"http://" + frozenAddress(t), h.URL}}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if st, err := a.Status(ctx); err != nil || !st.Quorum {
		t.Errorf("%+v %v", st, err)
	}
	a.servers = []string{"http://127.0.0.1:1", h.URL}
	if st, err := a.Status(ctx); err != nil || !st.Quorum {
		t.Errorf("behind one that refuses: %+v %v", st, err)
	}
	a.servers = []string{"http://127.0.0.1:1", "http://127.0.0.1:1"}
	if _, err := a.Status(ctx); err == nil || !strings.Contains(err.Error(), "none of the 2 nodes answers") {
		t.Errorf("nobody is there: %v", err)
	}
}

// frozenAddress is one whose connections the kernel takes and nobody reads.
func frozenAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}
