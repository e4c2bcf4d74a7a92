package kubeapiserver

import (
	_ "embed"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

//go:embed flags.txt
var flagsText string

// What becomes of a flag.
const (
	mapped  = "mapped"
	ignored = "ignored"
	refused = "refused"
)

// line is a line of flags.txt.
type line struct {
	name, kind, fate string
	// harmless are values that are taken where the flag is refused: they ask for what is so anyway.
	harmless []string
	text     string
}

// parseFlags reads flags.txt.
func parseFlags(text string) (out []line, err error) {
	for text := range strings.Lines(text) {
		text = strings.TrimSuffix(text, "\n")
		if strings.HasPrefix(text, "#") {
			continue
		}
		columns := strings.Split(text, "\t")
		if len(columns) != 5 {
			return nil, fmt.Errorf("flags.txt: %q has %d columns", text, len(columns))
		}
		f := line{name: columns[0], kind: columns[1], fate: columns[2], text: columns[4]}
		if columns[3] != "-" {
			f.harmless = append(f.harmless, strings.Split(columns[3], "|")...)
		}
		out = append(out, f)
	}
	return out, nil
}

// define makes a flag of its type. The text of those that change nothing says so.
func (f line) define(fs *pflag.FlagSet) error {
	text := f.text
	if f.fate != mapped {
		text = f.fate + ": " + text
	}
	name := f.name
	switch f.kind {
	case "string":
		fs.String(name, "", text)
	case "bool":
		fs.Bool(name, false, text)
	case "int":
		fs.Int(name, 0, text)
	case "int64":
		fs.Int64(name, 0, text)
	case "uint":
		fs.Uint(name, 0, text)
	case "float32":
		fs.Float32(name, 0, text)
	case "float64":
		fs.Float64(name, 0, text)
	case "duration":
		fs.Duration(name, 0, text)
	case "ip":
		fs.IP(name, nil, text)
	case "stringSlice":
		fs.StringSlice(name, nil, text)
	case "stringArray":
		fs.StringArray(name, nil, text)
	case "int32Slice":
		fs.Int32Slice(name, nil, text)
	case "stringToString":
		fs.StringToString(name, nil, text)
	case "mapStringString", "colonSeparatedMultimapStringString":
		fs.Var(&pairs{kind: f.kind, bare: name == "runtime-config"}, name, text)
	case "Level":
		fs.VarP(new(level), name, "v", text)
	case "version":
		fs.Var(new(word), name, text)
		fs.Lookup(name).NoOptDefVal = "true"
	case "portRange", "quantity", "pattern=N,...", "namedCertKey":
		fs.Var(&word{kind: f.kind}, name, text)
	default:
		return fmt.Errorf("flags.txt: %s: unknown type %q", name, f.kind)
	}
	return nil
}

// pairs are KEY=VALUE, separated by commas, in one flag or several.
type pairs struct {
	kind string
	bare bool // a key may be alone
	list []string
}

func (p *pairs) String() string { return strings.Join(p.list, ",") }
func (p *pairs) Type() string   { return p.kind }

func (p *pairs) Set(s string) error {
	for _, pair := range strings.Split(s, ",") {
		pair = strings.TrimSpace(pair)
		if pair == "" {
			continue
		}
		if key, _, ok := strings.Cut(pair, "="); key == "" || !ok && !p.bare {
			return fmt.Errorf("%q must be KEY=VALUE", pair)
		}
		p.list = append(p.list, pair)
	}
	return nil
}

// word is a flag whose value is looked at by nobody, or later.
type word struct{ kind, value string }

func (w *word) String() string     { return w.value }
func (w *word) Set(s string) error { w.value = s; return nil }

func (w *word) Type() string {
	if w.kind == "" {
		return "version"
	}
	return w.kind
}

// level is klog's verbosity.
type level int

func (l *level) String() string { return fmt.Sprint(int(*l)) }
func (l *level) Type() string   { return "Level" }

func (l *level) Set(s string) error {
	n, err := strconv.ParseUint(s, 10, 31) // as upstream
	if err != nil {
		return fmt.Errorf("%q must be a number", s)
	}
	*l = level(n)
	return nil
}

// value is a flag's as text, with the elements of a list separated by commas.
func value(f *pflag.Flag) string {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		return strings.Join(list.GetSlice(), ",")
	}
	return f.Value.String()
}

// isHarmless reports whether a refused flag asks for what is so anyway.
func (f line) isHarmless(v string) bool { return v == "" || slices.Contains(f.harmless, v) }

// hostIP is an address of this host that others reach, or that of loopback.
func hostIP() net.IP {
	all, _ := net.InterfaceAddrs()
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && n.IP.To4() != nil {
			return n.IP
		}
	}
	return net.IPv4(127, 0, 0, 1)
}
