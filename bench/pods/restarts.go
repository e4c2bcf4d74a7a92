package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/bench/measure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
)

// restarts is what became of everything when each server had been restarted.
type restarts struct {
	Servers int     `json:"servers"`
	Seconds float64 `json:"seconds"`
	// Pods are those at the end, Lost the ones from before that are gone or are others of the same name,
	// Deleted what a client has seen deleted, NotReady the Deployments that lack Pods.
	Pods     int      `json:"pods"`
	Lost     int      `json:"lost"`
	Deleted  int      `json:"deleted"`
	NotReady []string `json:"notReady"`
	// Differ are the servers that have other Pods than the first.
	Differ []string `json:"differ"`
	// Relists are by client: lists, and watches that begin with all objects. WentOn are the watches that
	// went on at a revision.
	Relists map[string][]string `json:"relists"`
	WentOn  map[string]int      `json:"wentOn"`
	// FromZero are those of KWOK, whose watches ask for revision 0 each time they begin, whatever the
	// server: they say nothing of it.
	FromZero int `json:"kwokFromZero"`
	// Transitions are leases of leaders that changed hands.
	Transitions map[string]int32 `json:"leaseTransitions"`
}

// verdict is an error for what must not be.
func (r *restarts) verdict() error {
	if r == nil {
		return nil
	}
	again := 0
	for _, list := range r.Relists {
		again += len(list)
	}
	if again > 0 || r.Lost > 0 || r.Deleted > 0 || len(r.NotReady) > 0 || len(r.Differ) > 0 {
		return fmt.Errorf("%d relists, %d pods lost, %d deleted, deployments not ready: %v, servers that differ: %v", again, r.Lost, r.Deleted, r.NotReady, r.Differ)
	}
	return nil
}

// leases are those of the programs that elect a leader.
var leases = []string{"kube-controller-manager", "kube-scheduler"}

// settled is how long clients have after a restart, before the next one: they come back after their
// back-off.
const settled = 5 * time.Second

// restartAll restarts the servers in turn, while there is something to do, and looks at what has come of it.
func (p *plan) restartAll(ctx context.Context, l *load, pods *podWatch, progress io.Writer) (*restarts, error) {
	before, _ := pods.ran()
	held, err := l.transitions(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	for i := range p.servers {
		// Through a server that stays, and for controllers that may be at the one that goes.
		c, err := p.client(p.servers[(i+1)%len(p.servers)])
		if err != nil {
			return nil, err
		}
		more := &load{client: c, made: l.made, named: l.named}
		if err := more.deploy(ctx, 2*perDeployment); err != nil {
			return nil, err
		}
		l.made, l.named = more.made, more.named
		if err := p.restartServer(ctx, i+1); err != nil {
			return nil, err
		}
		if _, err := pods.await(ctx, l.made); err != nil {
			return nil, fmt.Errorf("after the restart of server %d: %w", i+1, err)
		}
		fmt.Fprintf(progress, "%s: server %d restarted, %d pods run\n", p.name, i+1, l.made)
		measure.Pause(ctx, settled)
	}
	r := &restarts{Servers: len(p.servers), Seconds: time.Since(began).Seconds(), Transitions: map[string]int32{}}
	if err := l.awaitDeployments(ctx, r); err != nil {
		return nil, err
	}
	if err := p.compare(ctx, r, before); err != nil {
		return nil, err
	}
	_, r.Deleted = pods.ran()
	after, err := l.transitions(ctx)
	if err != nil {
		return nil, err
	}
	for name, n := range after {
		r.Transitions[name] = n - held[name]
	}
	if r.Relists, r.WentOn, err = readAgain(p.audit, began); err != nil {
		return nil, err
	}
	r.Relists[kwok] = slices.DeleteFunc(r.Relists[kwok], func(line string) bool {
		from := strings.HasPrefix(line, "watch ") && strings.Contains(line, "resourceVersion=0&")
		if from {
			r.FromZero++
		}
		return from
	})
	return r, nil
}

// awaitDeployments waits until every Deployment says that all of its Pods are ready, or says which do not.
func (l *load) awaitDeployments(ctx context.Context, r *restarts) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err := wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		list, err := l.client.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		r.NotReady = nil
		for _, d := range list.Items {
			if d.Status.ReadyReplicas != *d.Spec.Replicas || d.Status.ObservedGeneration != d.Generation {
				r.NotReady = append(r.NotReady, d.Name)
			}
		}
		return len(r.NotReady) == 0 && len(list.Items) == l.named, nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return nil // it is in the report
	}
	return err
}

// compare reads all Pods from every server.
func (p *plan) compare(ctx context.Context, r *restarts, before map[types.UID]bool) error {
	var first map[types.UID]string
	for _, server := range p.servers {
		c, err := p.client(server)
		if err != nil {
			return err
		}
		list, err := c.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		has := map[types.UID]string{}
		for _, pod := range list.Items {
			if pod.Status.Phase == corev1.PodRunning {
				has[pod.UID] = pod.ResourceVersion
			}
		}
		if first == nil {
			first, r.Pods = has, len(has)
			for uid := range before {
				if has[uid] == "" {
					r.Lost++
				}
			}
		} else if !maps.Equal(first, has) {
			r.Differ = append(r.Differ, server)
		}
	}
	return nil
}

// transitions are how often the leases of leaders have changed hands.
func (l *load) transitions(ctx context.Context) (map[string]int32, error) {
	out := map[string]int32{}
	for _, name := range leases {
		lease, err := l.client.CoordinationV1().Leases("kube-system").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		if lease.Spec.LeaseTransitions != nil {
			out[name] = *lease.Spec.LeaseTransitions
		}
	}
	return out, nil
}

// auditEvent is the part of an audit event that is read.
type auditEvent struct {
	Stage      string    `json:"stage"`
	Verb       string    `json:"verb"`
	RequestURI string    `json:"requestURI"`
	UserAgent  string    `json:"userAgent"`
	Received   time.Time `json:"requestReceivedTimestamp"`
	Status     struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

const kwok = "kwok"

// readAgain reads audit logs: what the programs have read whole since a moment, and how many watches
// went on. Nobody begins after that moment, unless it has lost its lease.
func readAgain(files []string, since time.Time) (relists map[string][]string, wentOn map[string]int, err error) {
	relists, wentOn = map[string][]string{}, map[string]int{}
	for _, file := range files {
		err := eachEvent(file, func(e auditEvent) {
			client, _, _ := strings.Cut(e.UserAgent, "/")
			if e.Received.Before(since) || !slices.Contains([]string{"kube-controller-manager", "kube-scheduler", kwok}, client) {
				return
			}
			// A watch has an event when it begins, and one when it ends, which alone says that it was refused.
			if e.Verb == "watch" && e.Stage == "ResponseComplete" && e.Status.Code == http.StatusOK {
				return
			}
			u, err := url.ParseRequestURI(e.RequestURI)
			if err != nil {
				return
			}
			switch q := u.Query(); {
			case e.Verb == "list", e.Verb == "watch" && (q.Get("sendInitialEvents") == "true" || q.Get("resourceVersion") == "" || q.Get("resourceVersion") == "0"):
				relists[client] = append(relists[client], fmt.Sprintf("%s %s %d %s", e.Verb, e.RequestURI, e.Status.Code, e.UserAgent))
			case e.Verb == "watch":
				wentOn[client]++
			}
		})
		if err != nil {
			return nil, nil, err
		}
	}
	return relists, wentOn, nil
}

func eachEvent(file string, f func(auditEvent)) error {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e auditEvent
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		f(e)
	}
	return lines.Err()
}
