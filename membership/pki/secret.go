package pki

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

const (
	secretBytes      = 32
	minSecretChars   = 32 // 128 bits, written as hex digits
	minDistinctChars = 8  // a sentence of one letter is no secret
	maxSecretFile    = 4096
	maxSecrets       = 4
)

// ErrSecret is returned for a cluster secret that is too short, malformed, or
// readable by everyone.
var ErrSecret = errors.New("bad cluster secret")

// Secret is a cluster secret. It prints as a placeholder; Reveal returns it.
type Secret struct{ text string }

// NewSecret returns a random one of 256 bits.
func NewSecret() Secret {
	b := make([]byte, secretBytes)
	rand.Read(b) // never fails
	return Secret{hex.EncodeToString(b)}
}

// Reveal returns the text of the secret, as it stands in the token file.
func (s Secret) Reveal() string { return s.text }

// String keeps the secret out of logs.
func (Secret) String() string { return "(cluster secret)" }

// GoString keeps the secret out of %#v.
func (s Secret) GoString() string { return s.String() }

// ParseSecrets reads the text of a token file: one secret per line, blank lines
// and lines that begin with # left out. The first is used to sign; the others
// are only trusted, for the time in which a cluster changes its secret. Each
// must have at least 32 characters out of letters, digits and "+/=_.-", as clusters may
// have had from their beginning; new ones ask for more (Guessable), which
// `openssl rand -hex 32` gives.
func ParseSecrets(text string) ([]Secret, error) {
	if len(text) > maxSecretFile {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrSecret, maxSecretFile)
	}
	var out []Secret
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if err := checkSecret(line); err != nil {
			return nil, err
		}
		for _, s := range out {
			if s.text == line {
				return nil, fmt.Errorf("%w: the same one twice", ErrSecret)
			}
		}
		out = append(out, Secret{line})
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w: empty", ErrSecret)
	}
	if len(out) > maxSecrets {
		return nil, fmt.Errorf("%w: more than %d", ErrSecret, maxSecrets)
	}
	return out, nil
}

func checkSecret(s string) error {
	if len(s) < minSecretChars {
		return fmt.Errorf("%w: %d characters; at least %d are needed (try `openssl rand -hex 32`)", ErrSecret, len(s), minSecretChars)
	}
	var seen [256]bool
	distinct := 0
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("+/=_.-", c) >= 0:
		default:
			return fmt.Errorf("%w: character %q at %d", ErrSecret, c, i)
		}
		if !seen[c] {
			seen[c] = true
			distinct++
		}
	}
	if distinct < minDistinctChars {
		return fmt.Errorf("%w: it repeats a few characters", ErrSecret)
	}
	return nil
}

// Bounds of secrets of 256 bits, by their form.
const (
	strongHex    = 64 // digits
	strongBase64 = 43 // characters, without padding
	eachCase     = 3  // of 43 random characters of base64, fewer are of one case once in a million times
)

// Guessable reports whether a secret does not look like 256 random bits: 64 hexadecimal digits, or
// 43 characters of base64. Every certificate of the cluster tells who guesses the secret that he
// is right, and asks nobody; a passphrase does not last.
func (s Secret) Guessable() bool {
	text := strings.TrimRight(s.text, "=")
	hexDigits, upper, lower := 0, 0, 0
	for i := range len(text) {
		c := text[i]
		switch {
		case '0' <= c && c <= '9', 'a' <= c && c <= 'f', 'A' <= c && c <= 'F':
			hexDigits++
		case c == '.': // of neither
			return true
		}
		switch {
		case 'a' <= c && c <= 'z':
			lower++
		case 'A' <= c && c <= 'Z':
			upper++
		}
	}
	if hexDigits == len(text) && len(text) >= strongHex {
		return false
	}
	return len(text) < strongBase64 || min(upper, lower) < eachCase
}

// LoadSecrets reads a token file. It refuses one that everyone can read.
func LoadSecrets(path string) ([]Secret, error) {
	f, err := openAny(path)
	if err != nil {
		return nil, fmt.Errorf("cluster secret: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("cluster secret: %w", err)
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %s is not a file", ErrSecret, path)
	}
	if st.Mode().Perm()&0o007 != 0 {
		return nil, fmt.Errorf("%w: %s can be read by everyone (mode %04o); chmod 600 it", ErrSecret, path, st.Mode().Perm())
	}
	b := make([]byte, maxSecretFile+1)
	n := 0
	for n < len(b) {
		k, err := f.Read(b[n:])
		n += k
		if err != nil || k == 0 {
			break
		}
	}
	secrets, err := ParseSecrets(string(b[:n]))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return secrets, nil
}

// SaveSecrets writes a token file with mode 0600. It never replaces one: it
// fails with an error that wraps fs.ErrExist.
func SaveSecrets(path string, secrets []Secret) error {
	var b strings.Builder
	b.WriteString("# Cluster secret of Quorate: the same on all nodes. Anyone who reads it owns the cluster.\n")
	for _, s := range secrets {
		b.WriteString(s.text + "\n")
	}
	return createFile(path, []byte(b.String()), ModeSecret)
}

// LoadOrCreateSecrets reads a token file, or makes one with a new secret. Only
// a node that is to start a cluster alone, or with others that get the file
// copied, may call it; created says that it was made.
func LoadOrCreateSecrets(path string) (secrets []Secret, created bool, err error) {
	secrets, err = LoadSecrets(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return secrets, false, err
	}
	secrets = []Secret{NewSecret()}
	err = SaveSecrets(path, secrets)
	if errors.Is(err, fs.ErrExist) { // another process was faster: its secret counts
		secrets, err = LoadSecrets(path)
		return secrets, false, err
	}
	return secrets, err == nil, err
}
