package story

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// stream is an open watch. Its reader ends when it is closed or the server ends it.
type stream struct {
	cancel context.CancelFunc
	events chan string
}

// close cuts the connection and awaits the reader.
func (s *stream) close() {
	s.cancel()
	for range s.events {
	}
}

func (r *run) watch(args []string) error {
	name, path := args[0], args[1]
	if old := r.streams[name]; old != nil {
		old.close()
	}
	s, err := r.open(path)
	if err != nil {
		return err
	}
	r.streams[name] = s
	return nil
}

func (r *run) open(path string) (*stream, error) {
	path, err := repeated(path)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(r.ctx)
	req, err := newRequest(ctx, http.MethodGet, path, "")
	if err != nil {
		cancel()
		return nil, err
	}
	late := time.AfterFunc(r.patience, cancel)
	w, err := r.send(req)
	late.Stop()
	if err != nil {
		cancel()
		return nil, fmt.Errorf("watch %s: %w", path, err)
	}
	if w.StatusCode != http.StatusOK {
		defer cancel()
		defer w.Body.Close()
		answer, _ := io.ReadAll(w.Body)
		return nil, fmt.Errorf("watch %s: %s: %s", path, w.Status, clip(string(answer)))
	}
	s := &stream{cancel: cancel, events: make(chan string)}
	go func() {
		defer close(s.events)
		defer w.Body.Close()
		lines := bufio.NewReader(w.Body)
		for {
			line, err := lines.ReadString('\n')
			if line != "" {
				select {
				case s.events <- line:
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	return s, nil
}

// next returns the next event of a watch, or "" at the end of the stream.
func (r *run) next(name string) (string, error) {
	s := r.streams[name]
	if s == nil {
		return "", fmt.Errorf("there is no watch %s", name)
	}
	timeout := time.NewTimer(r.patience)
	defer timeout.Stop()
	select {
	case line := <-s.events:
		return line, nil
	case <-timeout.C:
		return "", fmt.Errorf("no event came within %s", r.patience)
	case <-r.ctx.Done():
		return "", r.ctx.Err()
	}
}

func (r *run) event(args []string) error {
	got, err := r.next(args[0])
	if err != nil {
		return err
	}
	if want := `{"type":"` + args[1] + `"`; !strings.HasPrefix(got, want) {
		return fmt.Errorf("want %s, got %q", want, clip(got))
	}
	return lacks(got, args[2:])
}

func (r *run) skip(args []string) error {
	for {
		got, err := r.next(args[0])
		if err != nil {
			return err
		}
		if got == "" {
			return errors.New("the stream ended")
		}
		if lacks(got, args[1:]) == nil {
			return nil
		}
	}
}

func (r *run) end(args []string) error {
	got, err := r.next(args[0])
	if err == nil && got != "" {
		err = fmt.Errorf("want the end, got %s", clip(got))
	}
	return err
}

func (r *run) ended(args []string) error {
	for {
		if got, err := r.next(args[0]); err != nil || got == "" {
			return err
		}
	}
}

func (r *run) unwatch(args []string) error {
	s := r.streams[args[0]]
	if s == nil {
		return fmt.Errorf("there is no watch %s", args[0])
	}
	s.close()
	return nil
}
