package definitions

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// TestManyDefinitions installs DEFINITIONS (40; 2000 is the case of Crossplane) custom
// resources in groups of twenty, and measures what that costs those who do not use
// them. The bounds are far above what is measured (bench/README.md): they catch what grows
// with the square of the number.
func TestManyDefinitions(t *testing.T) {
	count := 40
	if s := os.Getenv("DEFINITIONS"); s != "" {
		var err error
		if count, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	c := cluster.Start(t, 3)
	n := c.Nodes()[1]
	n.Send(t, http.MethodPost, cluster.ConfigMaps, `{"metadata":{"name":"plain"},"data":{"k":"v"}}`)
	paths := []string{cluster.ConfigMaps + "/plain", "/apis", "/openapi/v3", "/openapi/v2"}
	accept := map[string]string{"/apis": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", "/openapi/v2": "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"}
	times := func(when string) map[string]time.Duration {
		out := map[string]time.Duration{}
		for _, path := range paths {
			first := timed(t, n, path, accept[path])
			again := make([]time.Duration, 21)
			for i := range again {
				again[i] = timed(t, n, path, accept[path])
			}
			slices.Sort(again)
			out[path], out[path+" first"] = again[10], first
			t.Logf("%s: %s: first %v, then %v", when, path, first.Round(10*time.Microsecond), again[10].Round(10*time.Microsecond))
		}
		return out
	}
	before := times("before")
	memory := n.Resident(t)
	began := time.Now()
	installMany(t, n, count)
	installed := time.Since(began)
	grown := float64(n.Resident(t)-memory) / float64(count) / 1024
	t.Logf("%d definitions established in %v, %.0f KiB of resident memory each", count, installed.Round(time.Millisecond), grown)
	after := times("after")
	t.Logf("all documents built: %.0f KiB each", float64(n.Resident(t)-memory)/float64(count)/1024)
	if limit := 2*before[paths[0]] + 5*time.Millisecond; after[paths[0]] > limit {
		t.Errorf("a ConfigMap takes %v beside %d definitions, %v without them", after[paths[0]], count, before[paths[0]])
	}
	for _, path := range paths[1:3] {
		if limit := 500*time.Millisecond + 4*before[path+" first"] + time.Duration(count)*time.Millisecond; after[path+" first"] > limit {
			t.Errorf("the first %s takes %v, more than %v", path, after[path+" first"], limit)
		}
	}
	// One more: what was there is not built again.
	installMany(t, n, count+1)
	for _, path := range paths {
		t.Logf("after one more: %s: %v", path, timed(t, n, path, accept[path]).Round(10*time.Microsecond))
	}
}

// timed is how long a GET takes.
func timed(t *testing.T, n *cluster.Node, path, accept string) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.API+path, nil)
	must.OK(t, err)
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	client := *n.HTTP(t)
	client.Timeout = 0 // that of ctx
	began := time.Now()
	resp, err := client.Do(req)
	must.OK(t, err)
	defer resp.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", path, resp.Status, err)
	}
	return time.Since(began)
}

// installMany makes sure that there are count definitions, all established.
func installMany(t *testing.T, n *cluster.Node, count int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	definitions := n.Dynamic(t).Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	next := make(chan int)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range next {
				u := &unstructured.Unstructured{}
				if err := json.Unmarshal([]byte(manyDefinition(i)), &u.Object); err != nil {
					t.Error(err)
					return
				}
				if _, err := definitions.Create(ctx, u, metav1.CreateOptions{}); err != nil && !strings.Contains(err.Error(), "already exists") {
					t.Error(err)
				}
			}
		})
	}
	for i := range count {
		next <- i
	}
	close(next)
	wg.Wait()
	cluster.Await(t, 5*time.Minute, "all definitions to be established", func() string {
		list, err := definitions.List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return err.Error()
		}
		ready := 0
		for i := range list.Items {
			if isEstablished(&list.Items[i]) {
				ready++
			}
		}
		if ready < count {
			return fmt.Sprintf("%d of %d", ready, count)
		}
		return ""
	})
}

// manyDefinition is one of a project's: some 8 KiB of schema.
func manyDefinition(i int) string {
	var properties []string
	for p := range 40 {
		properties = append(properties, fmt.Sprintf(`"field%d":{"type":"object","description":"Field %d of kind %d says how a part of the resource ought to be, and what it may refer to.","properties":{"name":{"type":"string","description":"Name of the referenced object."},"size":{"type":"integer","default":%d}}}`, p, p, i, p))
	}
	spec := `{"type":"object","properties":{` + strings.Join(properties, ",") + `}}`
	group := fmt.Sprintf("group%d.many.example.com", i/20)
	return fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"many%[1]ds.%[2]s"},
		"spec":{"group":%[2]q,"scope":"Cluster","names":{"plural":"many%[1]ds","kind":"Many%[1]d","categories":["many"]},
		"versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":%[3]s,"status":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}}]}}`, i, group, spec)
}
