package builtin_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/access/auth/token"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/objects/builtin"
	"github.com/quorate/quorate/apiserver/objects/builtin/service"
	"github.com/quorate/quorate/apiserver/objects/objectstest"
)

// TestOperations runs testdata/operations/*.txt: what strategies do with a store and a user,
// without HTTP. Package objectstest has the language; the roles are those that a case creates.
func TestOperations(t *testing.T) {
	objectstest.Run(t, "testdata/operations/*.txt", options())
}

// options have few addresses and ports, so that they come to an end.
func options() objectstest.Options {
	return objectstest.Options{Kinds: builtin.Config{
		Reviewer: testReviewer{}, Tokens: testTokens{}, MaxToken: 2 * time.Hour,
		ServiceBlocks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/29")}, ServicePorts: service.PortRange{First: 30000, Last: 30002},
	}}
}

// testTokens says what it was asked to issue.
type testTokens struct{}

func (testTokens) Audiences() []string { return []string{"https://quorate"} }

func (testTokens) Issue(s token.Spec) (string, error) {
	bound, c := "", s.Claims
	if c.Pod != nil {
		bound += " with pod " + c.Pod.Name
	}
	if c.Secret != nil {
		bound += " with secret " + c.Secret.Name
	}
	if c.Node != nil {
		bound += " on " + c.Node.Name
	}
	return fmt.Sprint(auth.ServiceAccountUser(c.Namespace, c.Account.Name), bound, " for ", s.Audiences, " from ", s.Now.Format("15:04"), " valid ", s.ValidFor, " warn ", s.WarnAfter), nil
}

// testReviewer takes the name of a user for a token.
type testReviewer struct{}

func (testReviewer) Review(_ context.Context, token string, audiences []string) (*auth.User, []string, error) {
	if token == "wrong" {
		return nil, nil, errors.New("this token does not hold")
	}
	return &auth.User{Name: token, Groups: []string{auth.Authenticated}}, audiences, nil
}

// TestClaimAgain: the rows of a stored Service that are missing can be made, and no other's.
func TestClaimAgain(t *testing.T) {
	s := objectstest.NewCase(t, options())
	s.Play(`create services default/ {"metadata":{"name":"a"},"spec":{"type":"NodePort","clusterIP":"10.0.0.2","ports":[{"port":80,"nodePort":30000}]}}`)
	for _, c := range []struct {
		key  objects.ClaimKey
		want error
	}{
		{objects.ClaimKey{Table: builtin.AddressesTable, Key: "10.0.0.2"}, objects.ErrTaken},
		{objects.ClaimKey{Table: builtin.AddressesTable, Key: "10.0.0.3"}, nil},
		{objects.ClaimKey{Table: builtin.AddressesTable, Key: "fd00::3"}, nil},
		{objects.ClaimKey{Table: builtin.NodePortsTable, Key: "30000"}, objects.ErrTaken},
		{objects.ClaimKey{Table: builtin.NodePortsTable, Key: "30001"}, nil},
		{objects.ClaimKey{Table: builtin.NodePortsTable, Key: "http"}, strconv.ErrSyntax},
	} {
		if err := builtin.ClaimAgain(s.Op("update", "services", "default/b"), c.key); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.key.Key, err, c.want)
		}
	}
	s.Play("get ipaddresses.networking.k8s.io 10.0.0.3\n" +
		`= spec.parentRef {"group":"","name":"b","namespace":"default","resource":"services"}` + "\n" +
		"get ipaddresses.networking.k8s.io fd00::3\n" +
		`= metadata.labels {"ipaddress.kubernetes.io/ip-family":"IPv6","ipaddress.kubernetes.io/managed-by":"ipallocator.k8s.io"}`)
}
