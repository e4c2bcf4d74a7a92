package ecosystem

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/test/harness/cluster"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
)

// judge is a validating webhook of another project and what it judges: objects that are
// good, and others that nothing but this webhook refuses.
type judge struct {
	*foreign
	webhook string // its name, the first in each configuration
	url     string // an expression for where it is called
	// configurations are what the project has installed, as RESOURCE/NAME.
	configurations []string
	// opens is how many webhooks are asked about an object, all of which fail together, and
	// within is what calls without an answer may take: a write may be decided a second time.
	opens  float64
	within time.Duration
	// elsewhere is a namespace in which ConfigMaps are not judged.
	elsewhere string
	objects   func(t *testing.T, n *cluster.Node) dynamic.ResourceInterface
	object    func(name string, good bool) map[string]any
}

// A judged object is known by its labels.
func judgedLabels(good bool) map[string]any {
	return map[string]any{"judged": "yes", "good": fmt.Sprint(good)}
}

// configure sets a field of the webhook in its configurations.
func (j *judge) configure(t *testing.T, field, value string) {
	t.Helper()
	for _, name := range j.configurations {
		j.kubectl(t, "patch", name, "--type=json", fmt.Sprintf(`-p=[{"op":"add","path":"/webhooks/0/%s","value":%s}]`, field, value))
	}
}

// create makes an object through a node.
func (j *judge) create(ctx context.Context, t *testing.T, n *cluster.Node, name string, good bool) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	_, err := j.objects(t, n).Create(ctx, &unstructured.Unstructured{Object: j.object(name, good)}, metav1.CreateOptions{})
	return err
}

// stored are the names of judged objects on a node that are good, or are not.
func (j *judge) stored(t *testing.T, n *cluster.Node, good bool) map[string]bool {
	t.Helper()
	list, err := j.objects(t, n).List(t.Context(), metav1.ListOptions{LabelSelector: fmt.Sprintf("judged=yes,good=%v", good)})
	noError(t, err)
	all := map[string]bool{}
	for _, o := range list.Items {
		all[o.GetName()] = true
	}
	return all
}

// refused is what a failed call says, which has the error of a dial or a transport at its end.
func (j *judge) refused(says string) string {
	return `failed to call webhook: Post "` + j.url + `\?timeout=1s": .*` + says
}

// fails breaks the webhook. With failurePolicy Fail nothing is written that it would
// have been asked for, with Ignore everything is, and each change of the policy holds
// for the next write through any node. Mended, it judges again. says is an expression for
// what follows the webhook's name in a refusal.
func (j *judge) fails(t *testing.T, name string, breaks, mends func(*testing.T), says string) {
	breaks(t)
	closed := regexp.MustCompile(`^Internal error occurred: failed calling webhook "` + j.webhook + `": ` + says)
	for i, node := range j.c.Nodes() {
		began := time.Now()
		object := fmt.Sprintf("%s-closed-%d", name, i)
		err := j.create(t.Context(), t, node, object, true)
		took := time.Since(began)
		if err == nil || !closed.MatchString(err.Error()) {
			t.Errorf("%s: %v, want %s", node.Name, err, closed)
		}
		t.Logf("%s: refused after %v: %v", node.Name, took.Round(time.Millisecond), err)
		//wall: what clients are promised, with the lateness that the harness allows
		if took > j.within+cluster.Lateness {
			t.Errorf("%s: refused after %v, want %v at most", node.Name, took, j.within)
		}
		if j.stored(t, node, true)[object] {
			t.Errorf("%s: what was refused is there", node.Name)
		}
		// What the webhook is not asked for goes on.
		node.Kubectl(t, "-n", j.elsewhere, "create", "configmap", fmt.Sprintf("%s-%d", name, i))
	}
	for i, node := range j.c.Nodes() {
		j.configure(t, "failurePolicy", `"Ignore"`)
		open := fmt.Sprintf("%s-open-%d", name, i)
		before, _ := node.LookupMetric(t, "apiserver_admission_webhook_fail_open_count")
		began := time.Now()
		if err := j.create(t.Context(), t, node, open, false); err != nil {
			t.Errorf("%s: with Ignore: %v", node.Name, err)
		}
		t.Logf("%s: let through after %v", node.Name, time.Since(began).Round(time.Millisecond))
		if after, _ := node.LookupMetric(t, "apiserver_admission_webhook_fail_open_count"); after < before+j.opens {
			t.Errorf("%s: %v calls let a write through, want %v", node.Name, after, before+j.opens)
		}
		noError(t, j.objects(t, node).Delete(t.Context(), open, metav1.DeleteOptions{}))
		j.configure(t, "failurePolicy", `"Fail"`)
		if err := j.create(t.Context(), t, j.node(), open, false); err == nil {
			t.Error("an object was let through after failurePolicy became Fail")
		}
	}
	mends(t)
	j.awaitJudgement(t, name+"-mended")
	for i, node := range j.c.Nodes() {
		if err := j.create(t.Context(), t, node, fmt.Sprintf("%s-mended-%d", name, i), true); err != nil {
			t.Errorf("%s: %v", node.Name, err)
		}
	}
}

// awaitJudgement waits until the webhook refuses through every node what is not good. That
// it is never let through meanwhile holds while failurePolicy is Fail.
func (j *judge) awaitJudgement(t *testing.T, name string) {
	t.Helper()
	cluster.Await(t, time.Minute, "the webhook's judgement", func() string {
		for i, node := range j.c.Nodes() {
			err := j.create(t.Context(), t, node, fmt.Sprintf("%s-%d", name, i), false)
			if err == nil {
				t.Fatal("an object that is not good was created")
			}
			if !strings.Contains(err.Error(), "denied the request") {
				return err.Error()
			}
		}
		return ""
	})
}

// storm are writers, one at each node, of objects that are good and others in turns.
type storm struct {
	*judge
	stop    context.CancelFunc
	writers sync.WaitGroup

	mu           sync.Mutex
	acknowledged map[string]bool
	refused      int
	unanswered   map[string]int // by the end of the error's text
	wrong        []string
}

// storm starts the writers.
func (j *judge) storm(t *testing.T, name string) *storm {
	ctx, stop := context.WithCancel(t.Context())
	s := &storm{judge: j, stop: stop, acknowledged: map[string]bool{}, unanswered: map[string]int{}}
	for k, node := range j.c.Nodes() {
		client := *node
		s.writers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				good := i%2 == 0
				object := fmt.Sprintf("%s-%d-%d-%v", name, k, i, good)
				if s.note(object, good, j.create(ctx, t, &client, object, good)) {
					continue
				}
				select {
				case <-ctx.Done():
				case <-time.After(20 * time.Millisecond):
				}
			}
		})
	}
	return s
}

// note reports whether the write was judged.
func (s *storm) note(object string, good bool, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil && good:
		s.acknowledged[object] = true
	case err == nil:
		s.wrong = append(s.wrong, object)
	case strings.Contains(err.Error(), "denied the request"):
		if good {
			s.wrong = append(s.wrong, object+": "+err.Error())
		}
		s.refused++
	default:
		s.unanswered[lastWords.ReplaceAllString(err.Error(), "")]++
		return false
	}
	return true
}

var lastWords = regexp.MustCompile(`.*: `)

// more waits until n more writes are acknowledged or refused.
func (s *storm) more(t *testing.T, n int) {
	t.Helper()
	count := func() (int, string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.acknowledged) + s.refused, fmt.Sprint(s.unanswered)
	}
	before, _ := count()
	cluster.Await(t, time.Minute, "writes that are judged", func() string {
		if now, unanswered := count(); now < before+n {
			return fmt.Sprint(now-before, unanswered)
		}
		return ""
	})
}

// end ends the writers: no object that is not good is on any node, and each good one that
// was acknowledged is on all.
func (s *storm) end(t *testing.T) {
	t.Helper()
	s.stop()
	s.writers.Wait()
	t.Logf("%d created, %d refused, and without a judgement: %v", len(s.acknowledged), s.refused, s.unanswered)
	if len(s.wrong) > 0 {
		t.Errorf("wrongly decided: %q", s.wrong)
	}
	for _, node := range s.c.Nodes() {
		if bad := s.stored(t, node, false); len(bad) > 0 {
			t.Errorf("%s has what was to be refused: %v", node.Name, bad)
		}
		lost := maps.Clone(s.acknowledged)
		for object := range s.stored(t, node, true) {
			delete(lost, object)
		}
		if len(lost) > 0 {
			t.Errorf("%s has lost %v", node.Name, lost)
		}
	}
}

// storms lets something happen some times among writes, and as much again is written after
// each time.
func (j *judge) storms(t *testing.T, name string, times int, happens func(*testing.T)) {
	s := j.storm(t, name)
	defer s.stop()
	for range times {
		happens(t)
		s.more(t, 60)
	}
	s.end(t)
}
