package deploy

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// maxExposure is the worst score of `systemd-analyze security` that the unit may
// have: 0 is locked up, 10 is open. Peers' units score 8.7 to 9.6.
const maxExposure = 1.5

// maxProxyExposure is that of a worker's proxy, which reads root's files.
const maxProxyExposure = 2.0

// root lays the files out as a package would install them.
func root(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	install := func(from, to string, mode os.FileMode) {
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		to = filepath.Join(dir, to)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, b, mode); err != nil {
			t.Fatal(err)
		}
	}
	install("systemd/quorate@.service", "usr/lib/systemd/system/quorate@.service", 0o644)
	install("systemd/quorate-proxy.service", "usr/lib/systemd/system/quorate-proxy.service", 0o644)
	install("systemd/quorate.target", "usr/lib/systemd/system/quorate.target", 0o644)
	install("sysusers.d/quorate.conf", "usr/lib/sysusers.d/quorate.conf", 0o644)
	install("tmpfiles.d/quorate.conf", "usr/lib/tmpfiles.d/quorate.conf", 0o644)
	install("/bin/true", "usr/bin/quorate", 0o755)
	return dir
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// systemd's own standard units, so that references to them resolve.
var standardUnits = []string{"network-online.target", "time-sync.target", "multi-user.target", "sysinit.target", "basic.target", "shutdown.target", "network.target", "system.slice"}

func TestDeployUnitsVerify(t *testing.T) {
	dir := root(t)
	for _, u := range standardUnits {
		p := filepath.Join(dir, "usr/lib/systemd/system", u)
		if err := os.WriteFile(p, []byte("[Unit]\nDescription="+u+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, unit := range []string{"quorate@n1.service", "quorate-proxy.service", "quorate.target"} {
		out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--recursive-errors=no", "--man=no", "--root="+dir, unit).CombinedOutput()
		for _, line := range strings.Split(string(out), "\n") {
			if strings.Contains(line, "quorate") {
				t.Errorf("%s: %s", unit, line)
			}
		}
		if err != nil {
			t.Errorf("systemd-analyze verify %s: %v\n%s", unit, err, out)
		}
	}
}

func TestDeployUnitIsHardened(t *testing.T) {
	dir := root(t)
	for unit, most := range map[string]float64{"quorate@n1.service": maxExposure, "quorate-proxy.service": maxProxyExposure} {
		out := run(t, "systemd-analyze", "security", "--offline=true", "--no-pager", "--root="+dir, unit)
		m := regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+)`).FindStringSubmatch(out)
		if m == nil {
			t.Fatalf("no exposure level in:\n%s", out)
		}
		score, err := strconv.ParseFloat(m[1], 64)
		if err != nil || score > most {
			t.Errorf("%s: exposure %s (%v), at most %.1f is allowed:\n%s", unit, m[1], err, most, out)
		}
	}
}

// TestDeployUnitLeavesNoCore: the memory of a node holds the cluster's secret.
func TestDeployUnitLeavesNoCore(t *testing.T) {
	unit, err := os.ReadFile("systemd/quorate@.service")
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)^LimitCORE=0$`).Match(unit) {
		t.Error("no LimitCORE=0")
	}
}

func TestDeploySysusersAndTmpfiles(t *testing.T) {
	dir := root(t)
	if err := os.MkdirAll(filepath.Join(dir, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	run(t, "systemd-sysusers", "--root="+dir)
	passwd, err := os.ReadFile(filepath.Join(dir, "etc/passwd"))
	if err != nil || !strings.Contains(string(passwd), "quorate:") {
		t.Fatalf("no user quorate was made: %s (%v)", passwd, err)
	}
	run(t, "systemd-tmpfiles", "--root="+dir, "--create", "quorate.conf")
	info, err := os.Stat(filepath.Join(dir, "var/lib/quorate"))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("/var/lib/quorate: %v %v, want mode 0700", info, err)
	}
}

// The environment file's examples must be settings that exist: cmd/node's tests
// compare the names; here only the form is checked.
func TestDeployEnvironmentFile(t *testing.T) {
	f, err := os.Open("quorate.env")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	line := regexp.MustCompile(`^#?[A-Z_]+=\S*$`)
	comment := regexp.MustCompile(`^(# .*)?$`)
	for s := bufio.NewScanner(f); s.Scan(); {
		if !line.MatchString(s.Text()) && !comment.MatchString(s.Text()) {
			t.Errorf("neither setting nor comment: %s", s.Text())
		}
	}
}
