package membership

import (
	"errors"
	"fmt"
	"strings"
)

// attempts are what came of asking several servers for the same.
type attempts struct {
	errs     []error
	texts    []string            // in the order in which they came, each once
	servers  map[string][]string // by text
	answered bool
}

func (a *attempts) add(server string, err error) {
	text := err.Error()
	if a.servers == nil {
		a.servers = map[string][]string{}
	}
	if a.servers[text] == nil {
		a.texts = append(a.texts, text)
	}
	a.servers[text] = append(a.servers[text], strings.TrimPrefix(server, "https://"))
	a.errs = append(a.errs, err)
	var remote *remoteError
	a.answered = a.answered || errors.As(err, &remote)
}

// err is one line: which servers failed, and how, each reason once.
func (a *attempts) err() error {
	if len(a.errs) == 0 {
		return nil
	}
	var reasons []string
	for _, text := range a.texts {
		reasons = append(reasons, strings.Join(a.servers[text], ", ")+": "+text)
	}
	text := strings.Join(reasons, "; ")
	switch {
	case len(a.errs) > 1 && !a.answered:
		text = fmt.Sprintf("none of the %d nodes answers: %s", len(a.errs), text)
	case len(a.texts) == 1 && a.answered:
		text = a.texts[0] // no matter which server says it
	}
	return &attemptsError{text, a.errs}
}

// attemptsError has the errors of all servers in it.
type attemptsError struct {
	text string
	errs []error
}

func (e *attemptsError) Error() string   { return e.text }
func (e *attemptsError) Unwrap() []error { return e.errs }
