package commands

import "github.com/spf13/pflag"

// classified are the flags whose values nobody is shown.
var classified = map[string]bool{"join-token": true}

// values are the settings as text, without those that are secret.
func (s *settings) values() map[string]string {
	out := map[string]string{}
	if s.set == nil {
		return out
	}
	s.set.VisitAll(func(f *pflag.Flag) {
		out[f.Name] = f.Value.String()
		if classified[f.Name] && out[f.Name] != "" {
			out[f.Name] = "CLASSIFIED"
		}
	})
	return out
}
