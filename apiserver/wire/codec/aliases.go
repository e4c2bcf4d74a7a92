package codec

import (
	"errors"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// Bounds of what the aliases of a YAML document may expand to.
const (
	maxYAML      = 4 * MaxBody // bytes
	maxYAMLNodes = MaxCost / 640
)

var (
	errYAMLTooLarge = errors.New("yaml: document expands to too many bytes")
	errYAMLAliases  = errors.New("yaml: document contains excessive aliasing") // in the library's words
)

// expanded is how large a node is with everything that its aliases stand for.
type expanded struct{ nodes, bytes int }

// checkAliases refuses documents whose aliases expand to too much. The library that decodes
// bounds the number of nodes at 400,000, which are 200 MB, and not their bytes: an alias of a long
// string costs it nothing until the JSON is written. Here nothing is expanded: each node is
// counted once, and what an alias stands for is looked up.
func checkAliases(body []byte) error {
	var document yaml.Node
	if err := yaml.Unmarshal(body, &document); err != nil {
		return fmt.Errorf("error converting YAML to JSON: %w", err)
	}
	known := map[*yaml.Node]expanded{}
	switch e := expand(&document, known, map[*yaml.Node]bool{}); {
	case e.nodes > maxYAMLNodes:
		return fmt.Errorf("error converting YAML to JSON: %w", errYAMLAliases)
	case e.bytes > maxYAML:
		return errYAMLTooLarge
	}
	return nil
}

// expand counts a node. known are those that aliases stand for and that were counted, open
// those that it is in: an anchor that is within itself is for the decoder to refuse.
func expand(n *yaml.Node, known map[*yaml.Node]expanded, open map[*yaml.Node]bool) expanded {
	if n.Kind == yaml.AliasNode {
		if n = n.Alias; n == nil || open[n] {
			return expanded{nodes: 1}
		}
	}
	if e, ok := known[n]; ok {
		return e
	}
	e := expanded{nodes: 1, bytes: len(n.Value) + 8}
	if n.Anchor != "" {
		open[n] = true
		defer delete(open, n)
	}
	for _, child := range n.Content {
		of := expand(child, known, open)
		e.nodes = min(e.nodes+of.nodes, maxYAMLNodes+1)
		e.bytes = min(e.bytes+of.bytes, maxYAML+1)
	}
	if n.Anchor != "" {
		known[n] = e
	}
	return e
}
