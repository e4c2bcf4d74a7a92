package commands

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/spf13/cobra"
)

// tryCommand runs a command line and returns what it prints.
func tryCommand(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	c := newCommand()
	c.SetArgs(args)
	c.SetOut(&out)
	c.SetErr(&out)
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

func runCommand(t *testing.T, args ...string) string {
	t.Helper()
	out, err := tryCommand(t, args...)
	if err != nil {
		t.Fatalf("quorate %s: %v", strings.Join(args, " "), err)
	}
	return out
}

func TestVersion(t *testing.T) {
	out := runCommand(t, "version")
	if !strings.HasPrefix(out, "quorate ") || !strings.Contains(out, "\nserves Kubernetes v1.36.3+quorate") {
		t.Errorf("got %s", out)
	}
	var v struct{ Version, Go, Kubernetes string }
	must.OK(t, json.Unmarshal([]byte(runCommand(t, "version", "-o", "json")), &v))
	if v.Version == "" || !strings.HasPrefix(v.Go, "go1.") || !strings.HasPrefix(v.Kubernetes, "v1.36.") {
		t.Errorf("got %+v", v)
	}
	if _, err := tryCommand(t, "version", "-o", "xml"); err == nil {
		t.Error("an unknown format was accepted")
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if out := runCommand(t, "completion", shell); !strings.Contains(out, "quorate") {
			t.Errorf("%s: %q", shell, out)
		}
	}
	if out := runCommand(t, "__complete", "member", ""); !strings.Contains(out, "transfer-leader") {
		t.Errorf("members are not completed: %s", out)
	}
}

// TestEveryCommandExplainsItself: help is what a newcomer reads first.
func TestEveryCommandExplainsItself(t *testing.T) {
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: the short help is %q", c.CommandPath(), c.Short)
		}
		if c.Runnable() && c.Args == nil {
			t.Errorf("%s takes any arguments", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newCommand())
}

// TestVersionFlag: what every other program has.
func TestVersionFlag(t *testing.T) {
	want := runCommand(t, "version")
	for _, flag := range []string{"--version", "-v"} {
		if got := runCommand(t, flag); got != want {
			t.Errorf("%s: %q, want %q", flag, got, want)
		}
	}
}

// TestUnknownSubcommands: every command with subcommands refuses what is none of them,
// however deep it is. A cron job with a typo must not succeed.
func TestUnknownSubcommands(t *testing.T) {
	var walk func(c *cobra.Command, path []string)
	walk = func(c *cobra.Command, path []string) {
		if !c.HasSubCommands() {
			return
		}
		// Of hidden ones nobody is told.
		name := c.Commands()[slices.IndexFunc(c.Commands(), func(sub *cobra.Command) bool { return !sub.Hidden })].Name()
		for _, args := range [][]string{append(slices.Clone(path), name+"x"), append([]string{"help"}, append(slices.Clone(path), name+"x")...)} {
			if _, err := tryCommand(t, args...); err == nil || !strings.Contains(err.Error(), `did you mean "`+name+`"?`) {
				t.Errorf("quorate %s: %v", strings.Join(args, " "), err)
			}
		}
		if out, err := tryCommand(t, append(path, "--frobnicate")...); err == nil || !strings.Contains(err.Error(), "unknown flag") {
			t.Errorf("quorate %s --frobnicate: %v (%s)", strings.Join(path, " "), err, out)
		}
		for _, sub := range c.Commands() {
			walk(sub, append(slices.Clone(path), sub.Name()))
		}
	}
	walk(newCommand(), nil)
}

// TestRefusedCommandLines: mistakes end with an error that names them.
func TestRefusedCommandLines(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	t.Setenv("HOME", t.TempDir())
	for _, x := range []struct {
		args []string
		want string
	}{
		{[]string{"nodes"}, "unknown command"},
		{[]string{"node", "extra"}, `unexpected argument "extra"`},
		{[]string{"node", "--nmae=a"}, "unknown flag: --nmae"},
		{[]string{"node", "--api-address=nowhere"}, "api-address"},
		{[]string{"config", "validate", "--log-level=loud"}, "log-level"},
		{[]string{"dev", "start", "--data-dir", t.TempDir()}, "there is no playground cluster"},
		{[]string{"dev", "stop", "--data-dir", t.TempDir()}, "there is no playground cluster"},
		{[]string{"status"}, ".kube/config"},
		{[]string{"status", "-o", "yaml"}, "must be table or json"},
		{[]string{"member", "promote"}, "MEMBER is missing: quorate member promote MEMBER"},
		{[]string{"member", "remove", "n2", "--keep-tokens", "24h"}, "with a time, the flag is --keep-tokens=24h"},
		{[]string{"member", "remove", "--keep-tokens", "24h", "n2"}, "with a time, the flag is --keep-tokens=24h"},
		{[]string{"member", "remove", "n2", "--keep-tokens="}, "--keep-tokens= has no time"},
		{[]string{"member", "remove", "n2", "--keep-tokens=-1h"}, "must be a time from 1s"},
		{[]string{"member", "remove", "n2", "n3", "--keep-tokens"}, "unexpected argument \"n3\"; it is: quorate"},
		{[]string{"snapshot", "restore", "x"}, "data-dir"},
		{[]string{"snapshot", "verify", "/nowhere/at/all"}, "no such file"},
	} {
		out, err := tryCommand(t, x.args...)
		if err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("quorate %s: %v, want %q in it (%s)", strings.Join(x.args, " "), err, x.want, out)
		}
	}
}
