package serviceaccount

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/quorate/quorate/apiserver/types/state"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/internal/slots"
	"github.com/quorate/quorate/raftstore/mvcc"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// enforceMountable is the annotation of accounts whose Pods may only use the secrets that the
// account lists.
const enforceMountable = "kubernetes.io/enforce-mountable-secrets"

// account is what a service account says about its Pods.
type account struct {
	Metadata struct {
		Name        string            `json:"name"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Secrets          []reference `json:"secrets"`
	ImagePullSecrets []reference `json:"imagePullSecrets"`
	Automount        *bool       `json:"automountServiceAccountToken"`
}

type reference struct {
	Name string `json:"name"`
}

// automounts reports whether a Pod gets a token: as it says itself, or as its account says.
func (s *account) automounts(spec tree.Object) bool {
	if own, ok := spec["automountServiceAccountToken"].(bool); ok {
		return own
	}
	return s.Automount == nil || *s.Automount
}

func (s *account) pullSecrets() []any {
	out := make([]any, len(s.ImagePullSecrets))
	for i, secret := range s.ImagePullSecrets {
		out[i] = tree.Object{}
		if secret.Name != "" {
			out[i] = tree.Object{"name": secret.Name}
		}
	}
	return out
}

// limits reports whether Pods may use no secrets but those that the account lists.
func (s *account) limits() bool {
	limits, _ := strconv.ParseBool(s.Metadata.Annotations[enforceMountable])
	return limits
}

const (
	// patience is for how long the account default is waited for: a controller makes it right
	// after its namespace. Upstream looks ten times, 100 to 200 ms apart.
	patience = 2 * time.Second
	// lookAgain is the pause between two looks at this node's state, which cost next to nothing.
	lookAgain = 10 * time.Millisecond
	// maxDecoded is how many accounts are kept decoded.
	maxDecoded = 4096
)

var (
	errMissing = errors.New("no such service account")
	accountsGR = schema.GroupResource{Resource: "serviceaccounts"}
)

// decodedAccount is what a version was decoded to. There is one of each account: old versions
// must not stay in memory because they were once looked at.
type decodedAccount struct {
	version *mvcc.Version
	account *account
}

// accounts finds service accounts in this node's state.
type accounts struct {
	state   *state.State
	confirm func(context.Context) error

	mu      sync.Mutex
	decoded map[string]decodedAccount // by the key in the table; emptied when full
}

// get returns an account. It waits for the account default. Errors: errMissing, confirm's and
// the context's.
func (s *accounts) get(ctx context.Context, namespace, name string) (*account, error) {
	if found, err := s.here(namespace, name); found != nil || err != nil {
		return found, err
	}
	if err := s.confirm(ctx); err != nil {
		return nil, err
	}
	found, err := s.here(namespace, name)
	if found != nil || err != nil || name != defaultAccount {
		return found, orMissing(found, err)
	}
	defer slots.Waiting(ctx)()
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	for found == nil && err == nil && wait.Err() == nil {
		select {
		case <-wait.Done():
		case <-again.C:
		}
		found, err = s.here(namespace, name)
	}
	if found == nil && err == nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return found, orMissing(found, err)
}

func orMissing(found *account, err error) error {
	if found == nil && err == nil {
		return errMissing
	}
	return err
}

// here returns an account as this node's state shows it, nil if there is none.
func (s *accounts) here(namespace, name string) (*account, error) {
	v := s.state.Version(accountsGR, namespace, name)
	if v == nil {
		return nil, nil
	}
	s.mu.Lock()
	had := s.decoded[v.Key]
	s.mu.Unlock()
	if had.version == v {
		return had.account, nil
	}
	made := &account{}
	if err := json.Unmarshal(v.Value(), made); err != nil {
		return nil, fmt.Errorf("decode service account %s: %w", v.Key, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.decoded == nil || len(s.decoded) >= maxDecoded {
		s.decoded = make(map[string]decodedAccount)
	}
	s.decoded[v.Key] = decodedAccount{v, made}
	return made, nil
}
