package validation

import (
	"fmt"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/internal/cputime"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// many makes n elements of a list.
func many(n int, element func(i int) any) []any {
	out := make([]any, n)
	for i := range out {
		out[i] = element(i)
	}
	return out
}

// pairs makes an object of n texts.
func pairs(n int, value func(i int) string) tree.Object {
	out := make(tree.Object, n)
	for i := range n {
		out[fmt.Sprintf("k%d.example.com", i)] = value(i)
	}
	return out
}

// everySecond is a text that changes with v for every second i.
func everySecond(v int) func(i int) string {
	return func(i int) string { return fmt.Sprint("x", i, "-", v*(i%2)) }
}

func stored(name string, spec tree.Object) tree.Object {
	return tree.Object{"metadata": tree.Object{"name": name, "namespace": "n", "uid": "u", "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": spec}
}

// sources are a projected volume's, of which v changes all names and no path.
func sources(n, v int) []any {
	return []any{tree.Object{"name": "v", "projected": tree.Object{"sources": many(n, func(i int) any {
		return tree.Object{"configMap": tree.Object{"name": fmt.Sprint("c", v, "-", i), "items": []any{tree.Object{"key": "a", "path": fmt.Sprint("p", i)}}}}
	})}}}
}

func container(name string, env []any) tree.Object {
	return tree.Object{"name": name, "image": "i", "imagePullPolicy": "Always", "terminationMessagePath": "/x", "terminationMessagePolicy": "File", "env": env}
}

func environment(n, v int) []any {
	return many(n, func(i int) any {
		return tree.Object{"name": fmt.Sprint("n", i), "value": everySecond(v)(i)}
	})
}

func podSpec(n int) tree.Object {
	return tree.Object{
		"containers": []any{container("c", environment(n, 0))}, "volumes": sources(n/2, 0),
		"ephemeralContainers": []any{container("e", environment(n, 0))},
		"restartPolicy":       "Always", "dnsPolicy": "Default", "terminationGracePeriodSeconds": int64(30), "securityContext": tree.Object{},
		"affinity": tree.Object{"nodeAffinity": tree.Object{"requiredDuringSchedulingIgnoredDuringExecution": tree.Object{"nodeSelectorTerms": []any{
			tree.Object{"matchExpressions": []any{tree.Object{"key": "a", "operator": "Exists"}}}}}}},
	}
}

func volumeSpec(n int) tree.Object {
	return tree.Object{
		"capacity": tree.Object{"storage": "1Gi"}, "accessModes": []any{"ReadWriteOnce"}, "volumeMode": "Filesystem", "persistentVolumeReclaimPolicy": "Retain",
		"csi": tree.Object{"driver": "d", "volumeHandle": "h", "volumeAttributes": pairs(n, everySecond(0))},
	}
}

func claimSpec(n int) tree.Object {
	return tree.Object{
		"accessModes": []any{"ReadWriteOnce"}, "volumeMode": "Filesystem", "resources": tree.Object{"requests": tree.Object{"storage": "1Gi"}},
		"selector": tree.Object{"matchLabels": pairs(n, everySecond(0))},
	}
}

// changes are updates of large objects; refused says whether one is of what cannot be changed.
var changes = []struct {
	kind, subresource, name string
	spec                    func(n int) tree.Object
	change                  func(spec tree.Object, n int)
	refused                 bool
}{
	{"pods", "", "nothing", podSpec, func(spec tree.Object, n int) {}, false},
	{"pods", "", "an image", podSpec, func(spec tree.Object, n int) { tree.As(tree.List(spec["containers"])[0])["image"] = "j" }, false},
	{"pods", "", "a toleration", podSpec, func(spec tree.Object, n int) {
		spec["tolerations"] = []any{tree.Object{"key": "a", "operator": "Exists"}}
	}, false},
	{"pods", "", "the deadline", podSpec, func(spec tree.Object, n int) { spec["activeDeadlineSeconds"] = int64(7) }, false},
	{"pods", "", "the volumes", podSpec, func(spec tree.Object, n int) { spec["volumes"] = sources(n/2, 1) }, true},
	{"pods", "", "the environment", podSpec, func(spec tree.Object, n int) { spec["containers"] = []any{container("c", environment(n, 1))} }, true},
	{"pods", "", "the selector", podSpec, func(spec tree.Object, n int) { spec["nodeSelector"] = pairs(n, everySecond(1)) }, true},
	{"pods", "", "the affinity", podSpec, func(spec tree.Object, n int) { delete(spec, "affinity") }, true},
	{"pods", "", "the selector of one that waits", gatedSpec, func(spec tree.Object, n int) { spec["nodeSelector"] = pairs(n/10, everySecond(1)) }, false},
	{"pods", "", "the volumes of one that waits", gatedSpec, func(spec tree.Object, n int) { spec["volumes"] = sources(n/2, 1) }, true},
	{"pods", "ephemeralcontainers", "nothing", podSpec, func(spec tree.Object, n int) {}, false},
	{"pods", "ephemeralcontainers", "one more", podSpec, func(spec tree.Object, n int) {
		spec["ephemeralContainers"] = append(tree.List(spec["ephemeralContainers"]), container("f", nil))
	}, false},
	{"pods", "ephemeralcontainers", "one that is there", podSpec, func(spec tree.Object, n int) {
		spec["ephemeralContainers"] = []any{container("e", environment(n, 1))}
	}, true},
	{"persistentvolumes", "", "the capacity", volumeSpec, func(spec tree.Object, n int) { spec["capacity"] = tree.Object{"storage": "2Gi"} }, false},
	{"persistentvolumes", "", "the first secret", volumeSpec, func(spec tree.Object, n int) {
		tree.As(spec["csi"])["controllerExpandSecretRef"] = tree.Object{"name": "a", "namespace": "b"}
	}, false},
	{"persistentvolumes", "", "the source", volumeSpec, func(spec tree.Object, n int) {
		tree.As(spec["csi"])["volumeAttributes"] = pairs(n, everySecond(1))
	}, true},
	{"persistentvolumeclaims", "", "the volume", claimSpec, func(spec tree.Object, n int) { spec["volumeName"] = "v" }, false},
	{"persistentvolumeclaims", "", "a quantity in another text", claimSpec, func(spec tree.Object, n int) {
		spec["resources"] = tree.Object{"requests": tree.Object{"storage": "1024Mi"}}
	}, false},
	{"persistentvolumeclaims", "", "the selector", claimSpec, func(spec tree.Object, n int) {
		spec["selector"] = tree.Object{"matchLabels": pairs(n, everySecond(1))}
	}, true},
	{"persistentvolumeclaims", "", "other requests", claimSpec, func(spec tree.Object, n int) {
		spec["resources"] = tree.Object{"requests": tree.Object{"storage": "1Gi", "a": "1"}}
	}, true},
}

func gatedSpec(n int) tree.Object {
	spec := podSpec(n)
	spec["schedulingGates"] = []any{tree.Object{"name": "g"}}
	return spec
}

// TestUndiffed: a large object's change of what cannot be changed is refused by the same field and
// reason as that of a small one, without the differences and in no time; others are not concerned.
func TestUndiffed(t *testing.T) {
	for _, c := range changes {
		t.Run(c.kind+" "+c.subresource+" "+c.name, func(t *testing.T) {
			update := func(n int) (errs field.ErrorList) {
				old := stored("a", c.spec(n))
				if c.kind == "persistentvolumes" {
					delete(tree.As(old["metadata"]), "namespace")
				}
				obj := tree.Object(runtime.DeepCopyJSON(old))
				c.change(tree.As(obj["spec"]), n)
				if took := cputime.Of(func() { errs = Of(c.kind).Update(c.subresource, obj, old, c.kind != "persistentvolumes", nil) }); took > mostTime {
					t.Errorf("with %d: %s", n, took)
				}
				return errs
			}
			said := func(errs field.ErrorList) (out []string) {
				for _, e := range errs {
					out = append(out, fmt.Sprint(e.Field, " ", e.Type))
				}
				return out
			}
			small, big := update(20), update(3000)
			if got, want := fmt.Sprint(said(big)), fmt.Sprint(said(small)); got != want {
				t.Errorf("a large one is refused by %s, a small one by %s", got, want)
			}
			if refused := len(small) > 0; refused != c.refused {
				t.Errorf("refused: %t, %v", refused, small)
			}
			if c.refused && (!strings.HasSuffix(big[0].Detail, undiffed) || strings.TrimSuffix(big[0].Detail, undiffed) != strings.SplitN(small[0].Detail, "\n", 2)[0]) {
				t.Errorf("a large one is told %.300q, a small one %.300q", big[0].Detail, small[0].Detail)
			}
		})
	}
}

// TestOldAddresses: addresses that were stored and would be refused today may stay, others may not come,
// and many of them take no time.
func TestOldAddresses(t *testing.T) {
	const wrong, n = "10.0.0.300", 40_000
	ips := func(v int) []any {
		return many(n, func(i int) any { return fmt.Sprintf("10.%d.%d.%d", v+i>>16&15, i>>8&255, i&255) })
	}
	cidrs := func(v int) []any {
		return many(n, func(i int) any { return fmt.Sprintf("10.%d.%d.%d/32", v+i>>16&15, i>>8&255, i&255) })
	}
	service := func(field string, list []any) tree.Object {
		return stored("a", tree.Object{"type": "LoadBalancer", "sessionAffinity": "None", "externalTrafficPolicy": "Cluster", "allocateLoadBalancerNodePorts": true, "internalTrafficPolicy": "Cluster",
			"clusterIP": "10.96.0.9", "clusterIPs": []any{"10.96.0.9"}, "ipFamilies": []any{"IPv4"}, "ipFamilyPolicy": "SingleStack",
			"ports": []any{tree.Object{"port": int64(1), "protocol": "TCP", "targetPort": int64(1)}}, field: list})
	}
	balanced := func(obj tree.Object, list []any) tree.Object {
		obj["status"] = tree.Object{"loadBalancer": tree.Object{"ingress": many(len(list), func(i int) any { return tree.Object{"ip": list[i], "ipMode": "VIP"} })}}
		return obj
	}
	for _, c := range []struct {
		kind, subresource, name string
		of                      func(list []any) tree.Object
		list                    func(v int) []any
		wrong                   string
	}{
		{"services", "", "externalIPs", func(list []any) tree.Object { return service("externalIPs", list) }, ips, wrong},
		{"services", "", "loadBalancerSourceRanges", func(list []any) tree.Object { return service("loadBalancerSourceRanges", list) }, cidrs, wrong + "/32"},
		{"services", "status", "ingress", func(list []any) tree.Object { return balanced(service("externalIPs", nil), list) }, ips, wrong},
		{"ingresses.networking.k8s.io", "status", "ingress", func(list []any) tree.Object {
			obj := stored("a", tree.Object{"defaultBackend": tree.Object{"service": tree.Object{"name": "s", "port": tree.Object{"number": int64(1)}}}})
			obj["status"] = tree.Object{"loadBalancer": tree.Object{"ingress": many(len(list), func(i int) any { return tree.Object{"ip": list[i]} })}}
			return obj
		}, ips, wrong},
		{"networkpolicies.networking.k8s.io", "", "except", func(list []any) tree.Object {
			return stored("a", tree.Object{"podSelector": tree.Object{}, "policyTypes": []any{"Ingress"}, "ingress": []any{tree.Object{"from": []any{
				tree.Object{"ipBlock": tree.Object{"cidr": "10.0.0.0/8", "except": list}}}}}})
		}, cidrs, wrong + "/32"},
		{"networkpolicies.networking.k8s.io", "", "egress", func(list []any) tree.Object {
			return stored("a", tree.Object{"podSelector": tree.Object{}, "policyTypes": []any{"Egress"}, "egress": []any{tree.Object{"to": many(len(list), func(i int) any {
				return tree.Object{"ipBlock": tree.Object{"cidr": list[i]}}
			})}}})
		}, func(v int) []any { return cidrs(v)[:20_000] }, wrong + "/32"},
	} {
		t.Run(c.kind+" "+c.subresource+" "+c.name, func(t *testing.T) {
			update := func(obj, old tree.Object) (errs field.ErrorList) {
				if took := cputime.Of(func() { errs = Of(c.kind).Update(c.subresource, obj, old, true, nil) }); took > mostTime {
					t.Errorf("it takes %s", took)
				}
				return errs
			}
			if errs := update(c.of(c.list(16)), c.of(c.list(0))); len(errs) > 0 {
				t.Errorf("others are refused: %.300v", errs[0])
			}
			bad, good := c.of([]any{c.wrong}), c.of(c.list(0)[:1])
			// Upstream looks at externalIPs in a second way, which has no exception.
			if errs := update(bad, bad); len(errs) > 0 != (c.name == "externalIPs") {
				t.Errorf("what was there is refused: %.300v", errs)
			}
			if errs := update(bad, good); len(errs) == 0 {
				t.Error("what is wrong is taken")
			}
		})
	}
}

// TestOldAddressesOfPods: the same of a Pod's status, which never has many that are right.
func TestOldAddressesOfPods(t *testing.T) {
	pod := func(ips ...string) tree.Object {
		obj, list := stored("a", podSpec(2)), many(len(ips), func(i int) any { return tree.Object{"ip": ips[i]} })
		obj["status"] = tree.Object{"podIPs": list, "hostIPs": list, "podIP": ips[0], "hostIP": ips[0], "qosClass": "BestEffort"}
		return obj
	}
	update := func(obj, old tree.Object) (errs field.ErrorList) {
		if took := cputime.Of(func() { errs = Of("pods").Update("status", obj, old, true, nil) }); took > mostTime {
			t.Errorf("it takes %s", took)
		}
		return errs
	}
	ips := func(v int) (out []string) {
		for i := range 30_000 {
			out = append(out, fmt.Sprintf("10.%d.%d.%d", v, i>>8, i&255))
		}
		return out
	}
	if errs := update(pod("10.0.0.300"), pod("10.0.0.300")); len(errs) > 0 {
		t.Errorf("what was there is refused: %v", errs)
	}
	if errs := update(pod("10.0.0.300"), pod("10.0.0.3")); len(errs) == 0 {
		t.Error("what is wrong is taken")
	}
	if errs := update(pod(ips(2)...), pod(ips(1)...)); len(errs) == 0 {
		t.Error("so many are taken")
	}
}
