package check

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/quorate/quorate/test/judges/history"
)

// ms prints a time as people read it in the report.
func ms(t time.Duration) string {
	if t == history.Forever {
		return "never"
	}
	return strconv.FormatFloat(float64(t)/float64(time.Millisecond), 'f', -1, 64) + "ms"
}

func showItem(it history.Item) string {
	return fmt.Sprintf("%s=%s@%d", it.Key, it.Value, it.Revision)
}

// maxShown bounds the items that a text names.
const maxShown = 6

func showItems(items []history.Item) string {
	var b strings.Builder
	for i, it := range items {
		if i == maxShown {
			fmt.Fprintf(&b, " and %d more", len(items)-i)
			break
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(showItem(it))
	}
	return "[" + b.String() + "]"
}

// Describe names an operation of a history in one line.
func Describe(h *history.History, i int) string {
	o := &h.Ops[i]
	var b strings.Builder
	fmt.Fprintf(&b, "#%d c%d %s %s", i, o.Client, o.Node, o.Kind)
	if o.Key != "" {
		b.WriteString(" " + o.Key)
	}
	if o.Value != "" {
		b.WriteString("=" + o.Value)
	}
	if o.Precondition != 0 {
		fmt.Fprintf(&b, " if @%d", o.Precondition)
	}
	if o.Mode != "" {
		b.WriteString(" " + string(o.Mode))
	}
	if o.Asked != 0 {
		fmt.Fprintf(&b, " %d", o.Asked)
	}
	if o.Prefix != "" {
		b.WriteString(" prefix " + o.Prefix)
	}
	if o.Limit != 0 {
		fmt.Fprintf(&b, " limit %d", o.Limit)
	}
	if o.After != "" {
		b.WriteString(" after " + o.After)
	}
	fmt.Fprintf(&b, " (%s to %s): %s", ms(o.Call), ms(o.Return), o.Outcome)
	if o.Code != 0 {
		fmt.Fprintf(&b, " %d", o.Code)
	}
	if o.Reason != "" {
		b.WriteString(" " + o.Reason)
	}
	if o.Revision != 0 {
		fmt.Fprintf(&b, " @%d", o.Revision)
	}
	if o.Staleness != nil {
		b.WriteString(" staleness " + ms(*o.Staleness))
	}
	if o.Kind == history.List || len(o.Items) > 0 {
		b.WriteString(" " + showItems(o.Items))
	}
	return b.String()
}

// DescribeEvent names an event of a watch in one line.
func DescribeEvent(h *history.History, w, e int) string {
	x := &h.Watches[w].Events[e]
	s := fmt.Sprintf("event %d %s", e, x.Type)
	switch x.Type {
	case history.Bookmark:
		s += fmt.Sprintf(" @%d", x.Revision)
		if x.InitialEnd {
			s += " (end of the initial events)"
		}
	case history.Error:
		s += fmt.Sprintf(" %d", x.Code)
	default:
		s += " " + showItem(x.Item)
	}
	return s + " at " + ms(x.At)
}

// DescribeWatch names a watch in one line.
func DescribeWatch(h *history.History, i int) string {
	w := &h.Watches[i]
	from := fmt.Sprintf("from %d", w.From)
	if w.Unset {
		from = "from the newest"
	}
	if w.Initial {
		from += " with initial events"
	}
	if w.Prefix != "" {
		from += " prefix " + w.Prefix
	}
	if w.Selector != "" {
		from += " selector " + w.Selector
	}
	return fmt.Sprintf("watch %d c%d %s %s (%s to %s)", i, w.Client, w.Node, from, ms(w.Begin), ms(w.End))
}

// version names an entry of the log and who wrote it.
func (f *facts) describe(v *version) string {
	what := "=" + v.value
	if v.deleted {
		what = " deleted"
	}
	by := "nobody known"
	if v.writer >= 0 {
		by = Describe(f.h, v.writer)
	}
	return fmt.Sprintf("%s%s@%d by %s", v.key, what, v.rev, by)
}

func rev(n uint64) string { return "@" + strconv.FormatUint(n, 10) }
