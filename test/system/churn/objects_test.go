package churn

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"strings"
	"time"
)

func leases(c *cycle) {
	me := kubelet(c.name)
	plain := as("system:node:"+c.name, "system:nodes")
	c.call(201, "POST", coreV1+"nodes", sprintf(`{"metadata":{"name":%q},"status":{"addresses":[{"type":"InternalIP","address":"127.0.0.1"}],"daemonEndpoints":{"kubeletEndpoint":{"Port":9}}}}`, c.name))
	lease := func(seconds int, revision string) string {
		return sprintf(`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":%q,"resourceVersion":%q},"spec":{"holderIdentity":%q,"leaseDurationSeconds":%d}}`, c.name, revision, c.name, seconds)
	}
	revision := c.field(c.call(201, "POST", leasesV1, lease(40, ""), plain...), "metadata", "resourceVersion")
	for i := range 3 {
		revision = c.field(c.call(done, "PUT", leasesV1+"/"+c.name, lease(41+i, revision), plain...), "metadata", "resourceVersion")
		c.call(done, "PATCH", coreV1+"nodes/"+c.name+"/status", sprintf(`{"status":{"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady","message":"%d"}],"images":[{"names":["i-%d"],"sizeBytes":1}]}}`, i, i), me...)
	}
	c.call(done, "DELETE", leasesV1+"/"+c.name, "", plain...)
	c.call(done, "DELETE", coreV1+"nodes/"+c.name, "")
}

func kubelets(c *cycle) {
	c.call(201, "POST", coreV1+"nodes", sprintf(`{"metadata":{"name":%q},"status":{"addresses":[{"type":"InternalIP","address":"127.0.0.1"}],"daemonEndpoints":{"kubeletEndpoint":{"Port":9}}}}`, c.name))
	c.call(whatever, "GET", coreV1+"nodes/"+c.name+"/proxy/metrics", "")
	c.call(201, "POST", inChurn+"pods", sprintf(aPod, c.name))
	c.call(201, "POST", inChurn+"pods/"+c.name+"/binding", sprintf(`{"metadata":{"name":%q},"target":{"kind":"Node","name":%q}}`, c.name, c.name))
	c.call(whatever, "GET", inChurn+"pods/"+c.name+"/log", "")
	c.call(done, "DELETE", inChurn+"pods/"+c.name, atOnce)
	c.call(done, "DELETE", coreV1+"nodes/"+c.name, "")
}

// Events are not deleted: they expire.
func coreEvents(c *cycle) {
	c.call(201, "POST", inChurn+"events", sprintf(`{"metadata":{"name":%q},"involvedObject":{"kind":"Pod","namespace":"churn","name":%q},"reason":"Churn","message":"m","type":"Normal","count":1,"source":{"component":"churn"}}`, c.name, c.name))
	c.call(done, "PATCH", inChurn+"events/"+c.name, `{"count":2}`, patch(strategic)...)
}

func newEvents(c *cycle) {
	c.call(201, "POST", eventsV1, sprintf(`{"metadata":{"name":%q},"regarding":{"kind":"Pod","namespace":"churn","name":%q},"reason":"Churn","action":"Churning","note":"n","type":"Normal","eventTime":"2026-01-01T00:00:00.000000Z","reportingController":"churn/x","reportingInstance":%q}`, c.name, c.name, c.name))
	c.call(done, "PATCH", eventsV1+"/"+c.name, `{"series":{"count":2,"lastObservedTime":"2026-01-01T00:00:01.000000Z"}}`, patch(strategic)...)
}

func pods(c *cycle) {
	path := inChurn + "pods/" + c.name
	c.call(201, "POST", inChurn+"pods", sprintf(aPod, c.name))
	c.call(201, "POST", path+"/binding", sprintf(`{"metadata":{"name":%q},"target":{"kind":"Node","name":"kept"}}`, c.name))
	for _, phase := range []string{"Pending", "Running"} {
		c.call(done, "PATCH", path+"/status", sprintf(`{"status":{"phase":%q,"podIP":"10.1.2.3","conditions":[{"type":"Ready","status":"True"}]}}`, phase), kubelet("kept")...)
	}
	c.call(done, "DELETE", path, "")
	if c.err == nil && !strings.Contains(c.call(done, "GET", path, ""), "deletionTimestamp") {
		c.fail("%s was not deleted gracefully", path)
	}
	c.call(done, "PATCH", path+"/status", `{"status":{"phase":"Succeeded"}}`, kubelet("kept")...)
	c.call(done, "DELETE", path, atOnce, as("system:node:kept", "system:nodes")...)
	c.gone(path)
}

func applies(c *cycle) {
	path := inChurn + "configmaps/" + c.name
	for i := range 5 {
		c.call(done, "PATCH", sprintf("%s?fieldManager=manager-%d&force=true", path, i), sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"k-%d":"v","common":"%d"}}`, c.name, i, i), patch(apply)...)
	}
	c.call(done, "PATCH", path+"?fieldManager=once-"+c.name+"&force=true", sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"once":"v"}}`, c.name), patch(apply)...)
	c.call(409, "PATCH", path+"?fieldManager=late-"+c.name, sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"common":"mine"}}`, c.name), patch(apply)...)
	c.call(done, "PATCH", path+"?fieldManager=patch-"+c.name, `[{"op":"add","path":"/data/c","value":"x"}]`, patch(jsonPatch)...)
	c.call(done, "PATCH", path+"?dryRun=All", `{"data":{"d":"1"}}`, patch(merge)...)
	c.call(done, "DELETE", path, "")
	deployment := "/apis/apps/v1/namespaces/churn/deployments/" + c.name
	for i := range 3 {
		c.call(done, "PATCH", sprintf("%s?fieldManager=manager-%d&force=true", deployment, i), sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":%[1]q},"spec":{"selector":{"matchLabels":{"app":%[1]q}},"template":{"metadata":{"labels":{"app":%[1]q}},"spec":{"containers":[{"name":"c","image":"i","env":[{"name":"E%[2]d","value":"v"}]}]}}}}`, c.name, i), patch(apply)...)
	}
	c.call(done, "DELETE", deployment, "")
	c.gone(deployment)
}

func endpoints(c *cycle) {
	for i := range 3 {
		both := [][2]string{
			{inChurn + "endpoints", sprintf(`{"metadata":{"name":%q},"subsets":[{"addresses":[{"ip":"10.2.0.%d"},{"ip":"10.2.1.%d"}],"ports":[{"port":80}]}]}`, c.name, i+1, i+1)},
			{slicesV1, sprintf(`{"metadata":{"name":%q,"labels":{"kubernetes.io/service-name":%q}},"addressType":"IPv4","endpoints":[{"addresses":["10.2.0.%d"],"conditions":{"ready":true}}],"ports":[{"port":80}]}`, c.name, c.name, i+1)},
		}
		for _, x := range both {
			if i == 0 {
				c.call(201, "POST", x[0], x[1])
			} else {
				c.call(done, "PUT", x[0]+"/"+c.name, x[1])
			}
		}
	}
	c.call(done, "DELETE", inChurn+"endpoints/"+c.name, "")
	c.call(done, "DELETE", slicesV1+"/"+c.name, "")
}

func services(c *cycle) {
	for _, kind := range []string{"ClusterIP", "NodePort", "LoadBalancer"} {
		name := strings.ToLower(kind) + "-" + c.name
		c.call(201, "POST", inChurn+"services", sprintf(`{"metadata":{"name":%q},"spec":{"type":%q,"ports":[{"port":80}]}}`, name, kind))
		c.call(done, "PATCH", inChurn+"services/"+name, `{"spec":{"ports":[{"name":"more","port":81},{"name":"one","port":80}]}}`, patch(merge)...)
		c.call(done, "DELETE", inChurn+"services/"+name, "")
	}
}

func namespaces(c *cycle) {
	c.call(201, "POST", coreV1+"namespaces", sprintf(`{"metadata":{"name":%q}}`, c.name))
	in := coreV1 + "namespaces/" + c.name + "/"
	c.until("the namespace has its account", is(200), "GET", in+"serviceaccounts/default", "")
	c.call(201, "POST", in+"configmaps", `{"metadata":{"name":"c"},"data":{"a":"b"}}`)
	c.call(201, "POST", in+"secrets", `{"metadata":{"name":"s"},"stringData":{"a":"b"}}`)
	c.call(201, "POST", in+"serviceaccounts", `{"metadata":{"name":"sa"}}`)
	c.call(201, "POST", in+"resourcequotas", `{"metadata":{"name":"q"},"spec":{"hard":{"configmaps":"80","pods":"5"}}}`)
	c.call(201, "POST", rbacV1+"namespaces/"+c.name+"/roles", `{"metadata":{"name":"r"},"rules":[{"apiGroups":[""],"resources":["configmaps"],"verbs":["get"]}]}`)
	c.call(201, "POST", rbacV1+"namespaces/"+c.name+"/rolebindings", sprintf(`{"metadata":{"name":"r"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"r"},"subjects":[{"kind":"ServiceAccount","name":"sa","namespace":%q}]}`, c.name))
	c.call(201, "POST", in+"pods", sprintf(aPod, "p"))
	deployments := "/apis/apps/v1/namespaces/" + c.name + "/deployments"
	made := c.call(201, "POST", deployments, `{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"app":"d"}},"template":{"metadata":{"labels":{"app":"d"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`)
	c.call(201, "POST", in+"configmaps", sprintf(`{"metadata":{"name":"owned","ownerReferences":[{"apiVersion":"apps/v1","kind":"Deployment","name":"d","uid":%q}]}}`, c.field(made, "metadata", "uid")))
	c.call(done, "DELETE", deployments+"/d?propagationPolicy=Foreground", "")
	c.gone(in + "configmaps/owned")
	c.call(done, "DELETE", coreV1+"namespaces/"+c.name, "")
	c.gone(coreV1 + "namespaces/" + c.name)
}

// field is a text in a JSON document.
func (c *cycle) field(document string, path ...string) string {
	if c.err != nil {
		return ""
	}
	var at any
	if err := json.Unmarshal([]byte(document), &at); err != nil {
		c.fail("%.200s: %w", document, err)
	}
	for _, key := range path {
		in, _ := at.(map[string]any)
		at = in[key]
	}
	text, ok := at.(string)
	if !ok {
		c.fail("no %s in %.300s", strings.Join(path, "."), document)
	}
	return text
}

// rulesOfDefinition is how many CEL rules the definitions have: each takes some 64 KiB when it is compiled.
const rulesOfDefinition = 5

func definitions(c *cycle) {
	group := c.name + ".example.com"
	version := func(name string, storage bool, more string) string {
		var rules []string
		for i := range rulesOfDefinition {
			rules = append(rules, sprintf(`{"rule":"self.size < %d"}`, 1000+i))
		}
		return sprintf(`{"name":%q,"served":true,"storage":%v,"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"size":{"type":"integer","default":3}%s},"x-kubernetes-validations":[%s]},"status":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}}`,
			name, storage, more, strings.Join(rules, ","))
	}
	definition := func(versions string) string {
		return sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"widgets.%[1]s"},"spec":{"group":%[1]q,"names":{"plural":"widgets","singular":"widget","kind":"Widget","listKind":"WidgetList"},"scope":"Namespaced","versions":[%[2]s]}}`, group, versions)
	}
	path := crdsV1 + "/widgets." + group
	c.call(201, "POST", crdsV1, definition(version("v1", true, "")))
	widgets := func(version string) string { return "/apis/" + group + "/" + version + "/namespaces/churn/widgets" }
	for range c.run.cluster.Nodes() {
		c.until("widgets are served", is(200), "GET", widgets("v1"), "")
	}
	for i := range 5 {
		c.call(201, "POST", widgets("v1"), sprintf(`{"apiVersion":"%s/v1","kind":"Widget","metadata":{"name":"w%d"},"spec":{"size":%d}}`, group, i, i))
	}
	c.call(422, "POST", widgets("v1"), sprintf(`{"apiVersion":"%s/v1","kind":"Widget","metadata":{"name":"wrong"},"spec":{"size":5000}}`, group))
	// The deletion of the definition ends the first watch, the change of it perhaps both.
	ended := make(chan struct{}, 2)
	for _, query := range []string{"?watch=1", "?watch=1&resourceVersion=0"} {
		n := c.node()
		go func() {
			_, _, _ = send(c.ctx, c.run.clients[n.Name], "GET", n.API+widgets("v1")+query+"&timeoutSeconds=20", "")
			ended <- struct{}{}
		}()
	}
	c.call(done, "PATCH", widgets("v1")+"/w0/status", `{"status":{"x":1}}`, patch(merge)...)
	c.call(done, "PATCH", widgets("v1")+"/w1?fieldManager=m&force=true", sprintf(`{"apiVersion":"%s/v1","kind":"Widget","metadata":{"name":"w1"},"spec":{"size":7}}`, group), patch(apply)...)
	c.call(done, "PATCH", path, sprintf(`{"spec":{"versions":[%s,%s]}}`, version("v1", true, `,"color":{"type":"string"}`), version("v2", false, "")), patch(merge)...)
	for range c.run.cluster.Nodes() {
		c.until("the second version is served", is(200), "GET", widgets("v2"), "")
	}
	c.call(done, "PATCH", widgets("v2")+"/w2", `{"spec":{"size":8}}`, patch(merge)...)
	c.call(done, "PATCH", path, `{"metadata":{"annotations":{"touched":"yes"}}}`, patch(merge)...)
	c.call(done, "PATCH", widgets("v1")+"/w3", `{"spec":{"size":9}}`, patch(merge)...)
	c.call(whatever, "GET", "/openapi/v3/apis/"+group+"/v1", "")
	c.call(done, "DELETE", widgets("v1")+"/w4", "")
	c.call(done, "DELETE", path, "")
	c.gone(path)
	for range 2 {
		<-ended
	}
}

const (
	onConfigMaps = `[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]`
	ofChurn      = `"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"churn"}}`
)

// probe is a ConfigMap that only the rules of this cycle select.
func (c *cycle) probe() string {
	return sprintf(`{"metadata":{"name":%q,"labels":{"of":%q}}}`, c.name, c.name)
}

func (c *cycle) selected() string {
	return sprintf(`%s,"objectSelector":{"matchLabels":{"of":%q}}`, ofChurn, c.name)
}

const dryRun = inChurn + "configmaps?dryRun=All"

func validatingPolicies(c *cycle) {
	c.call(201, "POST", rulesV1+"validatingadmissionpolicies", sprintf(`{"metadata":{"name":%q},"spec":{"failurePolicy":"Fail","matchConstraints":{"resourceRules":%s,%s},"validations":[{"expression":"object.metadata.name != '%s'"}]}}`, c.name, onConfigMaps, c.selected(), c.name))
	c.call(201, "POST", rulesV1+"validatingadmissionpolicybindings", sprintf(`{"metadata":{"name":%q},"spec":{"policyName":%q,"validationActions":["Deny"]}}`, c.name, c.name))
	for range c.run.cluster.Nodes() {
		c.until("the policy denies", is(422), "POST", dryRun, c.probe())
	}
	c.call(done, "PATCH", rulesV1+"validatingadmissionpolicies/"+c.name, sprintf(`{"spec":{"validations":[{"expression":"object.metadata.name != '%s' || false"}]}}`, c.name), patch(merge)...)
	c.until("the policy denies", is(422), "POST", dryRun, c.probe())
	c.call(done, "DELETE", rulesV1+"validatingadmissionpolicybindings/"+c.name, "")
	c.call(done, "DELETE", rulesV1+"validatingadmissionpolicies/"+c.name, "")
	c.until("the policy is gone", is(201), "POST", dryRun, c.probe())
}

func mutatingPolicies(c *cycle) {
	c.call(201, "POST", rulesV1+"mutatingadmissionpolicies", sprintf(`{"metadata":{"name":%q},"spec":{"failurePolicy":"Fail","reinvocationPolicy":"Never","matchConstraints":{"resourceRules":%s,%s},"mutations":[{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{metadata: Object.metadata{annotations: {'m':'is-%s'}}}"}}]}}`, c.name, onConfigMaps, c.selected(), c.name))
	c.call(201, "POST", rulesV1+"mutatingadmissionpolicybindings", sprintf(`{"metadata":{"name":%q},"spec":{"policyName":%q}}`, c.name, c.name))
	for range c.run.cluster.Nodes() {
		c.until("the policy mutates", has("is-"+c.name), "POST", dryRun, c.probe())
	}
	c.call(done, "DELETE", rulesV1+"mutatingadmissionpolicybindings/"+c.name, "")
	c.call(done, "DELETE", rulesV1+"mutatingadmissionpolicies/"+c.name, "")
	c.call(done, "POST", dryRun, c.probe())
}

// webhooks: one is called, nobody is there to be the other.
func webhooks(c *cycle) {
	for _, kind := range []string{"validating", "mutating"} {
		path := rulesV1 + kind + "webhookconfigurations"
		hook := func(name, url, failure string) string {
			return sprintf(`{"name":"%s.example.com","rules":%s,%s,"failurePolicy":%q,"sideEffects":"None","admissionReviewVersions":["v1"],"timeoutSeconds":5,"clientConfig":{"url":%q%s},"matchConditions":[{"name":"c","expression":"object.metadata.name != 'x'"}]}`,
				name, onConfigMaps, c.selected(), failure, url, c.run.peer.caBundle(url))
		}
		c.call(201, "POST", path, sprintf(`{"metadata":{"name":%q},"webhooks":[%s,%s]}`, c.name, hook("there."+c.name, c.run.peer.url+"/"+kind+"/"+c.name, "Fail"), hook("nobody."+c.name, "https://127.0.0.1:9/x", "Ignore")))
		for range c.run.cluster.Nodes() {
			c.until("the webhook is called", func(int, string) bool { return c.run.peer.called(kind + "/" + c.name) }, "POST", dryRun, c.probe())
		}
		c.call(done, "DELETE", path+"/"+c.name, "")
		c.call(done, "POST", dryRun, c.probe())
	}
}

func flows(c *cycle) {
	c.call(201, "POST", flowV1+"prioritylevelconfigurations", sprintf(`{"metadata":{"name":%q},"spec":{"type":"Limited","limited":{"nominalConcurrencyShares":5,"limitResponse":{"type":"Queue","queuing":{"queues":8,"handSize":2,"queueLengthLimit":50}}}}}`, c.name))
	c.call(201, "POST", flowV1+"flowschemas", sprintf(`{"metadata":{"name":%q},"spec":{"priorityLevelConfiguration":{"name":%q},"matchingPrecedence":500,"distinguisherMethod":{"type":"ByUser"},"rules":[{"subjects":[{"kind":"User","user":{"name":%q}}],"nonResourceRules":[{"verbs":["*"],"nonResourceURLs":["*"]}]}]}}`, c.name, c.name, c.name))
	for range c.run.cluster.Nodes() {
		c.call(done, "GET", "/version", "", as(c.name, "system:authenticated")...)
		c.call(403, "GET", coreV1+"nodes", "", as(c.name, "system:authenticated")...)
	}
	c.call(done, "PATCH", flowV1+"flowschemas/"+c.name, `{"spec":{"matchingPrecedence":501}}`, patch(merge)...)
	c.call(done, "GET", "/version", "", as(c.name, "system:authenticated")...)
	c.call(done, "DELETE", flowV1+"flowschemas/"+c.name, "")
	c.call(done, "DELETE", flowV1+"prioritylevelconfigurations/"+c.name, "")
	c.gone(flowV1 + "prioritylevelconfigurations/" + c.name)
}

// apiServices lead to a Service on loopback, where nodes ask nobody: a server that answers would have to be
// on another host.
func apiServices(c *cycle) {
	group := c.name + ".example.com"
	path := apisV1 + "/v1." + group
	c.call(201, "POST", apisV1, sprintf(`{"metadata":{"name":"v1.%[1]s"},"spec":{"group":%[1]q,"version":"v1","insecureSkipTLSVerify":true,"groupPriorityMinimum":100,"versionPriority":100,"service":{"name":"loopback","namespace":"churn","port":9}}}`, group))
	for range c.run.cluster.Nodes() {
		c.until(group+" is known", is(503), "GET", "/apis/"+group+"/v1/things", "")
	}
	c.until(group+" is checked", has(`"FailedDiscoveryCheck"`), "GET", path, "")
	c.call(done, "PATCH", path, `{"spec":{"versionPriority":101}}`, patch(merge)...)
	c.call(503, "GET", "/apis/"+group+"/v1/things", "")
	c.call(done, "DELETE", path, "")
	for range c.run.cluster.Nodes() {
		c.until(group+" is gone", is(404), "GET", "/apis/"+group+"/v1/things", "")
	}
}

func signingRequests(c *cycle) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		c.fail("key: %w", err)
		return
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: c.name}}, key)
	if err != nil {
		c.fail("request: %w", err)
		return
	}
	request := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
	c.call(201, "POST", csrsV1, sprintf(`{"metadata":{"name":%q},"spec":{"request":%q,"signerName":"kubernetes.io/kube-apiserver-client","expirationSeconds":600,"usages":["client auth"]}}`, c.name, request))
	c.call(done, "PATCH", csrsV1+"/"+c.name+"/approval", `{"status":{"conditions":[{"type":"Approved","status":"True","reason":"Churn","message":"m"}]}}`, patch(merge)...)
	var certificate string
	c.until("the request is signed", func(_ int, answer string) bool {
		var csr struct{ Status struct{ Certificate []byte } }
		_ = json.Unmarshal([]byte(answer), &csr)
		certificate = string(csr.Status.Certificate)
		return certificate != ""
	}, "GET", csrsV1+"/"+c.name, "")
	if block, _ := pem.Decode([]byte(certificate)); block != nil {
		n := c.node()
		client := c.run.client(true, &tls.Certificate{Certificate: [][]byte{block.Bytes}, PrivateKey: key})
		defer client.CloseIdleConnections()
		c.with(client, n, 200, "GET", "/version", "")
		c.with(client, n, 403, "GET", coreV1+"nodes", "")
	}
	c.call(done, "DELETE", csrsV1+"/"+c.name, "")
}

func tokens(c *cycle) {
	account := inChurn + "serviceaccounts/" + c.name
	c.call(201, "POST", inChurn+"serviceaccounts", sprintf(`{"metadata":{"name":%q}}`, c.name))
	bearer := "Bearer " + c.field(c.call(201, "POST", account+"/token", `{"spec":{"expirationSeconds":600}}`), "status", "token")
	client := c.run.client(true, nil)
	defer client.CloseIdleConnections()
	for range c.run.cluster.Nodes() {
		c.with(client, c.node(), 200, "GET", "/version", "", "Authorization", bearer)
		c.with(client, c.node(), 403, "GET", inChurn+"configmaps", "", "Authorization", bearer)
	}
	c.with(client, c.node(), 201, "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`, "Authorization", bearer)
	c.call(201, "POST", "/apis/authentication.k8s.io/v1/tokenreviews", sprintf(`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":%q}}`, strings.TrimPrefix(bearer, "Bearer ")))
	c.call(done, "DELETE", account, "")
	n := c.node()
	for code := 0; c.err == nil && code != 401; c.pause() {
		var err error
		if code, _, err = send(c.ctx, client, "GET", n.API+"/version", "", "Authorization", bearer); err != nil {
			c.fail("a token of a deleted account: %w", err)
		}
	}
}

func roles(c *cycle) {
	in := rbacV1 + "namespaces/churn/"
	c.call(201, "POST", in+"roles", sprintf(`{"metadata":{"name":%q},"rules":[{"apiGroups":[""],"resources":["secrets"],"verbs":["list"]}]}`, c.name))
	c.call(201, "POST", in+"rolebindings", sprintf(`{"metadata":{"name":%q},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":%q},"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":%q}]}`, c.name, c.name, c.name))
	c.call(201, "POST", rbacV1+"clusterroles", sprintf(`{"metadata":{"name":%q,"labels":{"rbac.authorization.k8s.io/aggregate-to-view":"true"}},"rules":[{"apiGroups":["x.example.com"],"resources":[%q],"verbs":["get"]}]}`, c.name, c.name))
	for range c.run.cluster.Nodes() {
		c.until("the user may", is(200), "GET", inChurn+"secrets?limit=1", "", as(c.name, c.name)...)
	}
	c.until("the role is aggregated", has(c.name), "GET", rbacV1+"clusterroles/view", "")
	c.call(done, "DELETE", rbacV1+"clusterroles/"+c.name, "")
	c.call(done, "DELETE", in+"rolebindings/"+c.name, "")
	c.call(done, "DELETE", in+"roles/"+c.name, "")
	c.until("the user may not any more", is(403), "GET", inChurn+"secrets?limit=1", "", as(c.name, c.name)...)
}

func quotas(c *cycle) {
	const in = coreV1 + "namespaces/churn-quota/"
	c.call(201, "POST", in+"resourcequotas", sprintf(`{"metadata":{"name":%q},"spec":{"hard":{"secrets":"2"}}}`, c.name))
	c.until("the quota counts", has(`"used":{`), "GET", in+"resourcequotas/"+c.name, "")
	for i := range 2 {
		c.call(201, "POST", in+"secrets", sprintf(`{"metadata":{"name":"%s-%d"}}`, c.name, i))
	}
	c.call(403, "POST", in+"secrets", sprintf(`{"metadata":{"name":"%s-more"}}`, c.name))
	for i := range 2 {
		c.call(done, "DELETE", sprintf("%ssecrets/%s-%d", in, c.name, i), "")
	}
	c.call(done, "DELETE", in+"resourcequotas/"+c.name, "")
}

// within is how long one cycle may take on a busy machine.
const within = 2 * time.Minute
