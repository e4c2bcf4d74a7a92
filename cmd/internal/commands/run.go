package commands

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/quorate/quorate/internal/cli"
	"github.com/quorate/quorate/membership"
)

// Run executes the command line of this process and returns its exit code. The version and the commit
// are those that the linker was told, or "".
func Run(version, commit string) int {
	build = cli.BuildOf(version, commit)
	c := newCommand()
	if sub, ok := calledAs[filepath.Base(os.Args[0])]; ok {
		c.SetArgs(append([]string{sub}, os.Args[1:]...))
	}
	return cli.Run(c, func(err error) int {
		if errors.Is(err, membership.ErrNoQuorum) {
			return exitNoQuorum
		}
		return 0
	})
}
