package scale

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/quorate/quorate/bench/client"
)

const (
	sigNamespaces = 50
	sigNodes      = 5_000
	// podsPerService makes 10,000 Services of 150,000 Pods.
	podsPerService = 15
)

// sigNamespace has a name as long as the template's, which is what its copies are named by.
func sigNamespace(i int) string { return fmt.Sprintf("scale-%02d", i%sigNamespaces) }

const namespaceTemplate = "scale-tt"

func sigPath(i int, resource string) string {
	return "/api/v1/namespaces/" + sigNamespace(i) + "/" + resource
}

// serviceRange has the addresses of all Services; those of copies have three digits in the last
// two parts, as the template's.
const (
	serviceRange    = "10.100.0.0/16"
	serviceTemplate = "10.100.100.100"
)

// serviceAddress is that of a copy: there are 24,179.
func serviceAddress(i int) string {
	i++ // the first one is the template's
	return fmt.Sprintf("10.100.%03d.%03d", 100+i/155, 100+i%155)
}

// inNamespaces copies an object of the template's namespace into all of them.
func inNamespaces(table, body string, n int, spread func(i int) int, texts map[string]func(i int) string) fill {
	f := fill{table: table, key: namespaceTemplate + "/" + templateName, collection: "/api/v1/namespaces/" + namespaceTemplate + "/" + table, body: body, n: n, texts: []string{namespaceTemplate, templateName}}
	for text := range texts {
		f.texts = append(f.texts, text)
	}
	f.with = func(i int, text string) string {
		switch with := texts[text]; {
		case text == namespaceTemplate:
			return sigNamespace(spread(i))
		case with != nil:
			return with(i)
		}
		return name(i)
	}
	return f
}

func namespaceFill() fill {
	return fill{
		table: "namespaces", key: namespaceTemplate, collection: "/api/v1/namespaces", n: sigNamespaces, texts: []string{namespaceTemplate},
		body: `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"` + namespaceTemplate + `"}}`,
		with: func(i int, _ string) string { return sigNamespace(i) },
	}
}

// sigFills are namespaces, Pods in all of them that are bound to 5,000 nodes, and Services with
// the objects that say whose their addresses are.
func sigFills(n int, _ *converter) []fill {
	const node = "node-of-the-pod"
	same := func(i int) int { return i }
	pod := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"` + templateName + `","labels":{"app":"scale"}},"spec":{"serviceAccountName":"default","automountServiceAccountToken":false,"nodeName":"` + node + `","containers":[{"name":"c","image":"registry.example/app:1","resources":{"requests":{"cpu":"10m","memory":"32Mi"}}}]}}`
	service := `{"apiVersion":"v1","kind":"Service","metadata":{"name":"` + templateName + `","labels":{"app":"scale"}},"spec":{"clusterIP":"` + serviceTemplate + `","selector":{"app":"` + templateName + `"},"ports":[{"port":80,"targetPort":8080}]}}`
	services := (n + podsPerService - 1) / podsPerService
	addresses := map[string]func(i int) string{serviceTemplate: serviceAddress}
	// The address's object was made with the Service.
	address := inNamespaces("ipaddresses.networking.k8s.io", "", services, same, addresses)
	address.key, address.collection = serviceTemplate, "/apis/networking.k8s.io/v1/ipaddresses/"+serviceTemplate
	return []fill{
		namespaceFill(),
		inNamespaces("pods", pod, n, same, map[string]func(i int) string{node: func(i int) string { return name(i % sigNodes) }}),
		inNamespaces("services", service, services, same, addresses),
		address,
	}
}

func (r *run) sig(ctx context.Context, _ int) error {
	get := func(path, query string) client.Request {
		return client.Request{Method: http.MethodGet, Path: path, Query: query, Header: client.Plain}
	}
	return errors.Join(
		r.idle(ctx),
		r.closed(ctx, "pods-namespace", "list of the Pods of a namespace, 4 clients", 4, func(i int) client.Request { return get(sigPath(i, "pods"), "") }),
		r.closed(ctx, "pods-node", "list of the Pods of one node, by field selector, 4 clients", 4, func(i int) client.Request {
			return get("/api/v1/pods", "fieldSelector=spec.nodeName%3D"+name(i%sigNodes))
		}),
		r.closed(ctx, "pods", "list of all Pods", 1, func(int) client.Request { return get("/api/v1/pods", "") }),
		r.closed(ctx, "services-namespace", "list of the Services of a namespace, 4 clients", 4, func(i int) client.Request { return get(sigPath(i, "services"), "") }),
		r.closed(ctx, "services", "list of all Services", 1, func(int) client.Request { return get("/api/v1/services", "") }),
		r.closed(ctx, "service-create", "create of a Service, which gets an address, 8 clients", 8, func(i int) client.Request {
			return client.Request{Method: http.MethodPost, Path: sigPath(i, "services"), Header: client.JSONBody, Body: fmt.Appendf(nil,
				`{"apiVersion":"v1","kind":"Service","metadata":{"name":"made-%08d","labels":{"app":"scale"}},"spec":{"selector":{"app":"scale"},"ports":[{"port":80,"targetPort":8080}]}}`, i)}
		}),
	)
}
