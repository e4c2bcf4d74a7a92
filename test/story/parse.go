package story

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// Story is one of the stories of a file.
type Story struct {
	Name, Title string
	// NotYet says why the story fails today; "" if it must not.
	NotYet string

	file  string
	first int // the number of the line before lines[0]
	lines []string
}

var heading = regexp.MustCompile(`^== ([a-z0-9-]+): (.+)$`)

// Parse reads the stories of a file.
func Parse(file string) ([]*Story, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read stories: %w", err)
	}
	var stories []*Story
	var s *Story
	for i, line := range strings.Split(string(raw), "\n") {
		switch {
		case strings.HasPrefix(line, "=="):
			m := heading.FindStringSubmatch(line)
			if m == nil {
				return nil, fmt.Errorf("%s:%d: not the heading of a story: %s", file, i+1, line)
			}
			s = &Story{Name: m[1], Title: m[2], file: file, first: i + 1}
			stories = append(stories, s)
		case s == nil:
			if line != "" && !strings.HasPrefix(line, "#") {
				return nil, fmt.Errorf("%s:%d: before the first story: %s", file, i+1, line)
			}
		default:
			if why, ok := strings.CutPrefix(line, "@not-yet "); ok {
				s.NotYet = why
				line = ""
			}
			s.lines = append(s.lines, line)
		}
	}
	return stories, nil
}
