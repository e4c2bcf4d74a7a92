package story

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

// expectations takes the lines that say what the answer is like.
func (r *run) expectations() (lines []string) {
	for r.at < len(r.lines) && r.lines[r.at] != "" && strings.ContainsRune("<~!=$", rune(r.lines[r.at][0])) {
		line, _ := r.line()
		lines = append(lines, line)
	}
	return lines
}

func (r *run) check(code string, lines []string, w *http.Response, answer string) error {
	if got := strconv.Itoa(w.StatusCode); got != code {
		return fmt.Errorf("status %s, want %s\n%s", got, code, clip(answer))
	}
	for _, line := range lines {
		mark, rest, _ := strings.Cut(line, " ")
		switch mark {
		case "<":
			if err := checkHeader(rest, w.Header); err != nil {
				return fmt.Errorf("%w\n%s", err, clip(answer))
			}
		case "~":
			if !strings.Contains(answer, rest) {
				return fmt.Errorf("no %s in\n%s", rest, clip(answer))
			}
		case "!":
			if strings.Contains(answer, rest) {
				return fmt.Errorf("%s in\n%s", rest, clip(answer))
			}
		case "=":
			if strings.TrimSuffix(answer, "\n") != rest {
				return fmt.Errorf("got\n%s\nwant\n%s", clip(answer), rest)
			}
		default:
			if err := r.capture(mark[1:], rest, answer); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkHeader(want string, header http.Header) error {
	if name, ok := strings.CutPrefix(want, "!"); ok {
		if got := header.Values(name); len(got) > 0 {
			return fmt.Errorf("header %s: %q, want none", name, got)
		}
		return nil
	}
	name, value, _ := strings.Cut(want, ": ")
	if got := strings.Join(header.Values(name), "\n"); got == "" || !strings.Contains(got, value) {
		return fmt.Errorf("header %s: %q, want %q", name, got, value)
	}
	return nil
}

// capture sets a variable to a pattern's first group.
func (r *run) capture(name, pattern, answer string) error {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return err
	}
	m := re.FindStringSubmatch(answer)
	if len(m) < 2 {
		return fmt.Errorf("%s does not match\n%s", pattern, clip(answer))
	}
	r.vars[name] = m[1]
	return nil
}

func clip(s string) string {
	if len(s) > 3000 {
		return s[:3000] + "..."
	}
	return s
}
