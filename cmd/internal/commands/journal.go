package commands

import (
	"bytes"
	"io"
)

// priorities writes lines of a log with the prefix from which the journal takes their priority
// (sd-daemon(3)), so that 'journalctl -p err' shows the errors.
type priorities struct{ io.Writer }

// levelKeys are how handlers write a line's level, behind the time and before what is logged.
var levelKeys = [][]byte{[]byte(`"level":"`), []byte(" level=")}

// journalPriorities are the prefixes of the levels.
var journalPriorities = map[string]string{"ERR": "<3>", "WAR": "<4>", "INF": "<6>", "DEB": "<7>"}

// Write implements io.Writer.
func (p priorities) Write(line []byte) (int, error) {
	level := -1 // where the first one begins
	for _, key := range levelKeys {
		if i := bytes.Index(line, key); i >= 0 && (level < 0 || i+len(key) < level) {
			level = i + len(key)
		}
	}
	if level < 0 || len(line) < level+3 {
		return p.Writer.Write(line)
	}
	prefix := journalPriorities[string(line[level:level+3])]
	n, err := p.Writer.Write(append([]byte(prefix), line...))
	return max(0, n-len(prefix)), err
}
