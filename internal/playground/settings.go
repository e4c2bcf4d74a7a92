package playground

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/quorate/quorate/membership/pki"
	"sigs.k8s.io/yaml"
)

// settingsFile is in the command line of a node's process, and of no other.
func (n *Node) settingsFile() string { return n.DataDir + ".yaml" }

// writeSettings writes a node's configuration file: what an operator would write
// for a node of a real cluster. voters are the peer addresses of the first voters, as others dial them.
func (c *cluster) writeSettings(n *Node, voters []string, nonvoter bool, set map[string]string) error {
	settings := map[string]any{
		"name":             n.Name,
		"data-dir":         n.DataDir,
		"api-address":      strings.TrimPrefix(n.API, "https://"),
		"peer-address":     n.Peer,
		"bootstrap-expect": len(voters),
		"token-file":       filepath.Join(c.dir, "token"),
		"log-format":       "text",
	}
	if n.advertised != "" {
		settings["peer-advertise-address"] = n.advertised
	}
	c.setComponents(n, settings)
	if len(voters) > 1 || nonvoter {
		settings["join"] = voters
	}
	if nonvoter {
		settings["nonvoter"] = true
		delete(settings, "bootstrap-expect")
	}
	return n.saveSettings(settings, set)
}

// setComponents has a node write the credentials of the components beside it, if there are any.
func (c *cluster) setComponents(n *Node, settings map[string]any) {
	const setting = "component-kubeconfigs"
	if len(c.Components.beside([]*Node{n})) == 0 {
		delete(settings, setting)
		return
	}
	settings[setting] = n.componentsDir()
}

// changeSettings puts --set of a later start into the files of all nodes, and what the control plane
// beside them needs.
func (c *cluster) changeSettings(set map[string]string) error {
	for _, n := range c.Nodes {
		b, err := os.ReadFile(n.settingsFile())
		if err != nil {
			return err
		}
		settings := map[string]any{}
		if err := yaml.Unmarshal(b, &settings); err != nil {
			return fmt.Errorf("%s: %w", n.settingsFile(), err)
		}
		c.setComponents(n, settings)
		if err := n.saveSettings(settings, set); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) saveSettings(settings map[string]any, set map[string]string) error {
	for name, value := range set {
		settings[name] = value
	}
	b, err := yaml.Marshal(settings)
	if err != nil {
		return err
	}
	return pki.WriteFile(n.settingsFile(), b, 0o600)
}

// firstStartOnly are the settings that a cluster heeds when it forms, and never again.
var firstStartOnly = map[string]bool{"bootstrap-expect": true, "join": true, "nonvoter": true}

// isNonvoter reports whether the playground has started a node without a vote.
func (n *Node) isNonvoter() bool {
	settings := map[string]any{}
	b, err := os.ReadFile(n.settingsFile())
	if err != nil || yaml.Unmarshal(b, &settings) != nil {
		return false
	}
	return fmt.Sprint(settings["nonvoter"]) == "true"
}

// Decides reports whether a playground decides a setting of its nodes by itself.
func Decides(setting string) bool {
	return slices.Contains([]string{"name", "data-dir", "api-address", "peer-address", "token-file", "component-kubeconfigs"}, setting)
}

// split are settings by their names.
func split(set []string) map[string]string {
	out := map[string]string{}
	for _, s := range set {
		name, value, _ := strings.Cut(s, "=")
		out[name] = value
	}
	return out
}
