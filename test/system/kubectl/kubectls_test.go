package kubectl

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// sessionCommands is how many commands the session of the newer kubectls has.
const sessionCommands = 61

// TestKubectls runs one session with the kubectl of the minor before ours, with ours
// and with the one after it, as `make kubectls` builds them, and with the old one that
// Debian has.
func TestKubectls(t *testing.T) {
	c := cluster.Shared(t)
	for _, name := range []string{"kubectl-1.35", "kubectl", "kubectl-1.37", "kubectl-debian"} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(filepath.Dir(cluster.KubectlPath()), name)
			if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
				t.Fatalf("%v: run 'make kubectls'", err)
			}
			// A home of its own: its caches are not for other versions.
			s := &session{Round: cluster.Round{Cluster: c}, path: path, home: t.TempDir(), ns: "session-" + strings.ReplaceAll(name, ".", "-")}
			s.minor = s.version(t)
			ran := 0
			for _, command := range readSession(t, s.minor, s.ns) {
				s.run(t, command)
				ran++
			}
			if want := sessionCommands; s.minor >= 35 && ran != want {
				t.Errorf("a session of %d commands, want %d", ran, want)
			}
			t.Logf("kubectl 1.%d ran %d commands", s.minor, ran)
		})
	}
}

// session is a kubectl and where it works.
type session struct {
	cluster.Round
	path, home, ns string
	minor          int
}

// version is the minor of this kubectl.
func (s *session) version(t *testing.T) int {
	t.Helper()
	out := s.kubectlOf(t, "", nil, "version", "--client", "-o", "json")
	var v struct{ ClientVersion struct{ Minor string } }
	if err := json.Unmarshal([]byte(out.Stdout), &v); err != nil {
		t.Fatalf("%v in %s%s", err, out.Stdout, out.Stderr)
	}
	minor, err := strconv.Atoi(v.ClientVersion.Minor)
	must.OK(t, err)
	return minor
}

func (s *session) kubectlOf(t *testing.T, stdin string, env []string, args ...string) cluster.Output {
	t.Helper()
	return s.Node().RunKubectl(t, s.path, append([]string{"HOME=" + s.home}, env...), stdin, args...)
}

func (s *session) run(t *testing.T, c sessionCommand) {
	t.Helper()
	out := s.kubectlOf(t, c.stdin, c.env, append([]string{"-n", s.ns}, c.words...)...)
	switch wrong := c.wrong(out); {
	case c.notYet != "" && wrong == "":
		t.Errorf("%s: kubectl %s: it does today: take the line not-yet away", c.at, strings.Join(c.words, " "))
	case c.notYet == "" && wrong != "":
		t.Errorf("%s: kubectl %s: want %s; exit code %d\n%s%s", c.at, strings.Join(c.words, " "), wrong, out.Code, out.Stdout, out.Stderr)
	}
}

// wrong says what the end of a command lacks.
func (c sessionCommand) wrong(out cluster.Output) string {
	if out.Code != c.code {
		return "exit code " + strconv.Itoa(c.code)
	}
	for _, e := range c.expect {
		var lines []string
		if e.where != "err" {
			lines = append(lines, strings.Split(out.Stdout, "\n")...)
		}
		if e.where != "out" {
			lines = append(lines, strings.Split(out.Stderr, "\n")...)
		}
		found := false
		for _, line := range lines {
			found = found || e.like.MatchString(line)
		}
		if found != (e.where != "none") {
			return e.where + " " + e.like.String()
		}
	}
	return ""
}

// sessionCommand is a command of testdata/kubectl.txt.
type sessionCommand struct {
	at     string
	env    []string
	words  []string
	stdin  string
	code   int
	notYet string
	expect []expectation
}

type expectation struct {
	where string // out, err, none
	like  *regexp.Regexp
}

var (
	sessionLine = regexp.MustCompile(`^(?:\[(>=|<)1\.(\d+)\] )?(\$|\||exit|not-yet|out|err|none) (.*)$`)
	sessionWord = regexp.MustCompile(`(?:'[^']*'|[^ '])+`)
	environment = regexp.MustCompile(`^[A-Z_]+=`)
)

// readSession reads the commands for a kubectl of a minor version.
func readSession(t *testing.T, minor int, ns string) (commands []sessionCommand) {
	t.Helper()
	raw, err := os.ReadFile("testdata/kubectl.txt")
	must.OK(t, err)
	skip := false
	for i, line := range strings.Split(strings.ReplaceAll(string(raw), "{ns}", ns), "\n") {
		at := "kubectl.txt:" + strconv.Itoa(i+1)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		m := sessionLine.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("%s: not understood: %s", at, line)
		}
		of, _ := strconv.Atoi(m[2])
		fits := m[1] == "" || (m[1] == ">=") == (minor >= of)
		if m[3] == "$" {
			if skip = !fits; fits {
				commands = append(commands, parseCommand(at, m[4]))
			}
			continue
		}
		if skip || !fits {
			continue
		}
		c := &commands[len(commands)-1]
		switch m[3] {
		case "|":
			c.stdin += m[4] + "\n"
		case "not-yet":
			c.notYet = m[4]
		case "exit":
			if c.code, err = strconv.Atoi(m[4]); err != nil {
				t.Fatalf("%s: %v", at, err)
			}
		default:
			like, err := regexp.Compile(m[4])
			if err != nil {
				t.Fatalf("%s: %v", at, err)
			}
			c.expect = append(c.expect, expectation{m[3], like})
		}
	}
	return commands
}

func parseCommand(at, line string) sessionCommand {
	c := sessionCommand{at: at}
	for _, word := range sessionWord.FindAllString(line, -1) {
		word = strings.ReplaceAll(word, "'", "")
		if len(c.words) == 0 && environment.MatchString(word) {
			c.env = append(c.env, word)
			continue
		}
		c.words = append(c.words, word)
	}
	return c
}
