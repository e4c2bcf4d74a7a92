package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// fill makes what kperf's published profiles read: 10 Nodes, 1,000 Pods, as many Events, a Job and 100 ConfigMaps.
func fill(ctx context.Context, config *rest.Config) error {
	const pods, writers = 1000, 8
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	const space, nodes = "job1pod1k", "virtualnodes-kperf-io"
	for _, name := range []string{space, nodes} {
		if _, err := c.CoreV1().Namespaces().Create(ctx, &core.Namespace{ObjectMeta: meta.ObjectMeta{Name: name}}, meta.CreateOptions{}); err != nil {
			return err
		}
	}
	spec := func(node int) core.PodSpec {
		env := make([]core.EnvVar, 5)
		for i := range env {
			env[i] = core.EnvVar{Name: fmt.Sprintf("E%d", i), Value: strings.Repeat("x", 60)}
		}
		no := false
		return core.PodSpec{
			NodeName: fmt.Sprintf("node10job1pod1k-%d", node), RestartPolicy: core.RestartPolicyNever, AutomountServiceAccountToken: &no,
			Containers: []core.Container{{Name: "fake-container", Image: "fake-image", Env: env}},
		}
	}
	job := &batch.Job{ObjectMeta: meta.ObjectMeta{Name: "batchjobs"}}
	job.Spec.Template.Spec = core.PodSpec{RestartPolicy: core.RestartPolicyNever, Containers: []core.Container{{Name: "fake-container", Image: "fake-image"}}}
	_, err = c.BatchV1().Jobs(space).Create(ctx, job, meta.CreateOptions{})
	if err != nil {
		return err
	}
	one := func(i int) error {
		name := fmt.Sprintf("batchjobs-%05d", i)
		pod := &core.Pod{ObjectMeta: meta.ObjectMeta{Name: name, Labels: map[string]string{"app": "fake-pod", "job-name": "batchjobs"}}, Spec: spec(i % 10)}
		_, err := c.CoreV1().Pods(space).Create(ctx, pod, meta.CreateOptions{})
		_, again := c.CoreV1().Events(space).Create(ctx, &core.Event{
			ObjectMeta: meta.ObjectMeta{Name: name + ".1"}, InvolvedObject: core.ObjectReference{Kind: "Pod", Namespace: space, Name: name},
			Reason: "Scheduled", Type: core.EventTypeNormal, Message: "Successfully assigned a Pod to a Node", Source: core.EventSource{Component: "default-scheduler"},
		}, meta.CreateOptions{})
		err = errors.Join(err, again)
		if i < 10 {
			node := &core.Node{ObjectMeta: meta.ObjectMeta{Name: fmt.Sprintf("node10job1pod1k-%d", i), Labels: map[string]string{"type": "kperf-virtualnodes"}}}
			_, made := c.CoreV1().Nodes().Create(ctx, node, meta.CreateOptions{})
			_, runs := c.CoreV1().Pods(nodes).Create(ctx, &core.Pod{ObjectMeta: meta.ObjectMeta{Name: node.Name}, Spec: spec(i)}, meta.CreateOptions{})
			err = errors.Join(err, made, runs)
		}
		if i < 100 {
			data := &core.ConfigMap{ObjectMeta: meta.ObjectMeta{Name: fmt.Sprintf("runkperf-cm-kperf-read-update-%d", i)}, Data: map[string]string{"data": strings.Repeat("y", 1024)}}
			_, made := c.CoreV1().ConfigMaps("default").Create(ctx, data, meta.CreateOptions{})
			err = errors.Join(err, made)
		}
		return err
	}
	errs := make([]error, writers)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := w; i < pods && errs[w] == nil; i += writers {
				errs[w] = one(i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
