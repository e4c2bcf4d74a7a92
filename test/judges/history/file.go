package history

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Save writes a history as JSON, compressed if the name ends in .gz.
func Save(name string, h *History) (err error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return fmt.Errorf("save history: %w", err)
	}
	f, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("save history: %w", err)
	}
	defer func() {
		if closed := f.Close(); err == nil && closed != nil {
			err = fmt.Errorf("save history %s: %w", name, closed)
		}
	}()
	var w io.Writer = f
	var z *gzip.Writer
	if strings.HasSuffix(name, ".gz") {
		z = gzip.NewWriter(f)
		w = z
	}
	if err := json.NewEncoder(w).Encode(h); err != nil {
		return fmt.Errorf("save history %s: %w", name, err)
	}
	if z != nil {
		if err := z.Close(); err != nil {
			return fmt.Errorf("save history %s: %w", name, err)
		}
	}
	return nil
}

// Load reads what Save wrote, or a history as text (see Parse): the first bytes
// tell which.
func Load(name string) (*History, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("load history: %w", err)
	}
	defer f.Close()
	h, err := read(bufio.NewReader(f))
	if err != nil {
		return nil, fmt.Errorf("load history %s: %w", name, err)
	}
	if h.Name == "" {
		h.Name = strings.TrimSuffix(filepath.Base(name), filepath.Ext(name))
	}
	return h, nil
}

func read(r *bufio.Reader) (*History, error) {
	head, err := r.Peek(2)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(head) == 2 && head[0] == 0x1f && head[1] == 0x8b {
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, err
		}
		defer z.Close()
		return read(bufio.NewReader(z))
	}
	if len(head) > 0 && head[0] == '{' {
		h := new(History)
		if err := json.NewDecoder(r).Decode(h); err != nil {
			return nil, err
		}
		return h, nil
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	h, _, err := Parse(string(text))
	return h, err
}
