package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/facts"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

// TestGolden tells the stories of testdata to Quorate, each to a node of its own, and holds its
// answers against those of kube-apiserver.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	must.OK(t, err)
	var stories []*recording
	for _, file := range files {
		if text, ok := strings.CutSuffix(file, differencesSuffix); ok {
			if _, err := os.Stat(text + ".txt"); err != nil {
				t.Errorf("%s: the differences of which story? %v", file, err)
			}
			continue
		}
		s, err := readStory(file)
		must.OK(t, err)
		stories = append(stories, s)
	}
	if len(stories) == 0 {
		t.Fatal("there are no stories")
	}
	for _, s := range stories {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			want := answersOf(t, s)
			problems := holdAgainst(t, s, want)
			switch {
			case s.NotYet == "":
				for _, p := range problems {
					t.Error(p)
				}
			case len(problems) == 0:
				t.Errorf("it holds today: take the line @not-yet out of %s", s.file)
			default:
				t.Logf("not yet: %s: %d differences, the first is %s", s.NotYet, len(problems), problems[0])
			}
		})
	}
}

// answersOf reads what kube-apiserver answered to a story as it is now.
func answersOf(t *testing.T, s *recording) []block {
	t.Helper()
	raw, err := os.ReadFile(s.golden())
	if err != nil {
		t.Fatalf("%v: go run ./test/system/golden -record test/system/golden/%s", err, s.file)
	}
	blocks, err := decode(string(raw))
	if err != nil {
		t.Fatalf("%s: %v", s.golden(), err)
	}
	var names []string
	for _, b := range blocks {
		names = append(names, b.Name)
	}
	if !slices.Equal(names, s.Recorded) {
		t.Fatalf("%s has answers to %q, %s has the requests %q: go run ./test/system/golden -record test/system/golden/%s", s.golden(), names, s.file, s.Recorded, s.file)
	}
	return blocks
}

// holdAgainst tells a story to Quorate, and says what is otherwise than wanted.
func holdAgainst(t *testing.T, s *recording, want []block) []string {
	t.Helper()
	got, err := tell(t, s)
	if err != nil {
		return []string{err.Error()}
	}
	wantLines, err := lines(want)
	must.OK(t, err)
	gotLines, err := lines(got)
	must.OK(t, err)
	differences := strings.TrimSuffix(s.file, ".txt") + differencesSuffix
	if _, err := os.Stat(differences); errors.Is(err, os.ErrNotExist) {
		differences = ""
	}
	problems := facts.Problems(t, wantLines, differences, gotLines)
	// Beside each other what was wanted and what came instead.
	slices.SortStableFunc(problems, func(a, b string) int { return strings.Compare(whatDiffers(a), whatDiffers(b)) })
	return brief(problems)
}

// brief leaves out most of what follows from another status: a refusal and an object have
// nothing in common.
func brief(problems []string) (kept []string) {
	otherStatus := map[string]bool{}
	for _, p := range problems {
		if request, field, _ := strings.Cut(whatDiffers(p), " "); field == "status" {
			otherStatus[request] = true
		}
	}
	for _, p := range problems {
		request, field, _ := strings.Cut(whatDiffers(p), " ")
		if !otherStatus[request] || field == "status" || field == "body.message" {
			kept = append(kept, p)
		}
	}
	return kept
}

// whatDiffers is the request and the field of a problem "SIGN REQUEST PATH VALUE".
func whatDiffers(problem string) string {
	fields := strings.Fields(problem)
	return strings.Join(fields[min(1, len(fields)):min(3, len(fields))], " ")
}

// controllers leaves out those that do what kube-controller-manager does upstream, and that the answers would
// show: none ran beside the kube-apiserver whose answers are recorded.
const controllers = "controllers=*,-root-ca-certificate-publisher-controller,-kubeadm-config-controller," +
	"-certificatesigningrequest-signing-controller,-certificatesigningrequest-approving-controller"

// tell tells a story to a node of Quorate.
func tell(t *testing.T, s *recording) ([]block, error) {
	t.Helper()
	hooks, err := startWebhooks(s.webhooks)
	must.OK(t, err)
	defer hooks.close()
	dir, err := os.MkdirTemp(cluster.RunDir(), "golden-")
	must.OK(t, err)
	flags, err := s.serverFlags(dir, hooks.vars)
	must.OK(t, err)
	c, err := cluster.TryStart(t, 1, append(flags, controllers)...)
	if err != nil {
		return nil, err
	}
	n := c.Nodes()[0]
	// While a controller completes the roles, writes are decided again, and webhooks asked twice.
	cluster.Await(t, 30*time.Second, "the roles are complete", func() string { return missingRules(t, n) })
	return s.play(t.Context(), &server{url: n.API, client: n.HTTP(t), audit: &auditLog{path: auditPath(dir)}}, hooks)
}

// missingRules says which role does not have the rules yet of those that are aggregated to it.
func missingRules(t *testing.T, n *cluster.Node) string {
	t.Helper()
	var list struct {
		Items []struct {
			Metadata struct {
				Name   string
				Labels map[string]string
			}
			Rules []any
		}
	}
	must.OK(t, json.Unmarshal(n.MustGet(t, "/apis/rbac.authorization.k8s.io/v1/clusterroles"), &list))
	has := map[string]string{}
	for _, role := range list.Items {
		has[role.Metadata.Name] = jsonOf(role.Rules)
	}
	for _, to := range []string{"admin", "edit", "view"} {
		for _, role := range list.Items {
			if role.Metadata.Labels["rbac.authorization.k8s.io/aggregate-to-"+to] != "true" {
				continue
			}
			for _, rule := range role.Rules {
				if !strings.Contains(has[to], strings.TrimSpace(jsonOf(rule))) {
					return to + " has not all rules of " + role.Metadata.Name
				}
			}
		}
	}
	return ""
}
