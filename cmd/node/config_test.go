package main

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "node.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestPrecedence: a flag wins over the environment, that over the file, that over
// the default; and each setting's origin is known.
func TestPrecedence(t *testing.T) {
	file := writeConfig(t, "name: file\npeer-address: 10.0.0.1:1\nheartbeat-timeout: 3s\njoin: [a:1, \"[::1]:2\"]\ntrailing-logs: 7\nnonvoter: true\n")
	env := []string{"QUORATE_NAME=env", "QUORATE_PEER_ADDRESS=10.0.0.2:2", "QUORATE_TLS_SAN=x,y", "QUORATE_CONFIG=ignored", "QUORATE_LOG_LEVEL=", "PATH=/bin"}
	var c Config
	f := c.flags()
	if err := f.Parse([]string{"--name=flag", "--snapshot-entries=9"}); err != nil {
		t.Fatal(err)
	}
	origins, err := resolve(f, file, nil, env)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		name, value string
		from        origin
	}{
		{"name", "flag", fromFlag},
		{"snapshot-entries", "9", fromFlag},
		{"peer-address", "10.0.0.2:2", fromEnv},
		{"tls-san", "[x,y]", fromEnv},
		{"heartbeat-timeout", "3s", fromFile},
		{"join", "[a:1,[::1]:2]", fromFile},
		{"trailing-logs", "7", fromFile},
		{"nonvoter", "true", fromFile},
		{"log-level", "info", fromDefault}, // an empty variable is no setting
		{"election-timeout", "2s", fromDefault},
	} {
		if got := f.Lookup(x.name).Value.String(); got != x.value || origins[x.name] != x.from {
			t.Errorf("%s is %s from the %s, want %s from the %s", x.name, got, origins[x.name], x.value, x.from)
		}
	}
	if c.HeartbeatTimeout != 3*time.Second || len(c.Join) != 2 || c.Join[1] != "[::1]:2" {
		t.Errorf("heartbeat %s, join %q", c.HeartbeatTimeout, c.Join)
	}
}

// TestRefusedSettings: what is misspelt or malformed is refused by name, and all
// of it at once.
func TestRefusedSettings(t *testing.T) {
	for _, x := range []struct {
		name, file string
		env        []string
		want       []string
	}{
		{"unknown key", "nmae: a\n", nil, []string{`there is no setting "nmae"`}},
		{"unknown variable", "", []string{"QUORATE_NMAE=a"}, []string{"QUORATE_NMAE", `there is no setting "nmae"`}},
		{"unknown empty variable", "", []string{"QUORATE_NMAE="}, []string{"QUORATE_NMAE"}},
		{"several", "nmae: a\npear: b\n", []string{"QUORATE_X=1"}, []string{"nmae", "pear", "QUORATE_X"}},
		{"duration in the file", "heartbeat-timeout: soon\n", nil, []string{"heartbeat-timeout", "soon"}},
		{"duration in a variable", "", []string{"QUORATE_HEARTBEAT_TIMEOUT=2"}, []string{"environment: heartbeat-timeout"}},
		{"number", "bootstrap-expect: three\n", nil, []string{"bootstrap-expect"}},
		{"fraction for a whole number", "bootstrap-expect: 1.5\n", nil, []string{"bootstrap-expect"}},
		{"negative for an unsigned one", "trailing-logs: -1\n", nil, []string{"trailing-logs"}},
		{"boolean", "nonvoter: maybe\n", nil, []string{"nonvoter"}},
		{"no value", "name:\n", nil, []string{"name: a value or a list is needed"}},
		{"a map", "name: {a: b}\n", nil, []string{"name: a value or a list is needed"}},
		{"a list in a list", "join: [[a]]\n", nil, []string{"join: item 1"}},
		{"twice", "name: a\nname: b\n", nil, []string{"name"}},
		{"not a map", "- a\n", nil, []string{"node.yaml"}},
		{"not YAML", "a: [\n", nil, []string{"node.yaml"}},
		{"too large", "# " + strings.Repeat("x", maxConfigBytes), nil, []string{"larger than"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			_, err := resolve(new(Config).flags(), writeConfig(t, x.file), nil, x.env)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, w := range x.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q is not in: %v", w, err)
				}
			}
		})
	}
	if _, err := resolve(new(Config).flags(), filepath.Join(t.TempDir(), "absent"), nil, nil); err == nil {
		t.Error("a file that is not there was accepted")
	}
}

func TestConfigFromStdin(t *testing.T) {
	var c Config
	if _, err := resolve(c.flags(), "-", strings.NewReader("name: piped\n"), nil); err != nil || c.Name != "piped" {
		t.Errorf("name %q, %v", c.Name, err)
	}
}

// defaults is a configuration with nothing but defaults and a name.
func defaults(t *testing.T) *Config {
	t.Helper()
	c := &Config{}
	c.flags()
	c.Name = "n1"
	return c
}

func TestComplete(t *testing.T) {
	for _, x := range []struct {
		name   string
		change func(*Config)
		want   string // in the error; "" for valid
	}{
		{"defaults", func(*Config) {}, ""},
		{"all interfaces", func(c *Config) { c.APIListen, c.APIAdvertise = ":6443", "a:6443" }, ""},
		{"three nodes", func(c *Config) { c.BootstrapExpect, c.Join = 3, []string{"a:1", "b:1", "[::1]:1"} }, ""},
		{"a join token", func(c *Config) { c.JoinToken, c.Join = "t", []string{"https://a:6443"} }, ""},
		{"no name", func(c *Config) { c.Name = "" }, "name: must not be empty"},
		{"no directory", func(c *Config) { c.DataDir = "" }, "data-dir: must not be empty"},
		{"no port", func(c *Config) { c.APIListen = "a" }, `api-address: "a": must be host:port`},
		{"a word for a port", func(c *Config) { c.PeerListen = "a:http" }, "peer-address: a:http: the port"},
		{"a large port", func(c *Config) { c.PeerListen = "a:65536" }, "peer-address: a:65536: the port"},
		{"no address for others", func(c *Config) { c.APIListen = "0.0.0.0:6443" }, "api-advertise-address: 0.0.0.0:6443 cannot be reached"},
		{"no host for others", func(c *Config) { c.PeerListen = ":7443" }, "peer-advertise-address: :7443 cannot be reached"},
		{"any port for others", func(c *Config) { c.PeerAdvertise = "a:0" }, "peer-advertise-address: a:0 cannot be reached"},
		{"join without port", func(c *Config) { c.Join = []string{"a:1", "b"} }, "join: item 2"},
		{"too many", func(c *Config) { c.BootstrapExpect = 10 }, "bootstrap-expect: 10"},
		{"below none", func(c *Config) { c.BootstrapExpect = -1 }, "bootstrap-expect: -1"},
		{"expect without join", func(c *Config) { c.BootstrapExpect = 3 }, "3 nodes need --join"},
		{"token and expect", func(c *Config) { c.JoinToken, c.Join, c.BootstrapExpect = "t", []string{"a:1"}, 1 }, "exclude each other"},
		{"token without join", func(c *Config) { c.JoinToken = "t" }, "join-token: needs --join"},
		{"lease beyond heartbeat", func(c *Config) { c.LeaseTimeout = c.HeartbeatTimeout + 1 }, "leader-lease-timeout"},
		{"election below heartbeat", func(c *Config) { c.ElectionTimeout = c.HeartbeatTimeout - 1 }, "election-timeout"},
		{"no heartbeat", func(c *Config) { c.HeartbeatTimeout, c.LeaseTimeout = 0, 0 }, "heartbeat-timeout: 0s: must be at least"},
		{"no patience with the disk", func(c *Config) { c.HungDiskTimeout = 0 }, "hung-disk-timeout: 0s"},
		{"negative grace", func(c *Config) { c.ShutdownGrace = -1 }, "shutdown-grace: -1ns"},
		{"no history", func(c *Config) { c.HistoryRetention = time.Second }, "history-retention: 1s"},
		{"long history", func(c *Config) { c.HistoryRetention = 10 * time.Minute }, "history-retention: 10m0s"},
		{"no bytes of the log for a snapshot", func(c *Config) { c.SnapshotLogBytes = 0 }, "snapshot-log-max-bytes: 0"},
		{"no bytes for history", func(c *Config) { c.HistoryMaxBytes = 0 }, "history-max-bytes: 0"},
		{"no trailing logs", func(c *Config) { c.TrailingLogs = 0 }, "trailing-logs: 0"},
		{"log format", func(c *Config) { c.LogFormat = "xml" }, `log-format: "xml"`},
		{"log level", func(c *Config) { c.LogLevel = "loud" }, `log-level: "loud"`},
	} {
		t.Run(x.name, func(t *testing.T) {
			c := defaults(t)
			x.change(c)
			err := c.complete()
			switch {
			case x.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want)):
				t.Errorf("got %v, want %q in it", err, x.want)
			}
		})
	}
}

func TestCompleteFillsIn(t *testing.T) {
	c := defaults(t)
	c.DataDir = "here"
	if err := c.complete(); err != nil {
		t.Fatal(err)
	}
	if c.APIAdvertise != c.APIListen || c.PeerAdvertise != c.PeerListen || !filepath.IsAbs(c.DataDir) {
		t.Errorf("advertise %s and %s, directory %s", c.APIAdvertise, c.PeerAdvertise, c.DataDir)
	}
}

// TestDefaultFileLoads: what `config default` prints is, uncommented, a file that
// changes nothing.
func TestDefaultFileLoads(t *testing.T) {
	out := runCommand(t, "config", "default")
	var text strings.Builder
	for s := bufio.NewScanner(strings.NewReader(out)); s.Scan(); {
		if line, ok := strings.CutPrefix(s.Text(), "#"); ok && !strings.HasPrefix(line, " ") {
			text.WriteString(line + "\n")
		}
	}
	var plain, loaded Config
	defaultFlags, f := plain.flags(), loaded.flags()
	origins, err := resolve(f, writeConfig(t, text.String()), nil, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, text.String())
	}
	defaultFlags.VisitAll(func(flag *pflag.Flag) {
		if got := f.Lookup(flag.Name).Value.String(); got != flag.Value.String() || origins[flag.Name] != fromFile {
			t.Errorf("%s is %q from the %s, want %q from the file", flag.Name, got, origins[flag.Name], flag.Value)
		}
	})
}

// TestViewLoads: what `config view` prints gives the same configuration, whatever
// YAML would make of the values.
func TestViewLoads(t *testing.T) {
	args := []string{"--name=on", "--join=[::1]:1,b:2", "--tls-san=a: b", "--token-file=# no comment", "--data-dir=/1e3"}
	out := runCommand(t, append([]string{"config", "view"}, args...)...)
	var want, got Config
	f := want.flags()
	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}
	if err := want.complete(); err != nil {
		t.Fatal(err)
	}
	g := got.flags()
	if _, err := resolve(g, writeConfig(t, out), nil, nil); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	f.VisitAll(func(flag *pflag.Flag) {
		if v := g.Lookup(flag.Name).Value.String(); v != flag.Value.String() {
			t.Errorf("%s is %q, want %q", flag.Name, v, flag.Value)
		}
	})
}

func TestViewShowsOrigins(t *testing.T) {
	file := writeConfig(t, "promote-after: 11s\n")
	t.Setenv("QUORATE_SHUTDOWN_GRACE", "12s")
	out := runCommand(t, "config", "view", "--show-origin", "--config", file, "--name=me")
	for _, want := range []string{`name +me +flag`, `shutdown-grace +12s +environment`, `promote-after +11s +file`, `log-level +info +default`} {
		if !regexp.MustCompile(`(?m)^` + want + `$`).MatchString(out) {
			t.Errorf("no line %q in\n%s", want, out)
		}
	}
}

// TestDeployEnvironment: every setting in the environment file exists.
func TestDeployEnvironment(t *testing.T) {
	b, err := os.ReadFile("../../deploy/quorate.env")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, m := range regexp.MustCompile(`(?m)^#?(QUORATE_[A-Z_]+=\S*)$`).FindAllSubmatch(b, -1) {
		found++
		if _, err := resolve(new(Config).flags(), "", nil, []string{string(m[1])}); err != nil {
			t.Error(err)
		}
	}
	if found == 0 {
		t.Error("no settings were found")
	}
}

// FuzzParseConfig: a configuration file is refused or read, and what was read can
// be given to flags or is refused by them; nothing panics.
func FuzzParseConfig(f *testing.F) {
	for _, s := range []string{"", "name: a", "join: [a, b]", "a: 1e400", "a: {b: c}", "a: &x [*x]", "? {a: b}\n: c", "a: 0x1F", "a: 2001-01-01", "nonvoter: yes\ntrailing-logs: 1.5", "\x00", "a: !!binary Zm9v"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		values, err := parseConfig(b, "fuzz")
		if err != nil {
			return
		}
		again, err := parseConfig(bytes.Clone(b), "fuzz")
		if err != nil || len(again) != len(values) {
			t.Fatalf("read twice: %v and %v (%v)", values, again, err)
		}
		flags := new(Config).flags()
		for name, v := range values {
			if again[name] != v {
				t.Errorf("%s: %q, then %q", name, v, again[name])
			}
			if flags.Lookup(name) != nil {
				_ = flags.Set(name, v) // may refuse it
			}
		}
	})
}
