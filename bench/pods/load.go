package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/quorate/quorate/bench/measure"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

const (
	namespace = "default"
	label     = "bench"
	// players is how many KWOKs there are. Each plays the Nodes with its number: two that meet at a Pod would
	// both give it an address.
	players = 3
)

// load makes what the control plane has to work for.
type load struct {
	client *kubernetes.Clientset
	// made are the Pods that are asked for, named the Deployments.
	made, named int
}

// makeNodes makes Nodes and waits until KWOK has them Ready.
func (l *load) makeNodes(ctx context.Context, n int) error {
	err := each(n, func(i int) error {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name:        fmt.Sprintf("node-%d", i),
			Labels:      map[string]string{"kubernetes.io/hostname": fmt.Sprintf("node-%d", i), "bench/kwok": fmt.Sprint(i % players)},
			Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"},
		}}
		_, err := l.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	return wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		list, err := l.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return false, err
		}
		ready := 0
		for _, node := range list.Items {
			for _, c := range node.Status.Conditions {
				if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && len(node.Spec.Taints) == 0 {
					ready++
				}
			}
		}
		return ready == n, nil
	})
}

// each calls f for 0 to n-1, some at a time, and returns their errors.
func each(n int, f func(i int) error) error {
	next := make(chan int)
	errs := make([]error, 16)
	var workers sync.WaitGroup
	for w := range errs {
		workers.Go(func() {
			for i := range next {
				if err := f(i); err != nil {
					errs[w] = err
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
	return errors.Join(errs...)
}

// runPods makes Deployments with so many Pods, and returns how long it took until all that were ever
// asked for ran.
func (l *load) runPods(ctx context.Context, pods *podWatch, n int) (time.Duration, error) {
	began := time.Now()
	if err := l.deploy(ctx, n); err != nil {
		return 0, err
	}
	last, err := pods.await(ctx, l.made)
	return last.Sub(began), err
}

func (l *load) deploy(ctx context.Context, n int) error {
	for left := n; left > 0; left -= perDeployment {
		replicas := int32(min(left, perDeployment))
		l.named++
		name := fmt.Sprintf("load-%d", l.named)
		labels := map[string]string{label: name}
		d := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: appsv1.DeploymentSpec{
				Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "image:1"}}},
				},
			},
		}
		if _, err := l.client.AppsV1().Deployments(namespace).Create(ctx, d, metav1.CreateOptions{}); err != nil {
			return err
		}
		l.made += int(replicas)
	}
	return nil
}

// podWatch follows all Pods.
type podWatch struct {
	mu      sync.Mutex
	seen    map[types.UID]time.Time // when each was first seen
	running map[types.UID]bool
	deleted int
	last    time.Time // when one began to run
	times   *measure.Histogram
	changed chan struct{}
}

// follow begins to follow Pods, until ctx ends.
func (l *load) follow(ctx context.Context) (*podWatch, error) {
	w := &podWatch{seen: map[types.UID]time.Time{}, running: map[types.UID]bool{}, changed: make(chan struct{}, 1)}
	factory := informers.NewSharedInformerFactory(l.client, 0)
	informer := factory.Core().V1().Pods().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { w.note(o.(*corev1.Pod)) },
		UpdateFunc: func(_, o any) { w.note(o.(*corev1.Pod)) },
		DeleteFunc: func(any) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.deleted++
		},
	})
	if err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil, ctx.Err()
	}
	return w, nil
}

func (w *podWatch) note(pod *corev1.Pod) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	first, ok := w.seen[pod.UID]
	if !ok {
		first = now
		w.seen[pod.UID] = now
	}
	if pod.Status.Phase != corev1.PodRunning || w.running[pod.UID] {
		return
	}
	w.running[pod.UID] = true
	w.last = now
	if w.times != nil {
		w.times.RecordTime(now.Sub(first))
	}
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// measure begins to note how long Pods take to run from when they were first seen, or ends it and
// returns what was noted.
func (w *podWatch) measure(on bool) (was measure.Histogram) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.times != nil {
		was = *w.times
	}
	w.times = nil
	if on {
		h := measure.NewHistogram()
		w.times = &h
	}
	return was
}

// await waits until so many Pods have run, and returns when the last one began to.
func (w *podWatch) await(ctx context.Context, n int) (time.Time, error) {
	for {
		w.mu.Lock()
		ran, last := len(w.running), w.last
		w.mu.Unlock()
		if ran >= n {
			return last, nil
		}
		select {
		case <-ctx.Done():
			return last, fmt.Errorf("%d of %d pods run: %w", ran, n, ctx.Err())
		case <-w.changed:
		}
	}
}

// ran are the Pods that have run, and how many were deleted.
func (w *podWatch) ran() (map[types.UID]bool, int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.running), w.deleted
}
