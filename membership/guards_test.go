package membership

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/membership/pki"
	"github.com/quorate/quorate/proto"
)

// A member in a guard's table: name, v for a voter, ! for one that does not
// answer, then entries behind and milliseconds since contact.
func parseFacts(t *testing.T, text string) facts {
	t.Helper()
	f := facts{self: "a", health: map[proto.NodeID]probe{}, limits: Limits{}.withDefaults(), now: time.Unix(1000, 0)}
	for word := range strings.FieldsSeq(text) {
		id := proto.NodeID(word[:1])
		s := Server{ID: id, Address: string(id), Voter: strings.Contains(word, "v")}
		p := probe{alive: !strings.Contains(word, "!"), err: "dead", hears: !strings.Contains(word, "?"), contact: 10 * time.Millisecond}
		if strings.Contains(word, "~") {
			p.behind = 251
		}
		if strings.Contains(word, "z") {
			p.contact = 2 * time.Second
		}
		if strings.Contains(word, "n") {
			p.contact = -time.Millisecond
		}
		f.conf.Servers = append(f.conf.Servers, s)
		f.health[id] = p
	}
	return f
}

func TestGuard(t *testing.T) {
	const add, promote, demote, remove, transfer = proto.ChangeKind_CHANGE_ADD, proto.ChangeKind_CHANGE_PROMOTE, proto.ChangeKind_CHANGE_DEMOTE, proto.ChangeKind_CHANGE_REMOVE, proto.ChangeKind_CHANGE_TRANSFER
	// v voter, ! dead, ~ 251 behind, ? follows another leader, z silent for 2 s, n never heard
	for _, c := range []struct {
		facts  string
		kind   proto.ChangeKind
		target proto.NodeID
		force  bool
		refuse string // part of the text; empty: allowed
	}{
		{"av b", promote, "b", false, ""},
		{"av b!", promote, "b", false, "does not answer"},
		{"av b~", promote, "b", false, "entries behind"},
		{"av b?", promote, "b", false, "does not follow"},
		{"av bz", promote, "b", false, "last heard"},
		{"av bn", promote, "b", false, "last heard"},
		{"av b~", promote, "b", true, ""},
		{"av bv! c", promote, "c", false, ""},                               // 2 of 3 live
		{"av bv! cv! dv e", promote, "e", false, ""},                        // 3 of 5 live
		{"av bv! cv! d", promote, "d", false, "4 voters of which 2 answer"}, // no majority before, none after
		{"av bv cv", remove, "c", false, ""},                                //
		{"av bv cv!", remove, "c", false, ""},                               // the dead one goes
		{"av bv cv!", remove, "b", false, "2 voters of which 1 answer"},     // the live one may not
		{"av bv cv!", remove, "b", true, ""},                                //
		{"av bv cv!", demote, "b", false, "2 voters of which 1 answer"},     //
		{"av bv!", remove, "b", false, ""},                                  // down to the leader
		{"av", remove, "a", false, "only voter"},                            //
		{"av", remove, "a", true, "only voter"},                             // not even by force
		{"av b", demote, "a", true, "only voter"},                           //
		{"av bv cv! dv! e", remove, "e", false, ""},                         // non-voters do not count
		{"av bv cv! dv! ev", remove, "d", false, ""},                        //
		{"av bv cv! dv! ev", remove, "e", false, "4 voters of which 2 answer"},
		{"av bv", transfer, "b", false, ""},
		{"av b", transfer, "b", false, "not a voter"},
		{"av b", transfer, "b", true, "not a voter"},
		{"av bv~", transfer, "b", true, "entries behind"},
		{"av bv!", transfer, "b", false, "does not answer"},
		{"av", add, "b", false, ""},
	} {
		f := parseFacts(t, c.facts)
		target, _ := f.conf.Find(c.target)
		err := guard(c.kind, target, f, c.force)
		switch {
		case c.refuse == "" && err != nil:
			t.Errorf("%s: %s %s: %v", c.facts, verb(c.kind), c.target, err)
		case c.refuse != "" && (!errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.refuse)):
			t.Errorf("%s: %s %s: %v, want %q", c.facts, verb(c.kind), c.target, err, c.refuse)
		}
	}
}

// three starts a cluster of three voters and returns its leader first.
func three(t *testing.T) (*world, []*machine) {
	t.Helper()
	w := newWorld(t)
	for _, n := range []string{"a", "b", "c"} {
		w.run(strings.Fields("start " + n + " expect=3 join=a,b,c"))
	}
	w.formed([]string{"a", "b", "c"})
	w.await("all are announced", func() bool {
		l, _ := fakeKV{w.machine("a")}.List(TableMembers)
		return len(l) == 3
	})
	var all []*machine
	for _, n := range []string{"a", "b", "c"} {
		if mc := w.machine(n); mc.node.raft.IsLeader() {
			all = append([]*machine{mc}, all...)
		} else {
			all = append(all, mc)
		}
	}
	return w, all
}

func client(t *testing.T, mc *machine) *AdminClient {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(AdminPath, mc.node.AdminHandler(sameContext))
	mux.Handle(JoinPath, mc.node.JoinHandler())
	s := httptest.NewUnstartedServer(mux)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	serving, _ := mc.cert.ServingCertificate(nil)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{*serving}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: mc.cert.APIRoots()}
	s.StartTLS()
	t.Cleanup(s.Close)
	cert, key := mc.cert.Admin()
	c, err := NewAdminClient(pki.Kubeconfig{Endpoints: []pki.Endpoint{{Name: mc.name, Server: s.URL}}, CA: mc.cert.APICAs(), Cert: cert, Key: key})
	must.OK(t, err)
	t.Cleanup(c.Close)
	return c
}

// Every change goes through a follower, by name.
func TestAdminThroughFollower(t *testing.T) {
	t.Parallel()
	w, all := three(t)
	leader, follower, third := all[0], all[1], all[2]
	c, ctx := client(t, follower), t.Context()

	list, err := c.Members(ctx)
	if err != nil || len(list.Members) != 3 || list.ClusterID == "" {
		t.Fatalf("members: %+v, %v", list, err)
	}
	for _, m := range list.Members {
		if m.Name == "" || m.APIAddress == "" || !m.Voter || m.Leader != (m.ID == leader.id) {
			t.Errorf("member %+v", m)
		}
	}
	if _, err := c.Demote(ctx, third.name, false); err != nil {
		t.Fatal(err)
	}
	if s, _ := leader.now().Find(third.id); s.Voter {
		t.Error("still a voter")
	}
	if leader.node.wantsVote(third.id) {
		t.Error("autopilot would promote what an operator has demoted")
	}
	if _, err := c.Promote(ctx, string(third.id), false); err != nil {
		t.Fatal(err)
	}
	if s, _ := leader.now().Find(third.id); !s.Voter || !leader.node.wantsVote(third.id) {
		t.Error("not promoted")
	}
	if _, err := c.Promote(ctx, "nobody", false); !errors.Is(err, ErrNotFound) {
		t.Errorf("promote nobody: %v", err)
	}
	if _, err := c.Transfer(ctx, third.name); err != nil {
		t.Fatal(err)
	}
	if !third.node.raft.IsLeader() {
		t.Error("leadership was not transferred")
	}
	// The leader hands over before it goes.
	if _, err := c.Remove(ctx, third.name, false, KeepTokens{}); err != nil {
		t.Fatal(err)
	}
	if _, in := follower.now().Find(third.id); in {
		t.Error("still a member")
	}
	// Its id never comes back.
	if err := follower.node.add(ctx, third.node.self()); !errors.Is(err, ErrRemoved) && !errors.Is(err, ErrNotLeader) {
		t.Errorf("a removed node was added: %v", err)
	}
	w.wipe(third, false)
	if err := third.node.askToJoin(ctx, "", follower.address); !errors.Is(err, ErrRemoved) {
		t.Errorf("a removed node may join: %v", err)
	}
	st, err := c.Status(ctx)
	if err != nil || len(st.Members) != 2 || !st.Quorum || st.Leader == "" {
		t.Errorf("status %+v, %v", st, err)
	}
}

// TestAddressOfAnother: a member that says that it is where another one is, is not
// believed, and a new one neither. (What is done when it is there: TestAllMove in test.)
func TestAddressOfAnother(t *testing.T) {
	t.Parallel()
	_, all := three(t)
	leader := all[0]
	for _, row := range []struct {
		id proto.NodeID
		at string
	}{
		{all[1].id, all[2].address},
		{all[2].id, all[1].address},
		{all[1].id, leader.address},
		{leader.id, all[1].address},
		{"somebody-new", all[1].address},
	} {
		self := leader.node.self()
		self.NodeId, self.PeerAddress = string(row.id), row.at
		if err := leader.node.add(t.Context(), self); !errors.Is(err, ErrRefused) {
			t.Errorf("%s at %s: %v", row.id, row.at, err)
		}
	}
	for _, row := range [][2]string{
		{"10.0.0.1:7443", "10.0.0.1:07443"}, {"[fe80::1]:7443", "[fe80::1]:07443"}, {"node-a.example:7443", "node-a.example:07443"},
	} {
		if got := alias(row[0]); got != row[1] {
			t.Errorf("the alias of %s is %s", row[0], got)
		}
	}
}

func TestMinority(t *testing.T) {
	t.Parallel()
	w, all := three(t)
	c := client(t, all[0])
	w.stop(all[1])
	if _, err := c.Remove(t.Context(), all[2].name, false, KeepTokens{}); !errors.Is(err, ErrRefused) {
		t.Errorf("the last live follower was removed: %v", err)
	}
	w.stop(all[2])
	st, err := c.Status(t.Context())
	if err != nil || st.Quorum || st.LiveVoters != 1 || st.Voters != 3 || len(st.Members) != 3 {
		t.Fatalf("status %+v, %v", st, err)
	}
	for _, row := range st.Members {
		if (row.Error == "") != (row.ID == all[0].id) || row.Name == "" {
			t.Errorf("row %+v", row)
		}
	}
	if _, err := c.Transfer(t.Context(), ""); !errors.Is(err, ErrNoQuorum) {
		t.Errorf("transfer in a minority: %v", err)
	}
}

func TestTransferIsNotRepeated(t *testing.T) {
	t.Parallel()
	w, all := three(t)
	leader, x, y := all[0], all[1], all[2]
	set := func(mc *machine, noMove bool, lag uint64) {
		w.mu.Lock()
		defer w.mu.Unlock()
		mc.noMove, mc.lag = noMove, lag
	}
	set(x, true, 100)
	set(y, false, 251) // not caught up
	ctx := t.Context()
	if err := leader.node.Transfer(ctx, x.name); err == nil {
		t.Fatal("the transfer did not fail")
	}
	for range 2 {
		if err := leader.node.Transfer(ctx, x.name); !errors.Is(err, ErrRefused) {
			t.Errorf("second transfer: %v", err)
		}
		if err := leader.node.StepDown(ctx); !errors.Is(err, ErrRefused) {
			t.Errorf("step down: %v", err)
		}
	}
	if x.tries != 1 {
		t.Fatalf("%d transfers reached the follower", x.tries)
	}
	set(x, false, 99) // its log has moved
	if err := leader.node.StepDown(ctx); err != nil || !x.node.raft.IsLeader() {
		t.Errorf("after it has moved: %v", err)
	}
}

// liar answers with another node's id.
type liar struct {
	proto.UnimplementedMembershipServer
	as *proto.Member
}

func (l liar) Hello(context.Context, *proto.HelloRequest) (*proto.HelloResponse, error) {
	return &proto.HelloResponse{Self: l.as}, nil
}

// TestIsAtIsProven: who is at an address is what the certificate says, whatever the node
// says; and the connection for that question does not stay.
func TestIsAtIsProven(t *testing.T) {
	t.Parallel()
	w, all := three(t)
	leader, second, third := all[0], all[1], all[2]
	m := leader.node
	for _, x := range []struct {
		id      proto.NodeID
		address string
		want    bool
	}{{second.id, second.address, true}, {third.id, second.address, false}} {
		if got := m.isAt(t.Context(), x.id, x.address, m.opt.CallTimeout); got != x.want {
			t.Errorf("%s is at %s: %v", x.id, x.address, got)
		}
	}
	w.stop(third)
	l, err := net.Listen("tcp", third.address)
	must.OK(t, err)
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{*second.cert.Certificate()}})))
	proto.RegisterMembershipServer(server, liar{as: third.node.self()})
	go server.Serve(l)
	defer server.Stop()
	if m.isAt(t.Context(), third.id, third.address, m.opt.CallTimeout) {
		t.Error("a node with another's certificate is believed to be the member that it says")
	}
	if !m.isAt(t.Context(), second.id, third.address, m.opt.CallTimeout) {
		t.Error("the node that the certificate names is not found")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, at := range []string{second.address, third.address} {
		if leader.conns["@"+at] != nil {
			t.Errorf("the connection to %s stays open", at)
		}
	}
}

func TestHopsAndCallers(t *testing.T) {
	t.Parallel()
	w, all := three(t)
	leader, follower, third := all[0], all[1], all[2]
	call := func(from, to *machine, req *proto.ChangeRequest) error {
		conn, err := from.Conn(to.id, to.address)
		must.OK(t, err)
		_, err = proto.NewMembershipClient(conn).Change(t.Context(), req)
		return fromStatus(err)
	}
	req := func(hops uint32) *proto.ChangeRequest {
		return &proto.ChangeRequest{Kind: proto.ChangeKind_CHANGE_PROMOTE, Member: &proto.Member{NodeId: third.name}, Hops: hops}
	}
	for _, c := range []struct {
		to   *machine
		hops uint32
		ok   bool
	}{{leader, 0, true}, {leader, 1, true}, {leader, 2, false}, {follower, 0, true}, {follower, 1, false}} {
		if err := call(third, c.to, req(c.hops)); (err == nil) != c.ok {
			t.Errorf("%d hops to the leader %v: %v", c.hops, c.to == leader, err)
		}
	}
	// A peer certificate alone does not allow changes, nor to speak for another.
	stranger := w.machine("d")
	w.run(strings.Fields("start d"))
	if err := call(stranger, leader, req(0)); err == nil || !strings.Contains(err.Error(), "not a member") {
		t.Errorf("a stranger changes the cluster: %v", err)
	}
	conn, _ := stranger.Conn("", leader.address)
	if _, err := proto.NewMembershipClient(conn).Join(t.Context(), &proto.JoinRequest{Self: third.node.self()}); err == nil || !strings.Contains(err.Error(), "the certificate is that of") {
		t.Errorf("a stranger joins as another node: %v", err)
	}
	// A wiped machine at a member's address is told what to do.
	impostor := stranger.node.self()
	impostor.PeerAddress = third.address
	if _, err := proto.NewMembershipClient(conn).Join(t.Context(), &proto.JoinRequest{Self: impostor}); !errors.Is(fromStatus(err), ErrRefused) {
		t.Errorf("two members with one address: %v", err)
	}
}

func TestTokens(t *testing.T) {
	t.Parallel()
	w, all := three(t)
	pass := func(d time.Duration) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.passed += d
	}
	c, ctx := client(t, all[1]), t.Context()
	create := func(req TokenRequest) JoinToken {
		t.Helper()
		made, err := c.CreateToken(ctx, req)
		must.OK(t, err)
		tok, err := ParseJoinToken(made.Token)
		must.OK(t, err)
		return tok
	}
	server := c.servers[0]
	join := func(tok JoinToken) error {
		_, err := JoinWithToken(ctx, tok, []string{server}, "new")
		return err
	}

	once := create(TokenRequest{Uses: 1, TTLSeconds: 60, Note: "x"})
	grant, err := JoinWithToken(ctx, once, []string{"127.0.0.1:1", server}, "new")
	if err != nil || grant.Secrets[0].Reveal() != testSecret || len(grant.Peers) != 3 || grant.ClusterID == "" {
		t.Fatalf("join: %+v, %v", grant, err)
	}
	if err := join(once); !errors.Is(err, ErrToken) {
		t.Errorf("used-up token: %v", err)
	}
	many := create(TokenRequest{TTLSeconds: 60})
	for range 3 {
		if err := join(many); err != nil {
			t.Errorf("token for many: %v", err)
		}
	}
	wrong := many
	wrong.Secret = strings.Repeat("0", 32)
	if err := join(wrong); !errors.Is(err, ErrToken) {
		t.Errorf("wrong secret: %v", err)
	}
	unknown := many
	unknown.ID = "0000000000"
	if err := join(unknown); !errors.Is(err, ErrToken) {
		t.Errorf("unknown id: %v", err)
	}
	// Two nodes and one use.
	race := create(TokenRequest{Uses: 1})
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		wg.Go(func() { errs[i] = join(race) })
	}
	wg.Wait()
	granted := 0
	for _, err := range errs {
		if err == nil {
			granted++
		} else if !errors.Is(err, ErrToken) {
			t.Error(err)
		}
	}
	if granted != 1 {
		t.Errorf("%d nodes got in with one use", granted)
	}
	if raw, _ := (fakeKV{all[0]}).List(TableTokens); strings.Contains(string(raw[many.ID]), many.Secret) {
		t.Error("the secret is stored")
	}
	if err := c.DeleteToken(ctx, race.ID); err != nil {
		t.Error(err)
	}
	pass(61 * time.Second)
	if err := join(many); !errors.Is(err, ErrToken) {
		t.Errorf("expired token: %v", err)
	}
	list, err := c.Tokens(ctx)
	if err != nil || len(list) != 2 || list[0].State != TokenExpired || list[1].State != TokenExpired {
		t.Errorf("tokens %+v, %v", list, err)
	}
	create(TokenRequest{}) // sweeps
	if list, _ := c.Tokens(ctx); len(list) != 1 || list[0].State != TokenValid {
		t.Errorf("after the sweep: %+v", list)
	}
}

// The secret of a token reaches no server that has not proved the pinned CA.
func TestTokenIsNotSentToStrangers(t *testing.T) {
	t.Parallel()
	node := func(secret string) *pki.Node {
		s, err := pki.ParseSecrets(secret)
		must.OK(t, err)
		n, err := pki.Open(pki.Options{Dir: t.TempDir(), Secrets: s, NodeID: "ab"})
		must.OK(t, err)
		return n
	}
	ours, theirs := node(testSecret), node(strings.Repeat("fedcba9876543210", 4))
	tok := JoinToken{Pin: ours.Pin(), ID: "0102030405", Secret: strings.Repeat("ab", 16)}
	own, _ := ours.ServingCertificate(nil)
	other, _ := theirs.ServingCertificate(nil)
	admin, peer := ours.AdminCertificate(), ours.Certificate()
	// A stranger's leaf, followed by our public CA certificate.
	forged := &tls.Certificate{Certificate: [][]byte{other.Certificate[0], own.Certificate[1]}, PrivateKey: other.PrivateKey}
	for _, c := range []struct {
		name string
		cert *tls.Certificate
		sent bool
		err  error
	}{
		{"our server, which does not speak our protocol", own, true, nil},
		{"another CA", other, false, ErrPin},
		{"a stranger's leaf with our CA", forged, false, ErrPin},
		{"our CA's client certificate", admin, false, ErrPin},
		{"our peer certificate", peer, false, ErrPin},
		{"the leaf without its CA", &tls.Certificate{Certificate: own.Certificate[:1], PrivateKey: own.PrivateKey}, false, ErrPin},
	} {
		sent := false
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			sent = true
			http.Redirect(w, r, "https://elsewhere.invalid/", http.StatusTemporaryRedirect)
		}))
		s.TLS = &tls.Config{Certificates: []tls.Certificate{*c.cert}}
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		s.StartTLS()
		_, err := JoinWithToken(t.Context(), tok, []string{s.URL}, "n")
		s.Close()
		if err == nil || c.err != nil && !errors.Is(err, c.err) || sent != c.sent {
			t.Errorf("%s: sent %v, error %v", c.name, sent, err)
		}
	}
	// A server that has the CA's certificate answers with another secret.
	if _, err := (joinGrant{Secrets: []string{strings.Repeat("fedcba9876543210", 4)}}).check(tok.Pin); !errors.Is(err, ErrPin) {
		t.Errorf("another secret: %v", err)
	}
}

func FuzzParseJoinToken(f *testing.F) {
	f.Add("Q1." + base64.RawURLEncoding.EncodeToString(make([]byte, 32)) + ".0102030405." + strings.Repeat("ab", 16))
	f.Add("Q1...")
	f.Fuzz(func(t *testing.T, text string) {
		tok, err := ParseJoinToken(text)
		if err == nil && tok.Reveal() != text {
			t.Fatalf("%q is read as %q", text, tok.Reveal())
		}
		if err != nil && !errors.Is(err, ErrToken) {
			t.Fatal(err)
		}
		if err == nil && strings.Contains(tok.String(), tok.Secret) {
			t.Fatal("a token prints its secret")
		}
	})
}

func sameContext(ctx context.Context) (context.Context, error) { return ctx, nil }

// The HTTP handlers refuse what they cannot read, and change nothing.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run(strings.Fields("start a expect=1"))
	w.formed([]string{"a"})
	m := w.machine("a").node
	mux := http.NewServeMux()
	mux.Handle(AdminPath, m.AdminHandler(sameContext, AdminRoute{"POST masters", func(context.Context, *http.Request) (any, error) {
		return nil, fmt.Errorf("%w: only masters", ErrForbidden)
	}}))
	mux.Handle(JoinPath, m.JoinHandler())
	huge := `{"note":"` + strings.Repeat("x", maxAdminBody) + `"}`
	for _, c := range []struct {
		method, path, body string
		code               int
	}{
		{"POST", "/quorate/v1/tokens", "{", 400},
		{"POST", "/quorate/v1/tokens", `{"nosuch":1}`, 400},
		{"POST", "/quorate/v1/tokens", `{} {}`, 400},
		{"POST", "/quorate/v1/tokens", huge, 400},
		{"POST", "/quorate/v1/tokens", `{"ttlSeconds":-1}`, 400},
		{"POST", "/quorate/v1/tokens", `{"ttlSeconds":99999999999999}`, 400},
		{"POST", "/quorate/v1/tokens", `{"uses":100000}`, 409},
		{"DELETE", "/quorate/v1/tokens/nosuch", "", 404},
		{"DELETE", "/quorate/v1/members/nosuch", "", 404},
		{"DELETE", "/quorate/v1/members/a", "", 409},
		{"DELETE", "/quorate/v1/members/a?force=true", "", 409},
		{"DELETE", "/quorate/v1/members/a?force=perhaps", "", 400},
		{"POST", "/quorate/v1/members", `{}`, 400},
		{"POST", "/quorate/v1/members/a/explode", "", 404},
		{"PUT", "/quorate/v1/members", "", 405},
		{"PUT", "/quorate/v1/masters", "", 405},
		{"POST", "/quorate/v1/masters", "", 403},
		{"GET", "/quorate/v1/nosuch", "", 404},
		{"GET", "/quorate/join", "", 400},
		{"POST", "/quorate/join", `{}`, 400}, // without TLS
	} {
		rec := httptest.NewRecorder()
		mux.ServeHTTP(rec, httptest.NewRequestWithContext(context.Background(), c.method, c.path, strings.NewReader(c.body)))
		if rec.Code != c.code {
			t.Errorf("%s %s %.30s: %d, want %d: %s", c.method, c.path, c.body, rec.Code, c.code, rec.Body)
		}
		var e errorBody
		if !strings.HasPrefix(c.path, AdminPath) {
			continue
		}
		if err := json.Unmarshal(rec.Body.Bytes(), &e); err != nil || e.Error == "" || e.Code == "" || rec.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s %s: not an error in JSON: %s", c.method, c.path, rec.Body)
		}
		if c.code == 405 && rec.Header().Get("Allow") == "" {
			t.Errorf("%s %s: it does not say which methods are allowed", c.method, c.path)
		}
	}
	conf := m.raft.Members()
	tokens, _ := m.Tokens()
	if conf.Index != 1 || len(tokens) != 0 {
		t.Errorf("something was changed: %v, %v", conf, tokens)
	}
}

func TestBucket(t *testing.T) {
	now := time.Unix(0, 0)
	b := bucket{rate: 10, burst: 3, now: func() time.Time { return now }}
	got := ""
	for _, step := range []time.Duration{0, 0, 0, 0, 100 * time.Millisecond, 0, time.Hour, 0, 0, 0} {
		now = now.Add(step)
		if b.take() {
			got += "y"
		} else {
			got += "n"
		}
	}
	if got != "yyynynyyyn" {
		t.Error(got)
	}
}

// TestAddUnreachable: a node that is not where it says is not let in: neither at an address that nobody answers at, nor at
// one where another node is, as a loopback address is to all others.
func TestAddUnreachable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run(strings.Fields("start a expect=1"))
	w.run(strings.Fields("start b"))
	w.formed([]string{"a"})
	a, b := w.machine("a").node, w.machine("b").node
	_, version := a.raft.Features()
	for _, address := range []string{"127.0.0.1:1", b.self().PeerAddress} {
		_, err := a.change(t.Context(), &proto.ChangeRequest{Kind: proto.ChangeKind_CHANGE_ADD,
			Member: &proto.Member{NodeId: "0123456789abcdef0123456789abcdef", Name: "ghost", PeerAddress: address, FeatureVersion: version}})
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "does not reach it at "+address) {
			t.Errorf("%s: %v", address, err)
		}
	}
	if conf := a.raft.Members(); len(conf.Servers) != 1 {
		t.Error(conf)
	}
}

// TestJoinBesideWrongTokens: tries with what is no token do not keep a token from being
// used.
func TestJoinBesideWrongTokens(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run(strings.Fields("start a expect=1"))
	w.formed([]string{"a"})
	mc := w.machine("a")
	c := client(t, mc)
	made, err := c.CreateToken(t.Context(), TokenRequest{TTLSeconds: 60})
	must.OK(t, err)
	tok, err := ParseJoinToken(made.Token)
	must.OK(t, err)
	still := time.Now()
	mc.node.wrong = bucket{rate: 20, burst: 50, now: func() time.Time { return still }} // however slow this machine is
	wrong := tok
	wrong.Secret = strings.Repeat("0", len(tok.Secret))
	busy := 0
	for range 100 {
		switch _, err := joinAt(t.Context(), wrong, c.servers[0], "x"); {
		case errors.Is(err, errBusy):
			busy++
		case !errors.Is(err, ErrToken):
			t.Fatal(err)
		}
	}
	if busy == 0 {
		t.Error("wrong tokens may be tried as often as one likes")
	}
	if _, err := joinAt(t.Context(), tok, c.servers[0], "x"); err != nil {
		t.Errorf("a right token: %v", err)
	}
}

// TestJoinTriesAgain: a server that has too much to do is asked again until it has
// time, or the joiner has none left.
func TestJoinTriesAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run(strings.Fields("start a expect=1"))
	w.formed([]string{"a"})
	mc := w.machine("a")
	c := client(t, mc)
	made, err := c.CreateToken(t.Context(), TokenRequest{TTLSeconds: 60})
	must.OK(t, err)
	tok, err := ParseJoinToken(made.Token)
	must.OK(t, err)
	mc.node.joins = bucket{rate: 1, burst: 1, now: time.Now}
	if !mc.node.joins.take() {
		t.Fatal("the bucket is empty")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := JoinWithToken(ctx, tok, c.servers, "x"); err != nil {
		t.Errorf("join at a busy server: %v", err)
	}
	mc.node.joins = bucket{now: time.Now}
	ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := JoinWithToken(ctx, tok, c.servers, "x"); !errors.Is(err, errBusy) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("join at a server that stays busy: %v", err)
	}
}
