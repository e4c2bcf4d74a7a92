package datadir

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
)

// TestCheckUser: root is refused on the directory of another user, also on one that is not there yet.
func TestCheckUser(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		name, dir string
		euid      int
		owner     uint32
	}{
		{"another user's", dir, 0, 65534},
		{"below another user's", filepath.Join(dir, "a", "b"), 0, 65534},
		{"root's", dir, 0, 0},
		{"not root", dir, 1000, 65534},
	} {
		t.Run(c.name, func(t *testing.T) {
			if os.Geteuid() != 0 {
				return // others cannot give directories away; they are not what this is about
			}
			must.OK(t, os.Chown(dir, int(c.owner), -1))
			err := checkUserIs(c.euid, "quorate recover --data-dir "+c.dir, c.dir)
			if refused := c.euid == 0 && c.owner != 0; (err != nil) != refused || refused && !strings.Contains(err.Error(), dir+" belongs to another user, and this is root") {
				t.Errorf("%v", err)
			}
		})
	}
}
