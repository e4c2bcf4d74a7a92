package settingfile

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
)

// TestRead: each kind of thing that a path may lead to, as one that is read again and as one that is read once.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, text := range map[string]string{"full": "12345678", "over": "123456789", "empty": ""} {
		must.OK(t, os.WriteFile(at(name), []byte(text), 0o600))
	}
	for link, to := range map[string]string{"link": at("full"), "link-to-zero": "/dev/zero", "loop": at("loop")} {
		must.OK(t, os.Symlink(to, at(link)))
	}
	must.OK(t, syscall.Mkfifo(at("silent"), 0o600))
	for _, c := range []struct{ path, again, once string }{
		{at("full"), "12345678", "12345678"},
		{at("empty"), "", ""},
		{at("over"), "! larger than 8 bytes", "! larger than 8 bytes"},
		{at("link"), "12345678", "12345678"},
		{at("link-to-zero"), "! is not a file", "! is not a file"},
		{os.DevNull, "", ""},
		{"/dev/zero", "! is not a file", "! is not a file"},
		{at("loop"), "! too many levels", "! too many levels"},
		{at("none"), "! no such file", "! no such file"},
		{dir, "! is a directory", "! is a directory"},
		{at("silent"), "! is a pipe: what is read more than once", "! nobody has written"},
	} {
		for want, within := range map[string]time.Duration{c.again + " ": 0, c.once: 50 * time.Millisecond} {
			text, err := read(c.path, 8, within)
			want = strings.TrimSpace(want)
			message, refused := strings.CutPrefix(want, "! ")
			switch {
			case refused && (err == nil || !strings.Contains(err.Error(), message) || !strings.Contains(err.Error(), c.path)):
				t.Errorf("%s within %v: %q %v, want %s", c.path, within, text, err, message)
			case !refused && (err != nil || string(text) != want):
				t.Errorf("%s within %v: %q %v, want %q", c.path, within, text, err, want)
			}
		}
	}
}

// TestPipe: a pipe is read to its end, also by the path that a shell's <(command) has, if its writer comes late or pauses;
// not without bound, and not for ever.
func TestPipe(t *testing.T) {
	const within = 3 * time.Second
	for _, c := range []struct {
		name  string
		write func(w *os.File)
		want  string
	}{
		{"late and with a pause", func(w *os.File) {
			//sleep: a writer that pauses is what is tested
			time.Sleep(50 * time.Millisecond)
			w.WriteString("1234")
			//sleep: a writer that pauses is what is tested
			time.Sleep(50 * time.Millisecond)
			w.WriteString("5678")
			w.Close()
		}, "12345678"},
		{"too much", func(w *os.File) { w.WriteString(strings.Repeat("x", 20000)) }, "! larger than 8 bytes"},
		{"not closed", func(w *os.File) { w.WriteString("1234") }, "! nobody has written all of it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "pipe")
			must.OK(t, syscall.Mkfifo(path, 0o600))
			done := make(chan *os.File, 1)
			go func() {
				w, err := os.OpenFile(path, os.O_RDWR, 0) // opens at once, and keeps the pipe from its end
				if err == nil {
					c.write(w)
				}
				done <- w
			}()
			text, err := read(path, 8, within)
			defer (<-done).Close()
			is := string(text)
			if err != nil {
				is = "! " + err.Error()
			}
			if message, refused := strings.CutPrefix(c.want, "! "); is != c.want && !(refused && strings.Contains(is, message)) {
				t.Errorf("%q, want %q", is, c.want)
			}
		})
	}
	r, w, err := os.Pipe()
	must.OK(t, err)
	defer r.Close()
	w.WriteString("1234")
	w.Close()
	fd := "/dev/fd/" + strconv.Itoa(int(r.Fd()))
	if text, err := ReadOnce(fd, 8); err != nil || string(text) != "1234" {
		t.Errorf("%s: %q %v", fd, text, err)
	}
}

// TestLargeFile: a file that is too large is refused before it is held.
func TestLargeFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "large")
	must.OK(t, os.WriteFile(path, nil, 0o600))
	if err := os.Truncate(path, 64<<20); err != nil { // it has no blocks
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := Read(path, 8)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; err == nil || took > 1<<20 {
		t.Errorf("%v, with %d bytes of memory", err, took)
	}
}
