package deploy

import (
	"bufio"
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
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
		must.OK(t, err)
		to = filepath.Join(dir, to)
		must.OK(t, os.MkdirAll(filepath.Dir(to), 0o755))
		must.OK(t, os.WriteFile(to, b, mode))
	}
	for _, from := range []string{"systemd", "sysusers.d", "tmpfiles.d"} {
		to := from
		if from == "systemd" {
			to = "systemd/system"
		}
		files, err := filepath.Glob(from + "/*")
		if err != nil || len(files) < 2 {
			t.Fatal(files, err)
		}
		for _, file := range files {
			install(file, filepath.Join("usr/lib", to, filepath.Base(file)), 0o644)
		}
	}
	for _, program := range []string{"quorate", "kube-controller-manager", "kube-scheduler"} {
		install("/bin/true", "usr/bin/"+program, 0o755)
	}
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
		must.OK(t, os.WriteFile(p, []byte("[Unit]\nDescription="+u+"\n"), 0o644))
	}
	for _, unit := range append([]string{"quorate.target", "quorate-control-plane.target"}, slices.Collect(maps.Keys(services))...) {
		out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--recursive-errors=no", "--man=no", "--root="+dir, unit).CombinedOutput()
		for _, line := range strings.Split(string(out), "\n") {
			if strings.Contains(line, "quorate") || strings.Contains(line, "kube-") {
				t.Errorf("%s: %s", unit, line)
			}
		}
		if err != nil {
			t.Errorf("systemd-analyze verify %s: %v\n%s", unit, err, out)
		}
	}
}

// services are the units with a program, and the exposure that each may have.
var services = map[string]float64{
	"quorate@n1.service": maxExposure, "quorate-proxy.service": maxProxyExposure,
	"kube-controller-manager.service": maxExposure, "kube-scheduler.service": maxExposure,
}

func TestDeployUnitIsHardened(t *testing.T) {
	dir := root(t)
	for unit, most := range services {
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

// TestDeployProxyKnowsItsHost: an agent of tunnels dials the kubelet on addresses of its own host, and asks
// the kernel for these by netlink.
func TestDeployProxyKnowsItsHost(t *testing.T) {
	unit, err := os.ReadFile("systemd/quorate-proxy.service")
	must.OK(t, err)
	m := regexp.MustCompile(`(?m)^RestrictAddressFamilies=(.*)$`).FindSubmatch(unit)
	if m == nil || !slices.Contains(strings.Fields(string(m[1])), "AF_NETLINK") {
		t.Errorf("quorate-proxy.service allows %q", m)
	}
}

// TestDeployUnitLeavesNoCore: the memory of a node holds the cluster's secret, that of the programs
// their keys.
func TestDeployUnitLeavesNoCore(t *testing.T) {
	for file := range services {
		unit, err := os.ReadFile("systemd/" + strings.Replace(file, "@n1", "@", 1))
		must.OK(t, err)
		if !regexp.MustCompile(`(?m)^LimitCORE=0$`).Match(unit) {
			t.Errorf("%s: no LimitCORE=0", file)
		}
	}
}

func TestDeploySysusersAndTmpfiles(t *testing.T) {
	dir := root(t)
	must.OK(t, os.MkdirAll(filepath.Join(dir, "etc"), 0o755))
	run(t, "systemd-sysusers", "--root="+dir)
	passwd, err := os.ReadFile(filepath.Join(dir, "etc/passwd"))
	if err != nil || !strings.Contains(string(passwd), "quorate:") {
		t.Fatalf("no user quorate was made: %s (%v)", passwd, err)
	}
	run(t, "systemd-tmpfiles", "--root="+dir, "--create", "quorate.conf", "quorate-control-plane.conf")
	for path, want := range map[string]os.FileMode{
		"quorate": 0o700, "quorate-components": 0o711,
		"quorate-components/kube-controller-manager": 0o750 | os.ModeSetgid, "quorate-components/kube-scheduler": 0o750 | os.ModeSetgid,
	} {
		info, err := os.Stat(filepath.Join(dir, "var/lib", path))
		if err != nil || info.Mode()&^os.ModeDir != want {
			t.Errorf("/var/lib/%s: %v %v, want mode %v", path, info, err, want)
		}
	}
}

// The environment file's examples must be settings that exist: the tests of cmd/internal/commands
// compare the names; here only the form is checked.
func TestDeployEnvironmentFile(t *testing.T) {
	comment := regexp.MustCompile(`^(# .*)?$`)
	for file, line := range map[string]*regexp.Regexp{
		"quorate.env":       regexp.MustCompile(`^#?[A-Z_]+=\S*$`),
		"control-plane.env": regexp.MustCompile(`^#?(CONTROLLERS=\S+|KUBE_(CONTROLLER_MANAGER|SCHEDULER)_ARGS=(--\S+ ?)*)$`),
	} {
		b, err := os.ReadFile(file)
		must.OK(t, err)
		for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
			if !line.MatchString(s.Text()) && !comment.MatchString(s.Text()) {
				t.Errorf("%s: neither setting nor comment: %s", file, s.Text())
			}
		}
	}
}
