package mvcc

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
)

func TestOutcomes(t *testing.T) {
	text, err := os.ReadFile("testdata/outcomes.txt")
	must.OK(t, err)
	s, index, rows := New(), proto.RaftIndex(0), 0
	for n, line := range strings.Split(string(text), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if line == "---" {
			s, index = New(), 0
			continue
		}
		command, want, ok := strings.Cut(line, " => ")
		if !ok {
			t.Fatalf("line %d: no result: %s", n+1, line)
		}
		if key, ok := strings.CutPrefix(command, "usage "); ok {
			uses, _ := s.Usage("t", key)
			var got []string
			for _, u := range uses {
				got = append(got, fmt.Sprintf("%s:%d/%d", u.Name, u.Used, u.Max))
			}
			if text := strings.Join(got, " "); text != want {
				t.Errorf("line %d: %s\n got %s\nwant %s", n+1, command, text, want)
			}
			continue
		}
		entry, err := parseCommand(strings.Fields(command))
		if err != nil {
			t.Fatalf("line %d: %s: %v", n+1, command, err)
		}
		index++
		r, err := s.Apply(index, 1, entry)
		if err != nil {
			t.Fatalf("line %d: %v", n+1, err)
		}
		s.Publish()
		if err := s.Check(); err != nil {
			t.Fatalf("line %d: %v", n+1, err)
		}
		if got := describeResult(r); got != want {
			t.Errorf("line %d: %s\n got %s\nwant %s", n+1, command, got, want)
		}
		rows++
	}
	if rows < 60 {
		t.Errorf("only %d rows", rows)
	}
}

func parseCommand(words []string) ([]byte, error) {
	if words[0] == "compact" {
		floor, err := strconv.ParseUint(words[1], 10, 64)
		if err != nil {
			return nil, err
		}
		return proto.Encode(proto.KindCompact, &proto.Compact{Floor: floor})
	}
	op := map[string]proto.Op{"put": proto.Op_OP_PUT, "delete": proto.Op_OP_DELETE}[words[0]]
	w := &proto.Write{Table: "t", Key: words[1], Op: op}
	body, hasBody := "", false
	for _, word := range words[2:] {
		key, value, _ := strings.Cut(word, "=")
		var err error
		switch key {
		case "absent":
			w.Condition = proto.Condition_CONDITION_ABSENT
		case "exists":
			w.Condition = proto.Condition_CONDITION_EXISTS
		case "at":
			w.Condition = proto.Condition_CONDITION_REVISION
			w.ExpectRevision, err = strconv.ParseUint(value, 10, 64)
		case "uid":
			w.Uid = value
		case "want-uid":
			w.ExpectUid = value
		case "in":
			w.Table = value
		case "decided":
			w.DecidedAt, err = strconv.ParseUint(value, 10, 64)
		case "rules":
			w.Rules, err = ruleBitsOf(value)
		case "range":
			table, prefix, _ := strings.Cut(value, ":")
			w.RuleRanges = append(w.RuleRanges, &proto.RuleRange{Table: table, Prefix: prefix})
		case "use":
			w.Usage, err = parseUsage(value)
		case "limit":
			var l *proto.Limit
			if l, err = parseLimit(value); err == nil {
				w.Limits = append(w.Limits, l)
			}
		case "enforce":
			w.EnforceLimits = true
		case "guard":
			w.Guard = &proto.Guard{Table: "t", Key: value}
		case "terminating":
			w.Flags |= proto.FlagTerminating
		case "same-rule":
			w.Flags |= proto.FlagSameRule
		case "id":
			w.RequestId = fmt.Appendf(nil, "%016s", value)
		default:
			if hasBody {
				err = fmt.Errorf("unknown word %q", word)
			}
			body, hasBody = word, true
		}
		if err != nil {
			return nil, err
		}
	}
	if hasBody || op == proto.Op_OP_PUT {
		w.Value, w.RevisionOffset = fmt.Appendf(nil, "<%s:>", body), uint32(len(body)+2)
	}
	if err := Validate(w); err != nil {
		return nil, err
	}
	return proto.Encode(proto.KindWrite, w)
}

// parseUsage reads a:2,f:x,f:y: amounts are numbers, facts are words.
func parseUsage(text string) (*proto.Usage, error) {
	u := &proto.Usage{}
	for _, part := range strings.Split(text, ",") {
		name, value, _ := strings.Cut(part, ":")
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			u.Amounts = append(u.Amounts, &proto.Amount{Name: name, Value: n})
		} else if n := len(u.Facts); n > 0 && u.Facts[n-1].Name == name {
			u.MoreFacts = append(u.MoreFacts, &proto.Attribute{Name: name, Value: value})
		} else {
			u.Facts = append(u.Facts, &proto.Attribute{Name: name, Value: value})
		}
	}
	return u, nil
}

// parseLimit reads f:in:x/y,f:exists,a<10,TABLE#3: requirements, a bound of an amount,
// a bound of a table's keys.
func parseLimit(text string) (*proto.Limit, error) {
	l := &proto.Limit{}
	for _, part := range strings.Split(text, ",") {
		if at := strings.IndexAny(part, "<#"); at >= 0 {
			n, err := strconv.ParseInt(part[at+1:], 10, 64)
			if err != nil {
				return nil, err
			}
			b := &proto.Bound{Name: part[:at], Max: n}
			if part[at] == '#' {
				b.Table = b.Name
			}
			l.Bounds = append(l.Bounds, b)
			continue
		}
		words := strings.Split(part, ":")
		r := &proto.Requirement{Name: words[0], Operator: map[string]proto.Operator{
			"in": proto.Operator_OPERATOR_IN, "notin": proto.Operator_OPERATOR_NOT_IN,
			"exists": proto.Operator_OPERATOR_EXISTS, "absent": proto.Operator_OPERATOR_DOES_NOT_EXIST,
		}[words[1]]}
		if len(words) > 2 {
			r.Values = strings.Split(words[2], "/")
		}
		l.Requirements = append(l.Requirements, r)
	}
	return l, nil
}

// ruleBitsOf are the bits of tables, by their first names.
func ruleBitsOf(names string) (bits uint32, err error) {
	for _, name := range strings.Split(names, ",") {
		found := false
		for bit, r := range proto.Rules {
			if first, _, _ := strings.Cut(r.Table, "."); first == name {
				bits, found = bits|1<<bit, true
			}
		}
		if !found {
			err = fmt.Errorf("no rules are in a table %q", name)
		}
	}
	return bits, err
}

func describeResult(r Result) string {
	out := fmt.Sprintf("%s %d", strings.TrimPrefix(r.Outcome.String(), "OUTCOME_"), r.Revision)
	if v := r.Version; v != nil {
		out += " " + string(v.Value())
		if v.CreateRevision != v.Revision {
			out += fmt.Sprintf(" created=%d", v.CreateRevision)
		}
		if v.Deleted {
			out += " x"
		}
	}
	for i, b := range r.Exceeded.GetBounds() {
		if i == 0 {
			out += " " + r.Exceeded.Table + " " + r.Exceeded.Key
		}
		out += fmt.Sprintf(" %s:%d+%d>%d", b.Name, b.Used, b.Requested, b.Max)
	}
	for i, rev := range r.Removed {
		out += []string{" removed=", ","}[min(i, 1)] + rev.String()
	}
	return out
}
