package auth

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/quorate/quorate/internal/settingfile"
)

// maxTokenFile bounds a file of tokens, in bytes.
const maxTokenFile = 16 << 20

// StaticTokens recognizes the tokens of a file. It is immutable.
type StaticTokens struct {
	// users are looked up by the hash of their token: how long that takes says nothing of a token.
	users map[[sha256.Size]byte]*User
}

var _ TokenAuthenticator = (*StaticTokens)(nil)

// ReadTokens reads a file in upstream's format (CSV: token, user, uid, and perhaps the groups in quotes,
// separated by commas). Of a token that is there twice, the last line counts. The file is not read again.
func ReadTokens(path string) (*StaticTokens, error) {
	text, err := settingfile.ReadOnce(path, maxTokenFile)
	if err != nil {
		return nil, err
	}
	t := &StaticTokens{users: map[[sha256.Size]byte]*User{}}
	r := csv.NewReader(bytes.NewReader(text))
	r.FieldsPerRecord = -1
	for line := 1; ; line++ {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			return t, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if len(record) < 3 {
			return nil, fmt.Errorf("%s: record %d has %d columns: token, user and uid are needed", path, line, len(record))
		}
		if record[0] == "" { // upstream passes over it, too
			continue
		}
		u := &User{Name: record[1], UID: record[2]}
		if len(record) > 3 && record[3] != "" {
			for _, group := range strings.Split(record[3], ",") {
				u.Groups = append(u.Groups, strings.TrimSpace(group))
			}
		}
		t.users[sha256.Sum256([]byte(record[0]))] = u
	}
}

// AuthenticateToken implements TokenAuthenticator.
func (t *StaticTokens) AuthenticateToken(_ context.Context, token string) (*User, bool, error) {
	u, ok := t.users[sha256.Sum256([]byte(token))]
	return u, ok, nil
}
