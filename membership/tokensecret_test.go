package membership

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/membership/pki"
)

// TestTokensEndWithTheirSecrets: in each round of a change of the secret, what becomes of
// tokens that were made in the others.
func TestTokensEndWithTheirSecrets(t *testing.T) {
	t.Parallel()
	_, all := three(t)
	m, ctx := all[0].node, t.Context()
	tokens := &joinTokens{base: &base{opt: m.opt, kv: m.kv}}
	other := strings.Repeat("fedcba9876543210", 4)
	rounds := map[string]*pki.Node{}
	for name, lines := range map[string]string{
		"old": testSecret, "old+new": testSecret + "\n" + other, "new+old": other + "\n" + testSecret, "new": other,
	} {
		secrets, err := pki.ParseSecrets(lines)
		must.OK(t, err)
		if rounds[name], err = pki.Open(pki.Options{Dir: t.TempDir(), Secrets: secrets, NodeID: m.id.ID()}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ made, used, want string }{
		{"old", "old", "valid"},
		{"old", "old+new", "refused"}, // it would be exchanged for the new secret as well
		{"old", "new+old", "refused"},
		{"old", "new", "refused"},
		{"old+new", "old", "valid"},
		{"old+new", "old+new", "valid"},
		{"old+new", "new+old", "refused"},
		{"old+new", "new", "refused"},
		{"new+old", "old+new", "refused"},
		{"new+old", "new+old", "valid"},
		{"new+old", "new", "valid"},
		{"new", "new+old", "refused"},
		{"new", "new", "valid"},
	} {
		tokens.opt.Certificates = rounds[c.made]
		token, _, err := tokens.CreateToken(ctx, time.Hour, 0, "")
		must.OK(t, err)
		tokens.opt.Certificates = rounds[c.used]
		err = tokens.useToken(ctx, token.ID, token.Secret, "x")
		if c.want == "valid" && err != nil || c.want == "refused" && !errors.Is(err, ErrToken) {
			t.Errorf("made under %s, used under %s: %v, want %s", c.made, c.used, err, c.want)
		}
		list, err := tokens.Tokens()
		must.OK(t, err)
		for _, i := range list {
			if i.ID == token.ID && (i.State == TokenValid) != (c.want == "valid") {
				t.Errorf("made under %s, listed under %s: %s", c.made, c.used, i.State)
			}
		}
	}
	if (tokenRecord{}).madeUnder(rounds["old"].Pins()) {
		t.Error("a token that says nothing of its secrets is valid")
	}
}
