package main

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/membership/pki"
)

func bareNode(t *testing.T) *node {
	t.Helper()
	return &node{cfg: &Config{DataDir: t.TempDir()}, log: slog.New(slog.DiscardHandler)}
}

// TestSecrets: where a node's secret comes from.
func TestSecrets(t *testing.T) {
	t.Run("alone", func(t *testing.T) {
		n := bareNode(t)
		n.cfg.BootstrapExpect = 1
		first, err := n.secrets(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		again, err := n.secrets(t.Context())
		if err != nil || len(again) != len(first) {
			t.Errorf("the second start: %d secrets, %v", len(again), err)
		}
	})
	t.Run("none", func(t *testing.T) {
		n := bareNode(t)
		n.cfg.BootstrapExpect = 3
		_, err := n.secrets(t.Context())
		for _, way := range []string{"--bootstrap-expect 1", "openssl rand", "quorate token create"} {
			if err == nil || !strings.Contains(err.Error(), way) {
				t.Errorf("%q is not in: %v", way, err)
			}
		}
		if _, err := os.Stat(filepath.Join(n.cfg.DataDir, "token")); !errors.Is(err, fs.ErrNotExist) {
			t.Error("a secret was made that the other nodes do not have")
		}
	})
	t.Run("readable by all", func(t *testing.T) {
		n := bareNode(t)
		n.cfg.JoinToken = "never asked"
		file := filepath.Join(n.cfg.DataDir, "token")
		if _, _, err := pki.LoadOrCreateSecrets(file); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := n.secrets(t.Context()); err == nil || !strings.Contains(err.Error(), "chmod 600") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("malformed join token", func(t *testing.T) {
		n := bareNode(t)
		n.cfg.JoinToken, n.cfg.Join = "what?", []string{"a:6443"}
		if _, err := n.secrets(t.Context()); err == nil {
			t.Error("accepted")
		}
		n.cfg.JoinToken = "@" + filepath.Join(t.TempDir(), "absent")
		if _, err := n.secrets(t.Context()); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("got %v", err)
		}
	})
}

// TestSecondStartAfterJoin: a first start that failed after the exchange of the
// token left all that the second one needs.
func TestSecondStartAfterJoin(t *testing.T) {
	n := bareNode(t)
	n.cfg.JoinToken, n.cfg.Join = "used up", []string{"a:6443"}
	peers := []string{"a:7443", "b:7443"}
	if err := n.keepPeers(peers); err != nil {
		t.Fatal(err)
	}
	if _, _, err := pki.LoadOrCreateSecrets(filepath.Join(n.cfg.DataDir, "token")); err != nil {
		t.Fatal(err)
	}
	if _, err := n.secrets(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(n.cfg.Join, peers) {
		t.Errorf("joins %q, want %q", n.cfg.Join, peers)
	}
}
