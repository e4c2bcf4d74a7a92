//go:build linux

package nodes

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const widgetManifests = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.site.test}
spec:
  group: site.test
  scope: Namespaced
  names: {plural: widgets, kind: Widget, listKind: WidgetList, singular: widget}
  conversion:
    strategy: Webhook
    webhook:
      conversionReviewVersions: [v1]
      clientConfig: {caBundle: %[2]s, service: {namespace: %[1]s, name: operator, path: /convert, port: 443}}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}, status: {type: object, properties: {state: {type: string}}}}}}
  - name: v2
    served: true
    storage: false
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {length: {type: integer}}}, status: {type: object, properties: {state: {type: string}}}}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: widgets.site.test}
webhooks:
- name: widgets.site.test
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  rules: [{apiGroups: [site.test], apiVersions: [v1], resources: [widgets], operations: [CREATE, UPDATE]}]
  clientConfig: {caBundle: %[2]s, service: {namespace: %[1]s, name: operator, path: /mutate, port: 443}}
---
apiVersion: v1
kind: Service
metadata: {name: operator, namespace: %[1]s}
spec: {selector: {app: operator}, ports: [{port: 443, targetPort: 8443}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: operator, namespace: %[1]s}
rules:
- {apiGroups: [site.test], resources: [widgets], verbs: [get, list, watch]}
- {apiGroups: [site.test], resources: [widgets/status], verbs: [update]}
- {apiGroups: [""], resources: [configmaps], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: operator, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: operator}
subjects: [{kind: ServiceAccount, name: default, namespace: %[1]s}]
`

// testOperator runs an operator in Pods: its controller by the token that it finds, its webhooks for
// admission and conversion called by each Quorate node.
func testOperator(t *testing.T, s *Site) {
	ns := s.namespace(t)
	cert, key := s.site.server(t, "operator."+ns+".svc")
	b64 := base64.StdEncoding.EncodeToString
	s.apply(t, ns, fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: serving}\ntype: kubernetes.io/tls\ndata: {tls.crt: %s, tls.key: %s}\n", b64(cert), b64(key)))
	s.apply(t, ns, fmt.Sprintf(widgetManifests, ns, b64([]byte(readAll(t, s.site.certFile)))))
	t.Cleanup(func() {
		s.kubectlAtEnd(t, "delete", "crd/widgets.site.test", "mutatingwebhookconfiguration/widgets.site.test", "--wait=false")
	})
	s.apply(t, ns, strings.Replace(workload("Deployment", "operator", container("operator", "inside operator",
		"readinessProbe: {tcpSocket: {port: 8443}, periodSeconds: 1}", "volumeMounts: [{name: certs, mountPath: /certs}]"), "replicas: 1"),
		"terminationGracePeriodSeconds: 2,", "terminationGracePeriodSeconds: 2, volumes: [{name: certs, secret: {secretName: serving}}],", 1))
	s.awaitReady(t, ns, "app=operator", 1)

	// By each node: it calls the webhooks itself.
	for _, m := range s.control {
		name := "of-" + m.name
		widget := fmt.Sprintf("apiVersion: site.test/v2\nkind: Widget\nmetadata: {name: %s, namespace: %s}\nspec: {length: 7}\n", name, ns)
		s.awaitFor(t, podsWithin, m.name+" makes a widget of the second version", func() string {
			out, err := s.tryKubectl(t, widget, "--server", "https://"+m.ip+":6443", "create", "-f", "-")
			if err == nil || strings.Contains(out, "AlreadyExists") {
				return ""
			}
			return out
		})
		s.awaitFor(t, podsWithin, "the operator has made "+name, func() string {
			cm, err := s.client.CoreV1().ConfigMaps(ns).Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			if cm.Data["size"] != "7" {
				t.Fatalf("%s: %v", name, cm.Data)
			}
			got := s.kubectl(t, "--server", "https://"+m.ip+":6443", "get", "-n", ns, "widgets.v2.site.test/"+name, "-o",
				"jsonpath={.spec.length} {.spec.size} {.metadata.labels.mutated} {.status.state}")
			if got != "7  yes made" {
				return got
			}
			return ""
		})
	}
	if out, err := s.tryKubectl(t, fmt.Sprintf("apiVersion: site.test/v1\nkind: Widget\nmetadata: {name: none, namespace: %s}\nspec: {size: 0}\n", ns), "create", "-f", "-"); err == nil || !strings.Contains(out, "a widget has a size") {
		t.Errorf("a widget of no size: %v, %s", err, out)
	}
	// What it owns goes with it.
	s.kubectl(t, "delete", "widgets.site.test", "-n", ns, "--all")
	s.awaitFor(t, podsWithin, "the ConfigMaps of the widgets are gone", func() string {
		list, err := s.client.CoreV1().ConfigMaps(ns).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		for _, cm := range list.Items {
			if strings.HasPrefix(cm.Name, "of-") {
				return cm.Name + " is there"
			}
		}
		return ""
	})
}
