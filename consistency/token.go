package consistency

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"path"
	"strings"

	"github.com/quorate/quorate/proto"
)

const tokenVersion = "meta.k8s.io/v1"

// maxToken bounds a token in bytes. Keys are at most a few hundred.
const maxToken = 8 << 10

// Token is a list's position between pages. Clients carry it, so nothing in it
// is to be trusted: Start may point outside of what the client may list, and the
// reader must keep to its own prefix.
type Token struct {
	// Revision that all pages are read at. Zero with Latest.
	Revision proto.Revision
	// Latest says that the list goes on at the most recent state, which makes it
	// inconsistent: the client asked for that after its token had expired.
	Latest bool
	// Start is the first key of the next page, inclusive: the last key of the
	// page before and a zero byte.
	Start string
}

// After returns the token for the page behind key last.
func After(last string, at proto.Revision) Token {
	return Token{Revision: at, Start: last + "\x00"}
}

// AtLatest returns the token that goes on at the same key in the most recent
// state. It is the remedy that a client is offered when t has expired.
func (t Token) AtLatest() Token { return Token{Latest: true, Start: t.Start} }

type tokenJSON struct {
	Version  string `json:"v"`
	Revision int64  `json:"rv"`
	Start    string `json:"start"`
}

// Encode returns the form that clients see: unpadded base64url of JSON, of the
// same shape that upstream uses.
func (t Token) Encode() string {
	rv := int64(-1)
	if !t.Latest {
		// An index above 2^63 takes longer than the age of the universe.
		rv = int64(min(t.Revision, math.MaxInt64))
	}
	b, err := json.Marshal(tokenJSON{Version: tokenVersion, Revision: rv, Start: t.Start})
	if err != nil {
		panic(err) // strings and integers always marshal
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// DecodeToken parses what Encode returned. Errors: *Refusal (BadRequest).
func DecodeToken(s string) (Token, error) {
	refuse := func(format string, args ...any) (Token, error) {
		return Token{}, badRequest("invalid continue token: continue key is not valid" + fmt.Sprintf(format, args...))
	}
	if len(s) > maxToken {
		return refuse(": %d bytes are too long", len(s))
	}
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return refuse(": %v", err)
	}
	var j tokenJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return refuse(": %v", err)
	}
	switch {
	case j.Version != tokenVersion:
		return refuse(": server does not recognize this encoded version %s", j.Version)
	case j.Revision == 0:
		return refuse(": incorrect encoded start resourceVersion (version %s)", tokenVersion)
	case j.Start == "":
		return refuse(": encoded start key empty (version %s)", tokenVersion)
	}
	// A start that climbs out of its directory is an attack or a damaged token.
	key := j.Start
	if !strings.HasPrefix(key, "/") {
		key = "/" + key
	}
	if path.Clean(key) != key {
		return refuse(": %s", j.Start)
	}
	t := Token{Start: strings.TrimPrefix(j.Start, "/"), Latest: j.Revision < 0}
	if t.Start == "" {
		return refuse(": encoded start key empty (version %s)", tokenVersion)
	}
	if !t.Latest {
		t.Revision = proto.Revision(j.Revision)
	}
	return t, nil
}
