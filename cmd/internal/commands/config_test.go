package commands

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/controllers"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/internal/standins"
	"github.com/quorate/quorate/node"
	"github.com/spf13/pflag"
)

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "node.yaml")
	must.OK(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// TestPrecedence: a flag wins over the environment, that over the file, that over
// the default; and each setting's origin is known.
func TestPrecedence(t *testing.T) {
	file := writeConfig(t, "name: file\npeer-address: 10.0.0.1:1\nheartbeat-timeout: 3s\njoin: [a:1, \"[::1]:2\"]\ntrailing-logs: 7\nnonvoter: true\n")
	env := []string{"QUORATE_NAME=env", "QUORATE_PEER_ADDRESS=10.0.0.2:2", "QUORATE_TLS_SAN=x,y", "QUORATE_CONFIG=ignored", "QUORATE_LOG_LEVEL=", "PATH=/bin"}
	var c settings
	f := c.flags()
	must.OK(t, f.Parse([]string{"--name=flag", "--snapshot-entries=9"}))
	origins, err := resolve(f, file, nil, env)
	must.OK(t, err)
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
			_, err := resolve(new(settings).flags(), writeConfig(t, x.file), nil, x.env)
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
	if _, err := resolve(new(settings).flags(), filepath.Join(t.TempDir(), "absent"), nil, nil); err == nil {
		t.Error("a file that is not there was accepted")
	}
}

func TestConfigFromStdin(t *testing.T) {
	var c settings
	if _, err := resolve(c.flags(), "-", strings.NewReader("name: piped\n"), nil); err != nil || c.Name != "piped" {
		t.Errorf("name %q, %v", c.Name, err)
	}
}

// TestComplete: what package node does not know is checked too, after what it does.
func TestComplete(t *testing.T) {
	for _, x := range []struct {
		name   string
		change func(*settings)
		want   string // the error; "" for valid
	}{
		{"defaults", func(*settings) {}, ""},
		{"log format", func(s *settings) { s.LogFormat = "xml" }, `log-format: "xml": must be auto, text or json`},
		{"log level", func(s *settings) { s.LogLevel = "loud" }, `log-level: "loud": must be debug, info, warn or error`},
		{"both kinds", func(s *settings) { s.LogLevel, s.BootstrapExpect = "loud", 10 },
			"bootstrap-expect: 10: must be 0 to 9\nbootstrap-expect: 10 nodes need --join with each other's peer addresses\nlog-level: \"loud\": must be debug, info, warn or error"},
	} {
		t.Run(x.name, func(t *testing.T) {
			s := &settings{}
			s.flags()
			s.Name = "n1"
			x.change(s)
			err := s.complete()
			if got := fmt.Sprint(err); got != cmp.Or(x.want, "<nil>") {
				t.Errorf("got %s, want %s", got, x.want)
			}
		})
	}
}

// TestConfigNamesItsFlags: the documentation of a node's Config says which setting is which flag.
func TestConfigNamesItsFlags(t *testing.T) {
	b, err := os.ReadFile("../../../node/config.go")
	must.OK(t, err)
	named := map[string]bool{}
	text := regexp.MustCompile(`\s*\n\s*//\s*`).ReplaceAllString(string(b), " ")
	for _, m := range regexp.MustCompile(`\(([a-z0-9-]+(?:, [a-z0-9-]+)*)(?:;[^)]*)?\)`).FindAllStringSubmatch(text, -1) {
		for name := range strings.SplitSeq(m[1], ", ") {
			named[name] = true
		}
	}
	new(settings).flags().VisitAll(func(f *pflag.Flag) {
		if own := f.Name == "log-format" || f.Name == "log-level"; named[f.Name] == own {
			t.Errorf("node/config.go names the flag (%s) in the comment of a field: %t, want %t", f.Name, named[f.Name], !own)
		}
	})
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
	var plain, loaded settings
	defaultFlags, f := plain.flags(), loaded.flags()
	origins, err := resolve(f, writeConfig(t, text.String()), nil, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, text.String())
	}
	if got := defaultFlags.Lookup("history-retention").Value.String(); got != "5m0s" {
		t.Errorf("the history is of %s, clients are told of five minutes", got)
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
	var want, got settings
	f := want.flags()
	must.OK(t, f.Parse(args))
	must.OK(t, want.complete())
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
	b, err := os.ReadFile("../../../deploy/quorate.env")
	must.OK(t, err)
	found := 0
	for _, m := range regexp.MustCompile(`(?m)^#?(QUORATE_[A-Z_]+=\S*)$`).FindAllSubmatch(b, -1) {
		found++
		if _, err := resolve(new(settings).flags(), "", nil, []string{string(m[1])}); err != nil {
			t.Error(err)
		}
	}
	if found == 0 {
		t.Error("no settings were found")
	}
}

// TestDeployControllers: kube-controller-manager's unit leaves to the nodes what they do by default.
func TestDeployControllers(t *testing.T) {
	b, err := os.ReadFile("../../../deploy/systemd/kube-controller-manager.service")
	must.OK(t, err)
	want, err := controllers.ManagerList(node.Defaults().Controllers)
	if err != nil || !strings.Contains(string(b), "\nEnvironment=CONTROLLERS="+want+"\n") {
		t.Errorf("deploy/systemd/kube-controller-manager.service must have the line Environment=CONTROLLERS=%s (%v)", want, err)
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
		flags := new(settings).flags()
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

// TestEndlessConfig: a configuration from a pipe that does not end is refused before it is held.
func TestEndlessConfig(t *testing.T) {
	var endless standins.Endless
	if _, err := readConfigFile("-", &endless); err == nil || !strings.Contains(err.Error(), "larger than") || endless.Taken() > maxConfigBytes+1 {
		t.Errorf("%d bytes were read: %v", endless.Taken(), err)
	}
}
