package scale

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/bench/measure"
)

// conversionTakes is how long the webhook takes for a request, however many objects that has.
const conversionTakes = 5 * time.Millisecond

// maxReview bounds a request to the webhook.
const maxReview = 64 << 20

const (
	routesGroup = "scale.quorate.example"
	storedRoute = "v1"
	otherRoute  = "v2"
)

func routesPath(version string) string {
	return "/apis/" + routesGroup + "/" + version + "/namespaces/" + namespace + "/routes"
}

// converter is a conversion webhook: what is host and port in v1 is hostPort in v2.
type converter struct {
	server *httptest.Server
	clock  *measure.Stopwatch
	// Of all that have been answered.
	requests, objects, nanos atomic.Int64
}

func newConverter() *converter {
	c := &converter{clock: measure.NewStopwatch()}
	c.server = httptest.NewUnstartedServer(c)
	c.server.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	c.server.StartTLS()
	return c
}

func (c *converter) close() { c.server.Close() }

// conversion is that of the definition, as JSON.
func (c *converter) conversion() string {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.server.Certificate().Raw})
	return fmt.Sprintf(`{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"url":%q,"caBundle":%q}}}`, c.server.URL, base64.StdEncoding.EncodeToString(ca))
}

// ServeHTTP answers a ConversionReview conversionTakes after it came, or later if the work takes
// longer.
func (c *converter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := c.clock.Now()
	var review struct {
		Request struct {
			UID               string
			DesiredAPIVersion string
			Objects           []map[string]json.RawMessage
		}
	}
	raw, err := io.ReadAll(io.LimitReader(r.Body, maxReview))
	if err == nil {
		err = json.Unmarshal(raw, &review)
	}
	for i := 0; i < len(review.Request.Objects) && err == nil; i++ {
		err = convertRoute(review.Request.Objects[i], review.Request.DesiredAPIVersion)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer, err := json.Marshal(map[string]any{
		"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
		"response": map[string]any{"uid": review.Request.UID, "result": map[string]any{"status": "Success"}, "convertedObjects": review.Request.Objects},
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if !c.clock.Await(r.Context(), began+conversionTakes) {
		return
	}
	c.requests.Add(1)
	c.objects.Add(int64(len(review.Request.Objects)))
	c.nanos.Add(int64(c.clock.Now() - began))
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer)
}

// convertRoute brings an object, in place, into a version.
func convertRoute(object map[string]json.RawMessage, to string) error {
	spec := map[string]json.RawMessage{}
	if err := json.Unmarshal(object["spec"], &spec); err != nil {
		return err
	}
	var err error
	if to == routesGroup+"/"+otherRoute {
		var host string
		if err = json.Unmarshal(spec["host"], &host); err == nil {
			spec["hostPort"], err = json.Marshal(host + ":" + string(spec["port"]))
		}
		delete(spec, "host")
		delete(spec, "port")
	} else {
		var both string
		if err = json.Unmarshal(spec["hostPort"], &both); err == nil {
			host, port, _ := strings.Cut(both, ":")
			spec["port"] = json.RawMessage(port)
			spec["host"], err = json.Marshal(host)
		}
		delete(spec, "hostPort")
	}
	if err != nil {
		return err
	}
	if object["spec"], err = json.Marshal(spec); err != nil {
		return err
	}
	object["apiVersion"], err = json.Marshal(to)
	return err
}

// asked are the webhook's counters at a time.
type asked struct{ requests, objects, nanos int64 }

func (c *converter) asked() asked {
	if c == nil {
		return asked{}
	}
	return asked{c.requests.Load(), c.objects.Load(), c.nanos.Load()}
}

// since are the figures of what was asked since before, for a number of operations.
func (c *converter) since(before asked, operations int64) []Figure {
	now := c.asked()
	n := now.requests - before.requests
	if n == 0 {
		return nil
	}
	return []Figure{
		{"requests to the webhook", float64(n), ""}, {"of each operation", float64(n) / float64(max(1, operations)), ""},
		{"objects in each", float64(now.objects-before.objects) / float64(n), ""}, {"each took", measure.Millis(time.Duration((now.nanos - before.nanos) / n)), "ms"},
	}
}

// routeFills are a definition and n of its objects, stored in v1.
func routeFills(n int, hook *converter) []fill {
	version := func(name string, stored bool, properties string) string {
		return fmt.Sprintf(`{"name":%q,"served":true,"storage":%v,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"value":{"type":"string"},%s}}}}}}`, name, stored, properties)
	}
	definition := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"routes.` + routesGroup + `"},"spec":{"group":"` + routesGroup + `","scope":"Namespaced",` +
		`"names":{"plural":"routes","kind":"Route"},"conversion":` + hook.conversion() + `,"versions":[` + version(storedRoute, true, `"host":{"type":"string"},"port":{"type":"integer"}`) + `,` + version(otherRoute, false, `"hostPort":{"type":"string"}`) + `]}}`
	object := `{"apiVersion":"` + routesGroup + `/` + storedRoute + `","kind":"Route","metadata":{"name":"` + templateName + `","labels":{"app":"scale"}},"spec":{"host":"` + templateName + `","port":8080,"value":"` + client.Text(3, 0, 400) + `"}}`
	return []fill{
		{collection: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body: definition},
		named("routes."+routesGroup, routesPath(storedRoute), object, n),
	}
}

// conversions reads and writes custom resources in the version that is not stored.
func (r *run) conversions(ctx context.Context, n int) error {
	route := func() string { return routesPath(otherRoute) + "/" + name(rand.IntN(n)) }
	return errors.Join(
		r.idle(ctx),
		r.closed(ctx, "list-stored", "consistent list of all in the version that is stored, one client", 1, func(int) client.Request {
			return client.Request{Method: http.MethodGet, Path: routesPath(storedRoute), Header: client.Plain}
		}),
		r.row(ctx, "first", "first list of all in the other version, on each node", func(ctx context.Context, t *timed) error {
			for i := range r.cluster.Nodes {
				began := r.clock.Now()
				n, err := read(ctx, r.conns[i], client.Request{Method: http.MethodGet, Path: routesPath(otherRoute), Header: client.Plain}, io.Discard)
				t.Note(r.clock.Now()-began, n, err)
			}
			return nil
		}),
		r.closed(ctx, "list", "the same again and again, one client", 1, func(int) client.Request {
			return client.Request{Method: http.MethodGet, Path: routesPath(otherRoute), Header: client.Plain}
		}),
		r.walks(ctx, "page", "page of 500 in the other version, one after the other, 4 clients", 4, routesPath(otherRoute)),
		r.closed(ctx, "get", "get of a random one in the other version, 32 clients", 32, func(int) client.Request {
			return client.Request{Method: http.MethodGet, Path: route(), Header: client.Plain}
		}),
		r.closed(ctx, "patch", "patch of a random one in the other version, 32 clients", 32, func(i int) client.Request {
			return client.Request{Method: http.MethodPatch, Path: route(), Header: client.MergeBody, Body: fmt.Appendf(nil, `{"spec":{"hostPort":"changed:%d"}}`, 1+i%60_000)}
		}),
		r.row(ctx, "watch", "watch with initial events in the other version, until it has them all", func(ctx context.Context, t *timed) error {
			began := r.clock.Now()
			bytes, err := r.informer(ctx, routesPath(otherRoute))
			t.Note(r.clock.Now()-began, bytes, err)
			return nil
		}),
	)
}
