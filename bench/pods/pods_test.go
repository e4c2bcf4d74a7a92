package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestReadAgain: what counts as reading again, and whose.
func TestReadAgain(t *testing.T) {
	const since = "2026-11-26T03:00:00.000000Z"
	event := func(at, stage, verb, uri, agent, code string) string {
		return `{"stage":"` + stage + `","verb":"` + verb + `","requestURI":"` + uri + `","userAgent":"` + agent + `/v1 (linux/amd64)","responseStatus":{"code":` + code + `},"requestReceivedTimestamp":"` + at + `"}`
	}
	const before, after = "2026-11-26T02:59:59.000000Z", "2026-11-26T03:00:01.000000Z"
	const manager, scheduler = "kube-controller-manager", "kube-scheduler"
	file := filepath.Join(t.TempDir(), "audit.log")
	lines := []string{
		event(before, "ResponseComplete", "list", "/api/v1/pods?limit=500", manager, "200"),
		event(after, "ResponseStarted", "watch", "/api/v1/pods?resourceVersion=77&watch=true", manager, "200"),
		event(after, "ResponseComplete", "watch", "/api/v1/pods?resourceVersion=77&watch=true", manager, "200"),
		event(after, "ResponseStarted", "watch", "/api/v1/pods?resourceVersion=78&watch=true", scheduler, "200"),
		event(after, "ResponseStarted", "watch", "/api/v1/nodes?sendInitialEvents=true&resourceVersionMatch=NotOlderThan&watch=true", scheduler, "200"),
		event(after, "ResponseComplete", "list", "/api/v1/nodes?limit=500&resourceVersion=0", scheduler, "410"),
		event(after, "ResponseStarted", "watch", "/api/v1/pods?resourceVersion=0&watch=true", "kwok", "200"),
		// A refused watch has no ResponseStarted.
		event(after, "ResponseComplete", "watch", "/api/v1/nodes?resourceVersion=0&watch=true", "kwok", "429"),
		event(after, "ResponseComplete", "list", "/api/v1/pods", "quorate-bench-pods", "200"),
	}
	must.OK(t, os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	at, err := time.Parse(time.RFC3339, since)
	must.OK(t, err)
	relists, wentOn, err := readAgain([]string{file}, at)
	must.OK(t, err)
	if len(relists[manager]) != 0 || len(relists[scheduler]) != 2 || len(relists[kwok]) != 2 || len(relists) != 2 {
		t.Errorf("read again: %v", relists)
	}
	if wentOn[manager] != 1 || wentOn[scheduler] != 1 || len(wentOn) != 2 {
		t.Errorf("went on: %v", wentOn)
	}
}

// TestVerdict: each of what must not be is an error, and nothing else.
func TestVerdict(t *testing.T) {
	var none *restarts
	for _, good := range []*restarts{none, {Pods: 3, FromZero: 9, WentOn: map[string]int{"kube-scheduler": 3}, Relists: map[string][]string{kwok: nil}}} {
		if err := good.verdict(); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []*restarts{
		{Lost: 1}, {Deleted: 1}, {NotReady: []string{"load-1"}}, {Differ: []string{"https://b"}}, {Relists: map[string][]string{"kube-scheduler": {"list /api/v1/pods"}}},
	} {
		if bad.verdict() == nil {
			t.Errorf("%+v is no error", bad)
		}
	}
}

// TestPodWatch: each Pod counts once, and only what began while it was measured.
func TestPodWatch(t *testing.T) {
	w := &podWatch{seen: map[types.UID]time.Time{}, running: map[types.UID]bool{}, changed: make(chan struct{}, 1)}
	note := func(uid string, phase corev1.PodPhase) {
		w.note(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}, Status: corev1.PodStatus{Phase: phase}})
	}
	note("a", corev1.PodRunning)
	w.measure(true)
	note("b", corev1.PodPending)
	note("b", corev1.PodRunning)
	note("b", corev1.PodRunning)
	note("a", corev1.PodRunning)
	if h := w.measure(false); h.TotalCount() != 1 {
		t.Errorf("%d times were noted", h.TotalCount())
	}
	note("c", corev1.PodRunning)
	if _, err := w.await(t.Context(), 3); err != nil {
		t.Error(err)
	}
	if ran, deleted := w.ran(); len(ran) != 3 || deleted != 0 {
		t.Errorf("%v ran, %d deleted", ran, deleted)
	}
}
