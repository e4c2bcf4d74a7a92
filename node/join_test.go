package node

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/membership/pki"
)

func bareSource(t *testing.T) *secretSource {
	t.Helper()
	return &secretSource{cfg: &Config{DataDir: t.TempDir()}, log: slog.New(slog.DiscardHandler)}
}

// TestSecrets: where a node's secret comes from.
func TestSecrets(t *testing.T) {
	t.Run("alone", func(t *testing.T) {
		s := bareSource(t)
		s.cfg.BootstrapExpect = 1
		first, err := s.load(t.Context())
		must.OK(t, err)
		again, err := s.load(t.Context())
		if err != nil || len(again) != len(first) {
			t.Errorf("the second start: %d secrets, %v", len(again), err)
		}
	})
	t.Run("none", func(t *testing.T) {
		s := bareSource(t)
		s.cfg.BootstrapExpect = 3
		_, err := s.load(t.Context())
		for _, way := range []string{"--bootstrap-expect 1", "openssl rand", "quorate token create"} {
			if err == nil || !strings.Contains(err.Error(), way) {
				t.Errorf("%q is not in: %v", way, err)
			}
		}
		if _, err := os.Stat(filepath.Join(s.cfg.DataDir, "token")); !errors.Is(err, fs.ErrNotExist) {
			t.Error("a secret was made that the other nodes do not have")
		}
	})
	t.Run("readable by all", func(t *testing.T) {
		s := bareSource(t)
		s.cfg.JoinToken = "never asked"
		file := filepath.Join(s.cfg.DataDir, "token")
		if _, _, err := pki.LoadOrCreateSecrets(file); err != nil {
			t.Fatal(err)
		}
		must.OK(t, os.Chmod(file, 0o644))
		if _, err := s.load(t.Context()); err == nil || !strings.Contains(err.Error(), "chmod 600") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("malformed join token", func(t *testing.T) {
		s := bareSource(t)
		s.cfg.JoinToken, s.cfg.Join = "what?", []string{"a:6443"}
		if _, err := s.load(t.Context()); err == nil {
			t.Error("accepted")
		}
		s.cfg.JoinToken = "@" + filepath.Join(t.TempDir(), "absent")
		if _, err := s.load(t.Context()); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("got %v", err)
		}
	})
}

// TestGuessableSecret: no cluster begins with a secret that could be guessed; one that has begun goes on.
func TestGuessableSecret(t *testing.T) {
	const (
		phrase = "correct-horse-battery-staple-correct-horse-battery-staple"
		strong = "n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgg="
		node   = `{"version":1,"nodeID":"00112233445566778899aabbccddeeff","name":"n1","clusterID":"c"}`
		alone  = `{"version":1,"nodeID":"00112233445566778899aabbccddeeff","name":"n1"}`
	)
	for _, row := range []struct {
		name    string
		secrets []string
		files   map[string]string // of the data directory
		join    string            // the token
		warns   int
		refused bool
	}{
		{"new, strong", []string{strong}, nil, "", 0, false},
		{"new", []string{phrase}, nil, "", 0, true},
		{"new, and trusts one that was", []string{strong, phrase}, nil, "", 1, false},
		{"joins by token", []string{phrase}, nil, "token", 1, false},
		{"has a cluster", []string{phrase}, map[string]string{"node.json": node}, "", 1, false},
		{"restored", []string{phrase, strong}, map[string]string{"node.json": alone, "state.db": ""}, "", 1, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := bareSource(t)
			s.cfg.JoinToken = row.join
			var lines bytes.Buffer
			s.log = slog.New(slog.NewTextHandler(&lines, nil))
			for name, text := range row.files {
				must.OK(t, os.WriteFile(filepath.Join(s.cfg.DataDir, name), []byte(text), 0o600))
			}
			var err error
			if s.identity, err = membership.LoadIdentity(s.cfg.DataDir, "n1"); err != nil {
				t.Fatal(err)
			}
			secrets, err := pki.ParseSecrets(strings.Join(row.secrets, "\n"))
			must.OK(t, err)
			if err := s.check(secrets); errors.Is(err, pki.ErrSecret) != row.refused || (err != nil) != row.refused {
				t.Errorf("%v, want refused: %v", err, row.refused)
			} else if row.refused && !strings.Contains(err.Error(), "openssl rand -hex 32") {
				t.Errorf("it does not say what to do: %v", err)
			}
			if got := strings.Count(lines.String(), "level=WARN"); got != row.warns || strings.Contains(lines.String(), phrase) {
				t.Errorf("%d warnings, want %d: %s", got, row.warns, &lines)
			}
		})
	}
}

// TestSecondStartAfterJoin: a first start that failed after the exchange of the
// token left all that the second one needs.
func TestSecondStartAfterJoin(t *testing.T) {
	s := bareSource(t)
	s.cfg.JoinToken, s.cfg.Join = "used up", []string{"a:6443"}
	peers := []string{"a:7443", "b:7443"}
	must.OK(t, s.keepPeers(peers))
	if _, _, err := pki.LoadOrCreateSecrets(filepath.Join(s.cfg.DataDir, "token")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(s.cfg.Join, peers) {
		t.Errorf("joins %q, want %q", s.cfg.Join, peers)
	}
}
