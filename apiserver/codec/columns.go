package codec

import (
	"time"

	"github.com/quorate/quorate/apiserver/kinds"
	"k8s.io/apimachinery/pkg/util/duration"
)

// defaultColumns are those of resources that name none.
var defaultColumns = []kinds.Column{
	{Name: "Name", Type: "string", Format: "name", Description: "Name must be unique within a namespace."},
	{Name: "Age", Type: "date", Description: "CreationTimestamp is the server time when this object was created."},
}

// defaultRows prints defaultColumns.
type defaultRows struct{}

func (defaultRows) Row(obj map[string]any, now time.Time) ([]any, error) {
	meta, _ := obj["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	age := "<unknown>"
	if s, ok := meta["creationTimestamp"].(string); ok {
		if created, err := time.Parse(time.RFC3339, s); err == nil {
			age = duration.HumanDuration(now.Sub(created))
		}
	}
	return []any{name, age}, nil
}

// blankRows prints as many empty cells.
type blankRows int

func (n blankRows) Row(map[string]any, time.Time) ([]any, error) { return make([]any, n), nil }
