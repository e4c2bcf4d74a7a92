package playground

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"time"
)

// LogOptions are what is shown of logs.
type LogOptions struct {
	// Follow goes on with what is logged from now on, until the context ends.
	Follow bool
	// Tail is how many lines of each node are shown; -1 is all.
	Tail int
}

// Logs shows the logs of the nodes and components of these names, or of all nodes, in the order of their times.
func Logs(ctx context.Context, dir string, names []string, l LogOptions, out io.Writer) error {
	c, err := readCluster(dir)
	if err != nil {
		return err
	}
	nodes, components, err := c.split(names)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		nodes = c.Nodes
	}
	var logs []*nodeLog
	for _, n := range nodes {
		logs = append(logs, &nodeLog{name: n.Name, file: n.Log})
	}
	for _, m := range components {
		logs = append(logs, &nodeLog{name: m.Name, file: m.Log})
	}
	return l.run(ctx, logs, out)
}

// nodeLog is how far a log has been shown.
type nodeLog struct {
	name, file string
	at         int64
	part       []byte // of a line whose end is not there yet
}

type logLine struct {
	name string
	time []byte // as it is in the line, or in the one before
	text []byte
}

func (l LogOptions) run(ctx context.Context, logs []*nodeLog, out io.Writer) error {
	for _, log := range logs {
		if err := log.skipTo(l.Tail); err != nil {
			return err
		}
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		if err := showLogs(logs, out, !l.Follow); err != nil || !l.Follow {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// logRound bounds what is read of a log at once: what is sorted is held.
const logRound = 16 << 20

// showLogs prints what the logs have beyond what was shown, in the order of the times.
// Parts of lines wait for their ends, except at the end.
func showLogs(logs []*nodeLog, out io.Writer, last bool) error {
	for more := true; more; {
		more = false
		var lines []logLine
		for _, log := range logs {
			got, again, err := log.read(last)
			if err != nil {
				return err
			}
			more = more || again
			lines = append(lines, got...)
		}
		slices.SortStableFunc(lines, func(a, b logLine) int { return bytes.Compare(a.time, b.time) })
		for _, line := range lines {
			if len(logs) > 1 {
				if _, err := fmt.Fprintf(out, "%s | ", line.name); err != nil {
					return err
				}
			}
			if _, err := out.Write(append(line.text, '\n')); err != nil {
				return err
			}
		}
	}
	return nil
}

// lineTime is where a line has its time, in both formats.
var lineTime = regexp.MustCompile(`^(?:time=|\{"time":")([0-9TZ:.+-]+)`)

// klogTime is where a line of the control plane's programs has its time: month and day, and the time of
// the day.
var klogTime = regexp.MustCompile(`^[IWEF]([0-9]{4}) ([0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}) `)

// lineLayout is how nodes write times.
const lineLayout = "2006-01-02T15:04:05.000Z07:00"

// klogAt is a time of klog as nodes write it. It has no year: one that would be to come was last year's.
func klogAt(m [][]byte, now time.Time) []byte {
	t, err := time.ParseInLocation("20060102 15:04:05.000000", fmt.Sprintf("%04d%s %s", now.Year(), m[1], m[2]), now.Location())
	if err != nil {
		return nil
	}
	if t.After(now.AddDate(0, 0, 1)) {
		t = t.AddDate(-1, 0, 0)
	}
	return t.AppendFormat(nil, lineLayout)
}

// read returns the whole lines that have come since the last call, and whether there are
// more. last takes the part of a line for one.
func (log *nodeLog) read(last bool) (lines []logLine, more bool, err error) {
	f, err := os.Open(log.file)
	if errors.Is(err, fs.ErrNotExist) { // it was never started
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() < log.at {
		log.at, log.part = 0, nil // it was begun again
	}
	b, err := io.ReadAll(io.NewSectionReader(f, log.at, logRound))
	if err != nil {
		return nil, false, err
	}
	log.at += int64(len(b))
	more = len(b) == logRound
	b = append(log.part, b...)
	log.part = nil
	var at []byte
	for len(b) > 0 {
		line, rest, whole := bytes.Cut(b, []byte("\n"))
		if !whole && (more || !last) {
			log.part = b
			break
		}
		if m := lineTime.FindSubmatch(line); m != nil {
			at = m[1]
		} else if m := klogTime.FindSubmatch(line); m != nil {
			at = klogAt(m, time.Now())
		}
		lines = append(lines, logLine{log.name, at, line})
		b = rest
	}
	return lines, more, nil
}

// skipTo leaves the given number of lines to show; -1 leaves all.
func (log *nodeLog) skipTo(lines int) error {
	if lines < 0 {
		return nil
	}
	f, err := os.Open(log.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if lines == 0 {
		log.at = size
		return nil
	}
	const block = 64 << 10
	buf := make([]byte, block)
	left := lines
	for end := size; end > 0; {
		from := max(0, end-block)
		b := buf[:end-from]
		if _, err := f.ReadAt(b, from); err != nil {
			return err
		}
		for i := len(b) - 1; i >= 0; i-- {
			if b[i] != '\n' || from+int64(i) == size-1 { // the last line's own end
				continue
			}
			if left--; left <= 0 {
				log.at = from + int64(i) + 1
				return nil
			}
		}
		end = from
	}
	return nil
}
