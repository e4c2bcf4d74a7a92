package bootstraptoken

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	bootstrapsecrets "k8s.io/cluster-bootstrap/util/secrets"
	bootstraptokens "k8s.io/cluster-bootstrap/util/tokens"
)

const table = "secrets"

// maxToken is longer than any token of the form: the others need not be matched.
const maxToken = 64

// Store is what is needed of the local store.
type Store interface {
	// State is the local state. It may be replaced as a whole by a snapshot.
	State() *mvcc.State
}

// Authenticator recognizes bootstrap tokens. Safe for concurrent use.
type Authenticator struct {
	store Store
	now   func() time.Time
}

var _ auth.TokenAuthenticator = (*Authenticator)(nil)

// New returns an Authenticator over the Secrets of a store. now is the clock.
func New(store Store, now func() time.Time) *Authenticator { return &Authenticator{store, now} }

// errUnknown is why a token does not hold whose secret is not that of its id. Nothing more is said: who
// guesses must not learn which ids there are.
var errUnknown = errors.New("there is no such token")

// AuthenticateToken implements auth.TokenAuthenticator. Errors are for who knows the secret.
func (a *Authenticator) AuthenticateToken(_ context.Context, token string) (*auth.User, bool, error) {
	if len(token) > maxToken {
		return nil, false, nil
	}
	id, secret, err := bootstraptokens.ParseToken(token)
	if err != nil {
		return nil, false, nil
	}
	groups, err := a.groups(id, secret)
	switch {
	case errors.Is(err, errUnknown):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("bootstrap token %s does not hold: %w", id, err)
	}
	return &auth.User{
		Name: bootstrapapi.BootstrapUserPrefix + id, Groups: groups,
		Credential: &credential{a: a, id: id, secret: secret, groups: groups},
	}, true, nil
}

// key is where the Secret of a token is.
func key(id string) string {
	return metav1.NamespaceSystem + "/" + bootstrapapi.BootstrapTokenSecretPrefix + id
}

// groups returns the groups of a token as the state shows it now, or why it does not hold.
func (a *Authenticator) groups(id, secret string) ([]string, error) {
	v := a.find(key(id))
	if v == nil || v.Flags&proto.FlagTerminating != 0 {
		return nil, errUnknown
	}
	var s corev1.Secret
	if err := json.Unmarshal(v.Value(), &s); err != nil {
		return nil, errUnknown
	}
	switch {
	case s.Type != bootstrapapi.SecretTypeBootstrapToken, subtle.ConstantTimeCompare(s.Data[bootstrapapi.BootstrapTokenSecretKey], []byte(secret)) != 1:
		return nil, errUnknown
	case bootstrapsecrets.GetData(&s, bootstrapapi.BootstrapTokenIDKey) != id:
		return nil, errors.New("its Secret is named for another id")
	case bootstrapsecrets.HasExpired(&s, a.now()):
		return nil, errors.New("it has expired")
	case bootstrapsecrets.GetData(&s, bootstrapapi.BootstrapTokenUsageAuthentication) != "true":
		return nil, errors.New("it is not for authentication")
	}
	return bootstrapsecrets.GetGroups(&s)
}

// find returns the newest version of a Secret in the local state, nil if there is none.
func (a *Authenticator) find(key string) *mvcc.Version {
	for {
		state := a.store.State()
		t := state.Table(table)
		if t == nil {
			return nil
		}
		v, err := t.Get(key, state.Applied())
		if errors.Is(err, mvcc.ErrCompacted) {
			continue // the floor has passed what was newest a moment ago
		}
		if err != nil {
			return nil
		}
		return v
	}
}

// credential is a token that was presented, and what its user is by it.
type credential struct {
	a          *Authenticator
	id, secret string
	groups     []string
}

// Objects implements auth.Credential. Every change of the Secret counts, not only its end: it may say
// another secret, date or group.
func (c *credential) Objects() []auth.Object {
	return []auth.Object{{Table: table, Key: key(c.id)}}
}

// Holds implements auth.Credential.
func (c *credential) Holds(context.Context) error {
	groups, err := c.a.groups(c.id, c.secret)
	switch {
	case err != nil:
		return fmt.Errorf("bootstrap token %s does not hold any more: %w", c.id, err)
	case !slices.Equal(groups, c.groups):
		return fmt.Errorf("bootstrap token %s has other groups now", c.id)
	}
	return nil
}
