package scale

import (
	"context"
	"fmt"
	"strings"

	"github.com/quorate/quorate/bench/client"
)

// Point is a size that others have published figures for.
type Point struct {
	Name string
	What string
	// Full is how many there are of what is counted at full size, Unit what that is.
	Full int
	Unit string
	// Sizes are the shares of it that are measured unless others are named; nil: usualSizes.
	Sizes []float64
	// Most is the largest share that can be measured; zero: maxSize.
	Most float64
	// Settings of all nodes, as flag=value.
	Settings []string
	// Published is what others have said of it.
	Published []Published
	// webhook says that there is a conversion webhook.
	webhook bool
	// fills are made for n of the unit, with the webhook if there is one.
	fills func(n int, hook *converter) []fill
	// rows measures.
	rows func(ctx context.Context, r *run, n int) error
}

// Published is a figure of others.
type Published struct {
	Who  string `json:"who"`
	Says string `json:"says"`
	Link string `json:"link"`
}

// usualSizes are a tenth, a third and all.
var usualSizes = []float64{0.1, 0.3, 1}

// fill is a number of objects that are copies of one.
type fill struct {
	table string
	// key is that of the template in the table, collection where it is created; without a body
	// it is there already, at collection.
	key, collection string
	body            string
	// n is how many copies there are to be.
	n int
	// texts are replaced in copies, beside the uid.
	texts []string
	with  func(i int, text string) string
	// fields have other values in copies (disk.Copies).
	fields map[string]func(i int) string
}

const namespace = "scale"

// templateName is the name of what is copied; copies have numbers of the same length.
const templateName = "object-template"

func name(i int) string { return fmt.Sprintf("object-%08d", i) }

// named copies an object whose only text is its name.
func named(table, collection, body string, n int) fill {
	key := templateName
	if strings.Contains(collection, "/namespaces/"+namespace) {
		key = namespace + "/" + templateName
	}
	return fill{table: table, key: key, collection: collection, body: body, n: n, texts: []string{templateName}, with: func(i int, _ string) string { return name(i) }}
}

func configMaps(n, bytes int) fill {
	return named("configmaps", configMapsPath, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"`+templateName+`","labels":{"app":"scale","group":"one"}},"data":{"value":"`+client.Text(3, 0, bytes)+`"}}`, n)
}

const configMapsPath = "/api/v1/namespaces/" + namespace + "/configmaps"

func find(name string) *Point {
	for i := range points {
		if points[i].Name == name {
			return &points[i]
		}
	}
	return nil
}

// Names of all points.
func Names() (out []string) {
	for _, p := range points {
		out = append(out, p.Name)
	}
	return out
}

// Describe is a line for each point.
func Describe() string {
	var b strings.Builder
	for _, p := range points {
		fmt.Fprintf(&b, "  %-12s %s\n", p.Name, p.What)
	}
	return b.String()
}
