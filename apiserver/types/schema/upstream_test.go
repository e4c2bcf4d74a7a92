package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/quorate/quorate/internal/must"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	kjson "sigs.k8s.io/json"
)

// stored is a type of upstream's that is kept in its binary form.
type stored interface {
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

var upstreamTypes = map[string]stored{
	"io.k8s.api.admissionregistration.v1.ValidatingWebhookConfiguration": &admissionv1.ValidatingWebhookConfiguration{},
	"io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicy":      &admissionv1.ValidatingAdmissionPolicy{},
	"io.k8s.api.apps.v1.DaemonSet":                                       &appsv1.DaemonSet{},
	"io.k8s.api.apps.v1.Deployment":                                      &appsv1.Deployment{},
	"io.k8s.api.apps.v1.StatefulSet":                                     &appsv1.StatefulSet{},
	"io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler":                  &autoscalingv2.HorizontalPodAutoscaler{},
	"io.k8s.api.batch.v1.CronJob":                                        &batchv1.CronJob{},
	"io.k8s.api.batch.v1.Job":                                            &batchv1.Job{},
	"io.k8s.api.certificates.v1.CertificateSigningRequest":               &certificatesv1.CertificateSigningRequest{},
	"io.k8s.api.coordination.v1.Lease":                                   &coordinationv1.Lease{},
	"io.k8s.api.core.v1.ConfigMap":                                       &corev1.ConfigMap{},
	"io.k8s.api.core.v1.Event":                                           &corev1.Event{},
	"io.k8s.api.core.v1.LimitRange":                                      &corev1.LimitRange{},
	"io.k8s.api.core.v1.Namespace":                                       &corev1.Namespace{},
	"io.k8s.api.core.v1.Node":                                            &corev1.Node{},
	"io.k8s.api.core.v1.PersistentVolume":                                &corev1.PersistentVolume{},
	"io.k8s.api.core.v1.PersistentVolumeClaim":                           &corev1.PersistentVolumeClaim{},
	"io.k8s.api.core.v1.Pod":                                             &corev1.Pod{},
	"io.k8s.api.core.v1.ReplicationController":                           &corev1.ReplicationController{},
	"io.k8s.api.core.v1.Secret":                                          &corev1.Secret{},
	"io.k8s.api.core.v1.Service":                                         &corev1.Service{},
	"io.k8s.api.discovery.v1.EndpointSlice":                              &discoveryv1.EndpointSlice{},
	"io.k8s.api.flowcontrol.v1.FlowSchema":                               &flowcontrolv1.FlowSchema{},
	"io.k8s.api.flowcontrol.v1.PriorityLevelConfiguration":               &flowcontrolv1.PriorityLevelConfiguration{},
	"io.k8s.api.networking.v1.Ingress":                                   &networkingv1.Ingress{},
	"io.k8s.api.networking.v1.IngressClass":                              &networkingv1.IngressClass{},
	"io.k8s.api.networking.v1.NetworkPolicy":                             &networkingv1.NetworkPolicy{},
	"io.k8s.api.rbac.v1.ClusterRole":                                     &rbacv1.ClusterRole{},
	"io.k8s.api.rbac.v1.ClusterRoleBinding":                              &rbacv1.ClusterRoleBinding{},
	"io.k8s.api.resource.v1.ResourceClaim":                               &resourcev1.ResourceClaim{},
	"io.k8s.api.resource.v1.ResourceSlice":                               &resourcev1.ResourceSlice{},
	"io.k8s.api.storage.v1.StorageClass":                                 &storagev1.StorageClass{},
}

func newOf(v stored) stored { return reflect.New(reflect.TypeOf(v).Elem()).Interface().(stored) }

func asTree(t *testing.T, v any) map[string]any {
	t.Helper()
	b, err := json.Marshal(v)
	must.OK(t, err)
	var obj map[string]any
	must.OK(t, kjson.UnmarshalCaseSensitivePreserveInts(b, &obj))
	return obj
}

// TestNoPointerIsEmptied: what is written as null without a value, and is empty, is null in a list only.
func TestNoPointerIsEmptied(t *testing.T) {
	for name, object := range map[string]string{
		"io.k8s.api.flowcontrol.v1.PriorityLevelConfiguration": `{"spec":{"type":"Limited","limited":{"nominalConcurrencyShares":0,"limitResponse":{"type":"Reject"}}}}`,
		"io.k8s.api.core.v1.PersistentVolumeClaim":             `{"spec":{"dataSource":{"apiGroup":"","kind":"PersistentVolumeClaim","name":"a"},"resources":{}},"status":{}}`,
		"io.k8s.api.core.v1.Pod":                               `{"spec":{"containers":[]}}`,
	} {
		m, err := Lookup(name)
		must.OK(t, err)
		var sent map[string]any
		must.OK(t, kjson.UnmarshalCaseSensitivePreserveInts([]byte(object), &sent))
		sameAsGo(t, m, upstreamTypes[name], sent)
	}
}

// TestZeroLikeGoTypes: of nothing, the same is written as of upstream's type.
func TestZeroLikeGoTypes(t *testing.T) {
	for name, v := range upstreamTypes {
		m, err := Lookup(name)
		must.OK(t, err)
		if d := cmp.Diff(asTree(t, newOf(v)), m.Zero()); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// TestFitAndFillLikeGoTypes: of random objects, with nulls and with values of zero, the same is left and
// added as upstream's types do which read them, and which are stored in between.
func TestFitAndFillLikeGoTypes(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(upstreamTypes)) {
		m, err := Lookup(name)
		must.OK(t, err)
		g := &generator{rand.New(rand.NewPCG(1, 1))}
		for range 100 {
			sent := map[string]any{}
			g.fields(m.root, sent, 0)
			delete(sent, "metadata")
			sameAsGo(t, m, upstreamTypes[name], sent)
			if t.Failed() {
				break
			}
		}
	}
}

func sameAsGo(t *testing.T, m *Model, kind stored, sent map[string]any) {
	t.Helper()
	b, err := json.Marshal(sent)
	must.OK(t, err)
	read := newOf(kind)
	if err := kjson.UnmarshalCaseSensitivePreserveInts(b, read); err != nil {
		t.Fatalf("%s: %v: %s", m.Name, err, b)
	}
	binary, err := read.Marshal()
	if err != nil {
		t.Fatalf("%s: %v: %s", m.Name, err, b)
	}
	after := newOf(kind)
	must.OK(t, after.Unmarshal(binary))
	wantRead, wantStored := asTree(t, read), asTree(t, after)
	got := clone(sent).(map[string]any)
	if unknown, err := m.Fit(got); err != nil || len(unknown) > 0 {
		t.Fatalf("%s: %v %v: %s", m.Name, unknown, err, b)
	}
	fitted := clone(got)
	kept := m.FillKeeping(got)
	for _, obj := range []map[string]any{got, wantRead, wantStored} {
		delete(obj, "metadata")
	}
	if d := cmp.Diff(wantRead, got); d != "" {
		t.Errorf("%s: as it was read: %s\nof %s", m.Name, d, b)
	}
	if !reflect.DeepEqual(wantRead, wantStored) != kept {
		t.Errorf("%s: FillKeeping: %v: %s", m.Name, kept, b)
	}
	got = fitted.(map[string]any)
	m.Fill(got)
	delete(got, "metadata")
	if d := cmp.Diff(wantStored, got); d != "" {
		t.Errorf("%s: as it was stored: %s\nof %s", m.Name, d, b)
	}
}

// generator makes values of models: those that are like none, more often than others.
type generator struct{ *rand.Rand }

func (g *generator) fields(n *node, obj map[string]any, depth int) {
	for _, f := range n.sorted {
		if f.name == "kind" || f.name == "apiVersion" || f.name == "managedFields" {
			continue // these are others' business, and written.txt does not have them
		}
		if n.model == scalingRules && f.name == "policies" {
			continue // an empty list is refused: see compiler.object
		}
		// Deep objects have fewer fields, or they would not end.
		if g.IntN(3+depth*depth) < 2 {
			obj[f.name] = g.value(f.node, depth)
		}
	}
}

func (g *generator) value(n *node, depth int) any {
	if g.IntN(6) == 0 {
		return nil
	}
	zero := g.IntN(3) == 0
	pick := func(none, some any) any {
		if zero {
			return none
		}
		return some
	}
	switch n.shape {
	case shapeStruct:
		obj := map[string]any{}
		if !zero {
			g.fields(n, obj, depth+1)
		}
		return obj
	case shapeMap:
		obj := map[string]any{}
		for i := range g.IntN(3) {
			v := g.value(n.elem, depth+1)
			if v == nil && (n.elem.shape == shapeBytes || n.elem.shape == shapeList) {
				continue // empty here at once, and upstream when they are stored
			}
			obj[fmt.Sprint("k", i)] = v
		}
		return obj
	case shapeList:
		list := []any{}
		for range g.IntN(3) {
			list = append(list, g.value(n.elem, depth+1))
		}
		return list
	case shapeString:
		return pick("", "x")
	case shapeBytes:
		return pick("", "YQ==")
	case shapeTime:
		return "2026-01-02T03:04:05Z"
	case shapeMicroTime:
		return "2026-01-02T03:04:05.000006Z"
	case shapeBool:
		return pick(false, true)
	case shapeInt32, shapeInt64:
		return pick(int64(0), int64(7))
	case shapeFloat:
		return pick(int64(0), 1.5)
	case shapeIntOrString:
		return pick(int64(0), "10%")
	case shapeQuantity:
		return pick("0", "1")
	}
	return nil
}
