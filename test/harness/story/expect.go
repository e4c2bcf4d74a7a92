package story

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

// expectation is a line about an answer.
type expectation struct {
	line int
	mark byte
	name string // $: the variable that is set
	want string // with variables
	// compare is the Language's own mark.
	compare func(want []string, answer string) error
}

// success is the status wanted of a request that prepares what is recorded.
const success = "2xx"

var code = regexp.MustCompile(`^[1-5]\d\d$`)

// status reads the line that ends a request.
func (p *parser) status(want string) (expectation, error) {
	if !code.MatchString(want) {
		return expectation{}, fmt.Errorf("not the status of an answer: %s", want)
	}
	return expectation{line: p.at, want: want}, nil
}

// expectations reads the lines behind the status that say what the answer is like.
func (p *parser) expectations() (all []expectation, err error) {
	for p.at < len(p.lines) {
		line := p.lines[p.at]
		if line == "" || p.headed() && strings.HasPrefix(line, "==") {
			break
		}
		compare := p.language.Marks[line[0]]
		if !strings.ContainsRune("<~!=$", rune(line[0])) && compare == nil {
			break
		}
		p.at++
		e := expectation{line: p.at, mark: line[0], compare: compare}
		mark, want, ok := strings.Cut(line, " ")
		e.name, e.want = mark[1:], want
		if !ok || want == "" || (e.name != "") != (e.mark == '$') {
			return nil, fmt.Errorf("not understood: %q", line)
		}
		if e.mark == '$' {
			if err := checkCapture(e.name, want); err != nil {
				return nil, err
			}
		}
		all = append(all, e)
	}
	return all, nil
}

var (
	variableName = regexp.MustCompile(`^\w+$`)
	variable     = regexp.MustCompile(`\$\{\w+\}`)
)

// checkCapture says what is wrong with a line that sets a variable. A pattern that has
// variables itself is known only when they are.
func checkCapture(name, pattern string) error {
	if !variableName.MatchString(name) {
		return fmt.Errorf("not the name of a variable: %s", name)
	}
	if variable.MatchString(pattern) {
		return nil
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return err
	}
	if re.NumSubexp() == 0 {
		return fmt.Errorf("%s has no group for ${%s}", pattern, name)
	}
	return nil
}

// check holds an answer against the lines in their order, then against those of the
// Language's marks. r.line is where it stopped.
func (q *request) check(r *run, a *Answer) error {
	r.line = q.status.line
	switch got, want := strconv.Itoa(a.Code), q.status.want; {
	case want == "", want == success && a.Code < 300:
	case want != got:
		return fmt.Errorf("status %s, want %s\n%s", got, want, clip(a.Body))
	}
	var marks []expectation
	wants := map[byte][]string{}
	for _, e := range q.expect {
		r.line = e.line
		want, err := r.fill(e.want)
		if err != nil {
			return err
		}
		if e.compare == nil {
			if err := e.check(r, want, a); err != nil {
				return err
			}
			continue
		}
		if wants[e.mark] == nil {
			marks = append(marks, e)
		}
		wants[e.mark] = append(wants[e.mark], want)
	}
	for _, e := range marks {
		r.line = e.line
		if err := e.compare(wants[e.mark], a.Body); err != nil {
			return err
		}
	}
	return nil
}

func (e expectation) check(r *run, want string, a *Answer) error {
	switch e.mark {
	case '<':
		if err := checkHeader(want, a.Header); err != nil {
			return fmt.Errorf("%w\n%s", err, clip(a.Body))
		}
	case '~':
		return lacks(a.Body, []string{want})
	case '!':
		if strings.Contains(a.Body, want) {
			return fmt.Errorf("%s in\n%s", want, clip(a.Body))
		}
	case '=':
		if strings.TrimSuffix(a.Body, "\n") != want {
			return fmt.Errorf("got\n%s\nwant\n%s", clip(a.Body), want)
		}
	case '$':
		return r.capture(e.name, want, a.Body)
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

// lacks says which of the fragments is not in a text.
func lacks(got string, fragments []string) error {
	for _, f := range fragments {
		if !strings.Contains(got, f) {
			return fmt.Errorf("no %s in\n%s", f, clip(got))
		}
	}
	return nil
}

func clip(s string) string {
	if len(s) > 4000 {
		return s[:4000] + "..."
	}
	return s
}
