package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/quorate/quorate/membership/pki"
	"sigs.k8s.io/yaml"
)

func (c *devCluster) settingsFile(n *devNode) string { return filepath.Join(c.dir, n.Name+".yaml") }

// writeSettings writes a node's configuration file: what an operator would write
// for a node of a real cluster. voters are the peer addresses of the first voters.
func (c *devCluster) writeSettings(n *devNode, voters []string, nonvoter bool, set map[string]string) error {
	settings := map[string]any{
		"name":             n.Name,
		"data-dir":         n.DataDir,
		"api-address":      strings.TrimPrefix(n.API, "https://"),
		"peer-address":     n.Peer,
		"bootstrap-expect": len(voters),
		"token-file":       filepath.Join(c.dir, "token"),
		"log-format":       "text",
	}
	if len(voters) > 1 || nonvoter {
		settings["join"] = voters
	}
	if nonvoter {
		settings["nonvoter"] = true
		delete(settings, "bootstrap-expect")
	}
	return c.saveSettings(n, settings, set)
}

// changeSettings puts --set of a later start into the files of all nodes.
func (c *devCluster) changeSettings(set map[string]string) error {
	if len(set) == 0 {
		return nil
	}
	for _, n := range c.Nodes {
		b, err := os.ReadFile(c.settingsFile(n))
		if err != nil {
			return err
		}
		settings := map[string]any{}
		if err := yaml.Unmarshal(b, &settings); err != nil {
			return fmt.Errorf("%s: %w", c.settingsFile(n), err)
		}
		if err := c.saveSettings(n, settings, set); err != nil {
			return err
		}
	}
	return nil
}

func (c *devCluster) saveSettings(n *devNode, settings map[string]any, set map[string]string) error {
	for name, value := range set {
		settings[name] = value
	}
	b, err := yaml.Marshal(settings)
	if err != nil {
		return err
	}
	return pki.WriteFile(c.settingsFile(n), b, 0o600)
}

// firstStartOnly are the settings that a cluster heeds when it forms, and never again.
var firstStartOnly = map[string]bool{"bootstrap-expect": true, "join": true, "nonvoter": true}

// isNonvoter reports whether the playground has started a node without a vote.
func (c *devCluster) isNonvoter(n *devNode) bool {
	settings := map[string]any{}
	b, err := os.ReadFile(c.settingsFile(n))
	if err != nil || yaml.Unmarshal(b, &settings) != nil {
		return false
	}
	return fmt.Sprint(settings["nonvoter"]) == "true"
}

// playgroundOwn are the settings that a playground decides for its nodes.
var playgroundOwn = []string{"name", "data-dir", "api-address", "peer-address", "token-file"}

// parseSettings reads --set. What no node would start with is refused here,
// before anything is made.
func parseSettings(set []string) (map[string]string, error) {
	out := map[string]string{}
	f := new(settings).flags()
	for _, s := range set {
		name, value, ok := strings.Cut(s, "=")
		switch {
		case !ok:
			return nil, fmt.Errorf("--set %s: must be flag=value", s)
		case f.Lookup(name) == nil:
			return nil, fmt.Errorf("--set %s: there is no setting %q, see 'quorate node --help'%s", s, name, didYouMean(f, name))
		case slices.Contains(playgroundOwn, name):
			return nil, fmt.Errorf("--set %s: a playground decides %s by itself", s, name)
		}
		if err := f.Set(name, value); err != nil {
			return nil, fmt.Errorf("--set %s: %s", s, invalidValue(f.Lookup(name), err))
		}
		out[name] = value
	}
	return out, nil
}
