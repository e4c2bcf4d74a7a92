package membership

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/loglimit"
)

const (
	tokenPrefix      = "Q1"
	tokenIDBytes     = 5
	tokenSecretBytes = 16
	// DefaultTokenTTL is how long a join token is valid unless told otherwise.
	DefaultTokenTTL = 24 * time.Hour
	// MaxTokenTTL and MaxTokenUses bound what a join token is worth.
	MaxTokenTTL  = 365 * 24 * time.Hour
	MaxTokenUses = 1000
	maxTokens    = 1000
	maxNoteBytes = 256
)

// JoinToken lets a node that does not have the cluster secret join:
// Q1.<pin of the API CA>.<id>.<secret>. The pin tells whom the secret may be
// sent to.
type JoinToken struct {
	Pin    string // see pki.Authority.Pin
	ID     string
	Secret string
}

// ParseJoinToken reads a token. Its errors wrap ErrToken and do not repeat it.
func ParseJoinToken(text string) (JoinToken, error) {
	parts := strings.Split(text, ".")
	if len(text) > 256 || len(parts) != 4 || parts[0] != tokenPrefix {
		return JoinToken{}, fmt.Errorf("%w: it does not have the form %s.<pin>.<id>.<secret>", ErrToken, tokenPrefix)
	}
	t := JoinToken{Pin: parts[1], ID: parts[2], Secret: parts[3]}
	if b, err := base64.RawURLEncoding.Strict().DecodeString(t.Pin); err != nil || len(b) != sha256.Size {
		return JoinToken{}, fmt.Errorf("%w: bad pin", ErrToken)
	}
	if !isHex(t.ID, tokenIDBytes) || !isHex(t.Secret, tokenSecretBytes) {
		return JoinToken{}, fmt.Errorf("%w: bad id or secret", ErrToken)
	}
	return t, nil
}

// Reveal returns the whole token.
func (t JoinToken) Reveal() string {
	return strings.Join([]string{tokenPrefix, t.Pin, t.ID, t.Secret}, ".")
}

// String leaves out the secret.
func (t JoinToken) String() string { return tokenPrefix + "." + t.Pin + "." + t.ID + ".…" }

// GoString leaves out the secret.
func (t JoinToken) GoString() string { return t.String() }

func isHex(s string, n int) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == n && s == strings.ToLower(s)
}

// tokenRecord is a value of TableTokens.
type tokenRecord struct {
	Hash    string    `json:"hash"` // see hashToken
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
	Uses    int       `json:"uses"` // how many are allowed; 0: any number
	Note    string    `json:"note,omitempty"`
	// Pins are those of the cluster's secrets when the token was made, the signing one
	// first: see madeUnder.
	Pins []string `json:"pins"`
}

// madeUnder says whether a token may still be exchanged for the secrets with these pins.
// It may not for a secret that came after it, nor after another one has become the first:
// otherwise those whom a change of the secret is to lock out leave a token behind, and
// exchange it for the new one.
func (r tokenRecord) madeUnder(pins []string) bool {
	if len(r.Pins) == 0 || len(pins) == 0 || r.Pins[0] != pins[0] {
		return false
	}
	for _, p := range pins {
		if !slices.Contains(r.Pins, p) {
			return false
		}
	}
	return true
}

// joinTokens makes the tokens by which nodes join, and exchanges them for the cluster secret.
type joinTokens struct {
	*base
	joins, wrong bucket            // uses of tokens, and tries with what is none
	refusals     *loglimit.Limiter // log lines about those
}

// pins are those of this node's secrets.
func (j *joinTokens) pins() []string {
	if j.opt.Certificates == nil {
		return nil
	}
	return j.opt.Certificates.Pins()
}

// hashToken needs no salt and no slow hash: the secret has 128 random bits.
func hashToken(id, secret string) string {
	sum := sha256.Sum256([]byte("quorate join token\x00" + id + "\x00" + secret))
	return hex.EncodeToString(sum[:])
}

// CreateToken makes a join token. ttl 0 means DefaultTokenTTL; uses 0 means any
// number of nodes.
func (j *joinTokens) CreateToken(ctx context.Context, ttl time.Duration, uses int, note string) (JoinToken, TokenInfo, error) {
	if ttl == 0 {
		ttl = DefaultTokenTTL
	}
	switch {
	case j.opt.Certificates == nil:
		return JoinToken{}, TokenInfo{}, fmt.Errorf("%w: this node has no certificates of its own", ErrRefused)
	case ttl < time.Second || ttl > MaxTokenTTL:
		return JoinToken{}, TokenInfo{}, fmt.Errorf("%w: a token lives for 1 s to %v", ErrRefused, MaxTokenTTL)
	case uses < 0 || uses > MaxTokenUses:
		return JoinToken{}, TokenInfo{}, fmt.Errorf("%w: a token has at most %d uses", ErrRefused, MaxTokenUses)
	case len(note) > maxNoteBytes:
		return JoinToken{}, TokenInfo{}, fmt.Errorf("%w: the note is longer than %d bytes", ErrRefused, maxNoteBytes)
	}
	if err := j.pruneTokens(ctx); err != nil {
		return JoinToken{}, TokenInfo{}, err
	}
	b := make([]byte, tokenIDBytes+tokenSecretBytes)
	rand.Read(b)
	t := JoinToken{Pin: j.opt.Certificates.Pin(), ID: hex.EncodeToString(b[:tokenIDBytes]), Secret: hex.EncodeToString(b[tokenIDBytes:])}
	now := j.opt.Now().UTC().Truncate(time.Second)
	r := tokenRecord{Hash: hashToken(t.ID, t.Secret), Created: now, Expires: now.Add(ttl), Uses: uses, Note: note, Pins: j.pins()}
	data, err := json.Marshal(r)
	if err == nil {
		err = j.kv.Put(ctx, TableTokens, t.ID, data, true)
	}
	if err != nil {
		return JoinToken{}, TokenInfo{}, fmt.Errorf("create token: %w", err)
	}
	return t, r.info(t.ID, 0, now), nil
}

// pruneTokens deletes expired tokens, and refuses when too many are left.
func (j *joinTokens) pruneTokens(ctx context.Context) error {
	tokens, err := j.Tokens()
	if err != nil {
		return err
	}
	n := 0
	for _, t := range tokens {
		if t.State != TokenExpired {
			n++
		} else if err := j.DeleteToken(ctx, t.ID); err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
	}
	if n >= maxTokens {
		return fmt.Errorf("%w: there are %d join tokens", ErrRefused, n)
	}
	return nil
}

// Tokens lists the join tokens in this node's state, by id.
func (j *joinTokens) Tokens() ([]TokenInfo, error) {
	raw, err := j.kv.List(TableTokens)
	uses, uerr := j.kv.List(TableTokenUses)
	if err := errors.Join(err, uerr); err != nil {
		return nil, fmt.Errorf("tokens: %w", err)
	}
	used := map[string]int{}
	for key := range uses {
		id, _, _ := strings.Cut(key, "/")
		used[id]++
	}
	out := []TokenInfo{}
	for id, v := range raw {
		var r tokenRecord
		if json.Unmarshal(v, &r) == nil {
			i := r.info(id, used[id], j.opt.Now())
			if !r.madeUnder(j.pins()) {
				i.State = TokenExpired
			}
			out = append(out, i)
		}
	}
	slices.SortFunc(out, func(a, b TokenInfo) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}

func (r tokenRecord) info(id string, used int, now time.Time) TokenInfo {
	i := TokenInfo{ID: id, Created: r.Created, Expires: r.Expires, Uses: r.Uses, Used: used, Note: r.Note, State: TokenValid}
	switch {
	case !now.Before(r.Expires):
		i.State = TokenExpired
	case r.Uses > 0 && used >= r.Uses:
		i.State = TokenUsedUp
	}
	return i
}

// DeleteToken deletes a join token by its id. It fails with ErrNotFound when
// there is none.
func (j *joinTokens) DeleteToken(ctx context.Context, id string) error {
	if _, ok := j.kv.Get(TableTokens, id); !ok {
		return fmt.Errorf("token %.20q: %w", id, ErrNotFound)
	}
	if err := j.kv.Delete(ctx, TableTokens, id); err != nil {
		return fmt.Errorf("delete token: %w", err)
	}
	uses, err := j.kv.List(TableTokenUses)
	if err != nil {
		return fmt.Errorf("delete token: %w", err)
	}
	for key := range uses {
		if strings.HasPrefix(key, id+"/") {
			if err := j.kv.Delete(ctx, TableTokenUses, key); err != nil {
				return fmt.Errorf("delete token: %w", err)
			}
		}
	}
	return nil
}

// checkToken returns the record of a token if it is valid now.
func (j *joinTokens) checkToken(id, secret string) (tokenRecord, error) {
	var r tokenRecord
	raw, ok := j.kv.Get(TableTokens, id)
	if ok && json.Unmarshal(raw, &r) != nil {
		ok = false
	}
	// The same work for an unknown id as for a wrong secret.
	same := subtle.ConstantTimeCompare([]byte(hashToken(id, secret)), []byte(r.Hash)) == 1
	if !ok || !same || !j.opt.Now().Before(r.Expires) || !r.madeUnder(j.pins()) {
		return tokenRecord{}, ErrToken
	}
	return r, nil
}

// useToken checks a token and counts the use. Two nodes cannot count the same
// one: a use is a key of its own, and the log decides who wrote it first.
func (j *joinTokens) useToken(ctx context.Context, id, secret string, by string) error {
	r, err := j.checkToken(id, secret)
	if err != nil {
		return err
	}
	word, err := json.Marshal(map[string]any{"by": by, "at": j.opt.Now().UTC()})
	if err != nil {
		return err
	}
	limit := r.Uses
	if limit == 0 {
		limit = MaxTokenUses
	}
	for n := range limit {
		key := id + "/" + strconv.Itoa(n)
		if _, taken := j.kv.Get(TableTokenUses, key); taken {
			continue
		}
		err := j.kv.Put(ctx, TableTokenUses, key, word, true)
		if errors.Is(err, ErrExists) {
			continue
		}
		if err != nil {
			return fmt.Errorf("use token: %w", err)
		}
		// This node's state now includes all that was committed before the use:
		// a deletion, for instance.
		if _, err := j.checkToken(id, secret); err != nil {
			return errors.Join(err, j.kv.Delete(ctx, TableTokenUses, key))
		}
		return nil
	}
	return ErrToken
}
