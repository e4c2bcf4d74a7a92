package printers

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// typedCell is a value in a column of a custom resource: as text if the column is
// text, and otherwise only if it is of the column's type.
func typedCell(columnType string, v any) any {
	if v == nil {
		return nil
	}
	switch columnType {
	case "string":
		return cellText(v)
	case "integer":
		switch x := v.(type) {
		case int64:
			return x
		case float64:
			return int64(x)
		}
	case "number":
		switch x := v.(type) {
		case int64:
			return float64(x)
		case float64:
			return x
		}
	case "boolean":
		if b, ok := v.(bool); ok {
			return b
		}
	case "date":
		if s, ok := v.(string); ok {
			var t metav1.Time
			if t.UnmarshalQueryParameter(s) != nil {
				return "<invalid>"
			}
			return age(s)
		}
	}
	return nil
}

// cellText prints a value as JSONPath templates do.
func cellText(v any) any {
	switch x := v.(type) {
	case string:
		return x
	case map[string]any, []any:
		b, err := json.Marshal(x)
		if err != nil {
			return nil
		}
		return string(b)
	}
	return fmt.Sprint(v)
}
