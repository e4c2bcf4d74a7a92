package commands

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quorate/quorate/test/harness/cluster"
)

// A transcript is a text file of command lines, what they print and how they end. Its
// head, testdata/mistakes.txt for one, describes the form.
type transcript struct {
	lines    []string
	sections []*section
}

// section is a part of a transcript with a directory of its own.
type section struct {
	title    string
	commands []*typed

	dir   string
	words map[string]int // what {NAME} and $NAME stand for, beside {DIR}
}

// typed is one command line of a transcript.
type typed struct {
	line     int // of the command, from 0
	end      int // the line after the last one that belongs to it
	command  string
	want     []string // of the output, without the exit code
	wantCode int
}

const exitWord = "exit "

func readTranscript(file string) (*transcript, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	tr := &transcript{lines: strings.Split(strings.TrimRight(string(raw), "\n"), "\n")}
	var at *typed // the command whose output is being read
	for i, line := range tr.lines {
		if title, ok := strings.CutPrefix(line, "== "); ok {
			tr.sections = append(tr.sections, &section{title: title})
			at = nil
			continue
		}
		switch command, isCommand := strings.CutPrefix(line, "$ "); {
		case line == "" || strings.HasPrefix(line, "#"):
			at = nil
		case isCommand && len(tr.sections) > 0:
			s := tr.sections[len(tr.sections)-1]
			at = &typed{line: i, end: i + 1, command: command}
			s.commands = append(s.commands, at)
		case at == nil || at.end != i:
			return nil, fmt.Errorf("%s:%d: %q belongs to no command", file, i+1, line)
		default:
			at.end = i + 1
			code, isExit := strings.CutPrefix(line, exitWord)
			if !isExit {
				at.want = append(at.want, line)
				continue
			}
			if at.wantCode, err = strconv.Atoi(code); err != nil {
				return nil, fmt.Errorf("%s:%d: %w", file, i+1, err)
			}
		}
	}
	return tr, nil
}

// portsOfSection is how many ports from A on, and from B on, a section has, and as many
// 1000 higher.
const portsOfSection = 20

// open gives a section its directory and ports. The end of the test takes them back,
// with every process that was started there.
func (s *section) open(t *testing.T, ports [2]int) {
	t.Helper()
	var err error
	if s.dir, err = os.MkdirTemp(cluster.RunDir(), "typed-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.close(t) })
	for _, dir := range []string{"bin", "home", "here"} {
		if err := os.Mkdir(filepath.Join(s.dir, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(cluster.Binary(), filepath.Join(s.dir, "bin", "quorate")); err != nil {
		t.Fatal(err)
	}
	// Of the section's own ports: those that a node needs beside a taken one are free.
	s.words = map[string]int{"A": ports[0], "B": ports[1], "TAKEN": ports[0] + portsOfSection - 1, "TAKENPEER": ports[0] + portsOfSection - 2 + 1000}
	for _, name := range takenPorts {
		taken, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", s.words[name]))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { taken.Close() })
	}
}

func (s *section) close(t *testing.T) {
	deadline := time.Now().Add(10 * time.Second)
	for pids := s.processes(); len(pids) > 0; pids = s.processes() {
		if time.Now().After(deadline) {
			t.Errorf("processes %v do not end", pids)
			return
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(5 * time.Millisecond)
	}
	if os.Getenv("KEEP") == "" {
		if err := os.RemoveAll(s.dir); err != nil {
			t.Error(err)
		}
	}
}

// processes are those that work in the section's directory.
func (s *section) processes() (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		// What has ended and was not waited for has no directory any more.
		if wd, err := os.Readlink(filepath.Join("/proc", e.Name(), "cwd")); err == nil && strings.HasPrefix(wd, s.dir) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (s *section) here() string { return filepath.Join(s.dir, "here") }

// run runs a command line as bash does, and returns what it has printed, standard error
// marked and last, and its exit code.
func (s *section) run(t *testing.T, command string, within time.Duration) (lines []string, code int) {
	t.Helper()
	var outputs [2]*os.File
	for i := range outputs {
		// Files, not pipes: what a command leaves running in the background would hold
		// those open.
		f, err := os.CreateTemp(s.dir, "output-")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		outputs[i] = f
	}
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", command)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.here(), outputs[0], outputs[1]
	cmd.Env = []string{"PATH=" + filepath.Join(s.dir, "bin") + ":" + os.Getenv("PATH"), "HOME=" + filepath.Join(s.dir, "home"), "LC_ALL=C", "TERM=dumb"}
	for name, value := range s.words {
		cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%d", name, value))
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", command, err)
	}
	for i, f := range outputs {
		b, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(b) {
			if isWait.Match(line) {
				continue
			}
			// Columns are as wide as what is in them, which differs from run to run.
			if words := bytes.Fields(line); len(words) > 0 {
				lines = append(lines, []string{"", "! "}[i]+string(bytes.Join(words, []byte(" "))))
			}
		}
	}
	if ctx.Err() != nil {
		t.Fatalf("%s: does not end within %s; it has printed\n%s", command, within, strings.Join(lines, "\n"))
	}
	return lines, cmd.ProcessState.ExitCode()
}

// isWait is a line about a wait that lasts, which depends on how fast the machine is.
var isWait = regexp.MustCompile(`^waiting for n\d+: .* \(\d+ s so far\)\n?$`)

// placeholders are the forms that stand for what is another text each time.
var placeholders = map[string]string{
	"<pid>": `[0-9]+`, "<port>": `[0-9]+`, "<n>": `[0-9]+(\.[0-9]+)?`, "<id>": `[0-9a-f]{8,32}`, "<...>": `.*`,
}

var (
	placeholder = regexp.MustCompile(`<(pid|port|n|id|\.\.\.)>`)
	word        = regexp.MustCompile(`\{([A-Z]+)(\+[0-9]+)?\}`)
)

// matches reports whether the output is what the command wants.
func (s *section) matches(want, got []string) (bool, error) {
	var b strings.Builder
	b.WriteString(`^`)
	for _, line := range want {
		if line == "..." {
			b.WriteString(`([^\n]*\n)*?`)
			continue
		}
		line, err := s.expand(line)
		if err != nil {
			return false, err
		}
		rest := 0
		for _, at := range placeholder.FindAllStringIndex(line, -1) {
			b.WriteString(regexp.QuoteMeta(line[rest:at[0]]) + placeholders[line[at[0]:at[1]]])
			rest = at[1]
		}
		b.WriteString(regexp.QuoteMeta(line[rest:]) + `\n`)
	}
	b.WriteString(`$`)
	form, err := regexp.Compile(b.String())
	if err != nil {
		return false, err
	}
	all := ""
	for _, line := range got {
		all += line + "\n"
	}
	return form.MatchString(all), nil
}

// expand puts in what {DIR}, {A}, {A+1} stand for.
func (s *section) expand(line string) (string, error) {
	var unknown error
	line = word.ReplaceAllStringFunc(line, func(w string) string {
		m := word.FindStringSubmatch(w)
		if m[1] == "DIR" {
			return s.here()
		}
		value, ok := s.words[m[1]]
		if !ok {
			unknown = fmt.Errorf("nothing has the name %s", w)
		}
		more, _ := strconv.Atoi(m[2])
		return strconv.Itoa(value + more)
	})
	return line, unknown
}

var (
	number  = regexp.MustCompile(`\b[0-9]{4,5}\b`)
	process = regexp.MustCompile(`\b(pid|process|kill -9) [0-9]+`)
	longID  = regexp.MustCompile(`\b[0-9a-f]{32}\b`)
	seconds = regexp.MustCompile(`\b[0-9]+\.[0-9]+ s\b`)
)

// generalize is the reverse of expand, for what a new command prints: the words for their
// values and placeholders for what differs from run to run.
// takenPorts are the words for ports that something listens at.
var takenPorts = []string{"TAKEN", "TAKENPEER"}

func (s *section) generalize(line string) string {
	line = strings.ReplaceAll(line, s.here(), "{DIR}")
	line = process.ReplaceAllString(line, "$1 <pid>")
	line = number.ReplaceAllStringFunc(line, func(n string) string {
		value, _ := strconv.Atoi(n)
		for _, name := range takenPorts {
			if value == s.words[name] {
				return "{" + name + "}"
			}
		}
		for _, name := range []string{"A", "B"} {
			for _, more := range []int{0, 1000} {
				from := s.words[name] + more
				switch {
				case value == from && more == 0:
					return "{" + name + "}"
				case value >= from && value < from+portsOfSection:
					return fmt.Sprintf("{%s+%d}", name, value-s.words[name])
				}
			}
		}
		return n
	})
	return seconds.ReplaceAllString(longID.ReplaceAllString(line, "<id>"), "<n> s")
}

// portRanges returns two ranges for each of n sections, which no two share.
func portRanges(n int) (out [][2]int, err error) {
	var starts []int
	for len(starts) < 2*n {
		p, err := cluster.FreePorts(portsOfSection)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(starts, func(q int) bool {
			for _, d := range []int{p - q, p - q - 1000, p - q + 1000} {
				if d > -portsOfSection && d < portsOfSection {
					return true
				}
			}
			return false
		}) {
			starts = append(starts, p)
		}
	}
	for i := 0; i < len(starts); i += 2 {
		out = append(out, [2]int{starts[i], starts[i+1]})
	}
	return out, nil
}
