package cli

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// IsJournal reports whether a file is what systemd connects to its journal, as it says in the variable
// JOURNAL_STREAM, by device and inode. A file that a service's output was redirected to is another.
func IsJournal(f *os.File) bool { return isStream(f, os.Getenv("JOURNAL_STREAM")) }

func isStream(f *os.File, stream string) bool {
	info, err := f.Stat()
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && stream == fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}

// journalError is the prefix by which the journal takes a line for an error (sd-daemon(3)).
const journalError = "<3>"

// printError says on standard error why the process ends.
func printError(err error) {
	text := "error: " + err.Error()
	if IsJournal(os.Stderr) {
		text = journalError + strings.ReplaceAll(text, "\n", "\n"+journalError)
	}
	fmt.Fprintln(os.Stderr, text)
}
