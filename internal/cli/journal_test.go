package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/quorate/quorate/internal/must"
)

// TestIsStream: the journal is what systemd says it is, and not a file that its service writes to instead.
func TestIsStream(t *testing.T) {
	var files [2]*os.File
	var streams [2]string
	for i := range files {
		f, err := os.Create(filepath.Join(t.TempDir(), "log"))
		must.OK(t, err)
		t.Cleanup(func() { f.Close() })
		info, err := f.Stat()
		must.OK(t, err)
		st := info.Sys().(*syscall.Stat_t)
		files[i], streams[i] = f, fmt.Sprintf("%d:%d", st.Dev, st.Ino)
	}
	if !isStream(files[0], streams[0]) || isStream(files[0], streams[1]) || isStream(files[0], "") {
		t.Error("it is not told apart")
	}
}
