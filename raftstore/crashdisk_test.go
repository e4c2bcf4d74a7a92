package raftstore

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// sectorBytes are written by a disk as a whole, or not at all.
const sectorBytes = 512

// content is what a file has. Zeros stand behind b, up to size: bbolt's files are sparse.
type content struct {
	b    []byte
	size int64
}

func (c *content) write(at int64, data []byte) {
	end := at + int64(len(data))
	if grow := end - int64(len(c.b)); grow > 0 {
		c.b = append(c.b, make([]byte, grow)...)
	}
	copy(c.b[at:], data)
	c.size = max(c.size, end)
}

func (c *content) truncate(size int64) {
	c.b = c.b[:min(int64(len(c.b)), size)]
	c.size = size
}

func (c *content) clone() *content { return &content{slices.Clone(c.b), c.size} }

func (c *content) equal(b []byte) bool {
	return c.size == int64(len(b)) && bytes.Equal(bytes.TrimRight(c.b, "\x00"), bytes.TrimRight(b, "\x00"))
}

type kindOfOperation string

const (
	opWrite    kindOfOperation = "write"
	opTruncate kindOfOperation = "truncate"
	opAllocate kindOfOperation = "allocate"
	opSync     kindOfOperation = "sync"
	opSyncDir  kindOfOperation = "sync directory"
	opCreate   kindOfOperation = "create"
	opMkdir    kindOfOperation = "make directory"
	opRename   kindOfOperation = "rename"
	opExchange kindOfOperation = "exchange"
	opRemove   kindOfOperation = "remove"
	opSaid     kindOfOperation = "said" // to the parent
)

// directory is the number of a file that is a directory.
const directory = -1

// operation is a system call that has succeeded.
type operation struct {
	kind  kindOfOperation
	file  int    // its number, by which it is known under all of its names
	path  string // below the root
	to    string // of a rename
	other int    // the file that is exchanged with it
	at    int64  // of a write; the size of a truncation, and the least one behind an allocation
	data  []byte
	began int // how many operations there were when a sync began: it covers no later ones
}

func (o operation) String() string {
	s := string(o.kind) + " " + o.path
	switch o.kind {
	case opRename, opExchange:
		s += " to " + o.to
	case opWrite:
		s += fmt.Sprintf(" at %d, %d bytes", o.at, len(o.data))
	case opTruncate, opAllocate:
		s += fmt.Sprintf(" to %d", o.at)
	}
	return s
}

// traced are the system calls to record. A question mark: not every machine has it.
const traced = "trace=openat,close,write,pwrite64,ftruncate,fallocate,fsync,fdatasync,?rename,renameat,?renameat2,?unlink,unlinkat,?rmdir,?mkdir,mkdirat"

// recorder reads what strace has written.
type recorder struct {
	root       string
	names      map[string]int // files by path
	files      int
	open       map[string]*openFile // by descriptor
	begun      map[string]string    // the first halves of calls, by thread
	syncs      map[string]int       // see operation.began, by thread
	operations []operation
}

type openFile struct {
	file int
	path string
	at   int64
}

var (
	straceLine   = regexp.MustCompile(`^(\d+) +(?:<\.\.\. (\w+) resumed>|(\w+)\()(.*)$`)
	straceResult = regexp.MustCompile(`\) += (\d+)`)
)

// readTrace returns the operations on files below root, and what was said to stdout, in their order. It begins
// with the files of d.
func readTrace(trace io.Reader, root string, d *modelDisk) ([]operation, error) {
	r := &recorder{root: root, names: maps.Clone(d.names), files: len(d.files), open: map[string]*openFile{}, begun: map[string]string{}, syncs: map[string]int{}}
	in := bufio.NewReaderSize(trace, 1<<20)
	for {
		line, err := in.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return r.operations, nil
		}
		if err == nil {
			err = r.line(strings.TrimSuffix(line, "\n"))
		}
		if err != nil {
			return nil, fmt.Errorf("read the trace: %w", err)
		}
	}
}

func (r *recorder) line(line string) error {
	m := straceLine.FindStringSubmatch(line)
	if m == nil {
		return nil
	}
	thread, call, rest := m[1], m[3], m[4]
	if m[2] != "" { // the second half
		call, rest = m[2], r.begun[thread]+rest
	} else {
		r.begin(thread, call, rest)
		if half, ok := strings.CutSuffix(rest, "<unfinished ...>"); ok {
			r.begun[thread] = half
			return nil
		}
	}
	end := straceResult.FindStringSubmatchIndex(rest)
	if end == nil {
		return nil // it has failed
	}
	return r.call(thread, call, strings.Split(rest[:end[0]], ", "), rest[end[2]:end[3]])
}

// begin is told of each call when it begins.
func (r *recorder) begin(thread, call, rest string) {
	switch call {
	case "fsync", "fdatasync":
		r.syncs[thread] = len(r.operations)
	case "close": // at once: the descriptor may be another file's when it ends
		delete(r.open, rest[:strings.IndexAny(rest+")", ") <")])
	}
}

func (r *recorder) call(thread, call string, args []string, result string) error {
	for i := range args {
		args[i] = strings.TrimSpace(args[i])
	}
	f := r.open[args[0]]
	switch call {
	case "openat":
		return r.opened(args, result)
	case "write", "pwrite64":
		data, err := unhex(args[1])
		if err != nil {
			return err
		}
		if n, err := strconv.Atoi(result); err != nil || n != len(data) {
			return fmt.Errorf("%s of %d bytes returned %s", call, len(data), result)
		}
		switch {
		case args[0] == "1":
			r.add(operation{kind: opSaid, data: data})
		case f != nil && call == "write":
			r.add(operation{kind: opWrite, file: f.file, path: f.path, at: f.at, data: data})
			f.at += int64(len(data))
		case f != nil:
			at, err := strconv.ParseInt(args[3], 10, 64)
			if err != nil {
				return err
			}
			r.add(operation{kind: opWrite, file: f.file, path: f.path, at: at, data: data})
		}
	case "ftruncate":
		if f != nil {
			size, err := strconv.ParseInt(args[1], 10, 64)
			if err != nil {
				return err
			}
			r.add(operation{kind: opTruncate, file: f.file, path: f.path, at: size})
		}
	case "fallocate":
		if f != nil {
			from, err := strconv.ParseInt(args[2], 10, 64)
			if err != nil {
				return err
			}
			n, err := strconv.ParseInt(args[3], 10, 64)
			if err != nil {
				return err
			}
			r.add(operation{kind: opAllocate, file: f.file, path: f.path, at: from + n})
		}
	case "fsync", "fdatasync":
		if f != nil {
			kind := opSync
			if f.file == directory {
				kind = opSyncDir
			}
			r.add(operation{kind: kind, file: f.file, path: f.path, began: r.syncs[thread]})
		}
	case "rename":
		return r.named(opRename, args[0], args[1])
	case "renameat", "renameat2":
		if call == "renameat2" && strings.Contains(args[4], "RENAME_EXCHANGE") {
			return r.named(opExchange, args[1], args[3])
		}
		return r.named(opRename, args[1], args[3])
	case "unlink", "rmdir":
		return r.named(opRemove, args[0], "")
	case "unlinkat":
		return r.named(opRemove, args[1], "")
	case "mkdir":
		return r.named(opMkdir, args[0], "")
	case "mkdirat":
		return r.named(opMkdir, args[1], "")
	}
	return nil
}

func (r *recorder) add(o operation) { r.operations = append(r.operations, o) }

// opened is told of a file that was opened, and made perhaps.
func (r *recorder) opened(args []string, descriptor string) error {
	delete(r.open, descriptor)
	path, ours, err := r.below(args[1])
	if err != nil || !ours {
		return err
	}
	file, there := r.names[path]
	switch {
	case path == ".":
		file = directory
	case !there:
		file = r.files
		r.files++
		r.names[path] = file
		r.add(operation{kind: opCreate, file: file, path: path})
	case strings.Contains(args[2], "O_TRUNC"):
		r.add(operation{kind: opTruncate, file: file, path: path})
	}
	r.open[descriptor] = &openFile{file: file, path: path}
	return nil
}

// named is told of a name that was made, changed or removed.
func (r *recorder) named(kind kindOfOperation, quoted, to string) error {
	path, ours, err := r.below(quoted)
	if err != nil || !ours {
		return err
	}
	o := operation{kind: kind, file: r.names[path], path: path}
	switch kind {
	case opMkdir:
		if path == "." {
			return nil
		}
		o.file = directory
	case opRename, opExchange:
		if o.to, _, err = r.below(to); err != nil {
			return err
		}
		o.other = r.names[o.to]
	}
	r.add(o)
	o.name(r.names)
	return nil
}

// below returns a path as it is below the root, and whether it is there.
func (r *recorder) below(quoted string) (string, bool, error) {
	b, err := unhex(quoted)
	if err != nil {
		return "", false, err
	}
	path, err := filepath.Rel(r.root, string(b))
	return path, err == nil && filepath.IsLocal(path), nil
}

func unhex(quoted string) ([]byte, error) {
	b, err := hex.DecodeString(strings.ReplaceAll(strings.Trim(quoted, `"`), `\x`, ""))
	if err != nil {
		return nil, fmt.Errorf("%.80s: %w", quoted, err)
	}
	return b, nil
}

// name does to names what an operation does. No directory is renamed.
func (o operation) name(names map[string]int) {
	switch o.kind {
	case opCreate, opMkdir:
		names[o.path] = o.file
	case opRename:
		delete(names, o.path)
		names[o.to] = o.file
	case opExchange:
		names[o.path], names[o.to] = o.other, o.file
	case opRemove:
		delete(names, o.path)
	}
}

// modelDisk is a file system of which is known what is durable: files by their numbers, and their names.
type modelDisk struct {
	files        []*modelFile
	names        map[string]int
	durableNames map[string]int
	unsynced     []pendingOperation // on names
	done         int
}

type modelFile struct {
	cached, durable content
	unsynced        []pendingOperation
}

// pendingOperation is one that no sync has made durable, with its number.
type pendingOperation struct {
	operation
	number int
}

func newModelDisk() *modelDisk {
	return &modelDisk{names: map[string]int{}, durableNames: map[string]int{}}
}

// clone is the disk for another process, whose operations are counted from zero.
func (d *modelDisk) clone() *modelDisk {
	renumbered := func(list []pendingOperation) []pendingOperation {
		list = slices.Clone(list)
		for i := range list {
			list[i].number -= d.done
		}
		return list
	}
	out := &modelDisk{names: maps.Clone(d.names), durableNames: maps.Clone(d.durableNames), unsynced: renumbered(d.unsynced)}
	for _, f := range d.files {
		out.files = append(out.files, &modelFile{*f.cached.clone(), *f.durable.clone(), renumbered(f.unsynced)})
	}
	return out
}

// do does the next operation.
func (d *modelDisk) do(o operation) {
	pending := pendingOperation{o, d.done}
	d.done++
	switch o.kind {
	case opWrite, opTruncate, opAllocate:
		f := d.files[o.file]
		o.change(&f.cached)
		f.unsynced = append(f.unsynced, pending)
	case opSync:
		f := d.files[o.file]
		n := 0
		for ; n < len(f.unsynced) && f.unsynced[n].number < o.began; n++ {
			f.unsynced[n].change(&f.durable)
		}
		f.unsynced = f.unsynced[n:]
	case opSyncDir:
		d.unsynced = slices.DeleteFunc(slices.Clone(d.unsynced), func(p pendingOperation) bool {
			covered := p.number < o.began && filepath.Dir(p.path) == o.path
			if covered {
				p.name(d.durableNames)
			}
			return covered
		})
	case opCreate:
		d.files = append(d.files, &modelFile{})
		fallthrough
	case opMkdir, opRename, opExchange, opRemove:
		o.name(d.names)
		d.unsynced = append(d.unsynced, pending)
	}
}

func (o operation) change(c *content) {
	switch o.kind {
	case opTruncate:
		c.truncate(o.at)
	case opAllocate:
		c.size = max(c.size, o.at)
	default:
		c.write(o.at, o.data)
	}
}

// torn is a write of which only the bytes before an offset of the file have reached the disk.
func (o operation) torn(before int64) operation {
	o.data = o.data[:min(max(0, before-o.at), int64(len(o.data)))]
	return o
}

// crash is a way in which a process or a machine may end.
type crash string

const (
	killed       crash = "a kill"
	nothing      crash = "a power loss: what was synced"
	namesOnly    crash = "a power loss: all names, and the data that was synced"
	inOrder      crash = "a power loss: everything in order, up to a sector of a write"
	inSector     crash = "a power loss: everything in order, up to a byte in a sector"
	someSectors  crash = "a power loss: half of the sectors, in any order"
	mostSectors  crash = "a power loss: nine of ten sectors, in any order"
	fewerSectors crash = "a power loss: one of ten sectors, in any order"
)

var allCrashes = []crash{killed, nothing, namesOnly, inOrder, inSector, someSectors, mostSectors, fewerSectors}

// after returns a directory as a crash may leave it now. It holds until the next operation.
func (d *modelDisk) after(c crash, rng *rand.Rand) directoryImage {
	switch c {
	case killed:
		return d.image(d.names, func(f *modelFile) *content { return &f.cached })
	case nothing:
		return d.image(d.durableNames, func(f *modelFile) *content { return &f.durable })
	case namesOnly:
		return d.image(d.names, func(f *modelFile) *content { return &f.durable })
	case inOrder:
		return d.upTo(rng, sectorBytes)
	case inSector:
		return d.upTo(rng, 1)
	case mostSectors:
		return d.sectors(rng, 0.9)
	case fewerSectors:
		return d.sectors(rng, 0.1)
	}
	return d.sectors(rng, 0.5)
}

// upTo ends in the last write that is not durable, or in an earlier one, at a multiple of an offset.
func (d *modelDisk) upTo(rng *rand.Rand, unit int64) directoryImage {
	var writes []pendingOperation
	for _, f := range d.files {
		writes = append(writes, f.unsynced...)
	}
	slices.SortFunc(writes, func(a, b pendingOperation) int { return a.number - b.number })
	last := pendingOperation{number: d.done}
	if n := len(writes); n > 0 {
		last = writes[n-1]
		if rng.IntN(2) == 0 {
			last = writes[rng.IntN(n)]
		}
	}
	names := maps.Clone(d.durableNames)
	for _, o := range d.unsynced {
		if o.number < last.number {
			o.name(names)
		}
	}
	end := (last.at + rng.Int64N(int64(len(last.data))+1)) / unit * unit
	return d.image(names, func(f *modelFile) *content {
		out := f.durable.clone()
		for _, o := range f.unsynced {
			switch {
			case o.number < last.number:
				o.change(out)
			case o.number == last.number && o.kind == opWrite:
				if torn := o.torn(end); len(torn.data) > 0 {
					torn.change(out)
				}
			}
		}
		return out
	})
}

// sectors has each sector of each write with a probability, and the first ones of the names.
func (d *modelDisk) sectors(rng *rand.Rand, probability float64) directoryImage {
	names := maps.Clone(d.durableNames)
	for _, o := range d.unsynced[:rng.IntN(len(d.unsynced)+1)] {
		o.name(names)
	}
	return d.image(names, func(f *modelFile) *content {
		out := f.durable.clone()
		for _, o := range f.unsynced {
			if (o.kind == opTruncate || o.kind == opAllocate) && rng.Float64() < probability {
				o.change(out)
			}
			for at, end := o.at, o.at+int64(len(o.data)); at < end; {
				next := min((at/sectorBytes+1)*sectorBytes, end)
				if rng.Float64() < probability {
					out.write(at, o.data[at-o.at:next-o.at])
				}
				at = next
			}
		}
		return out
	})
}

// directoryImage is the content of files by path; nil is a directory.
type directoryImage map[string]*content

func (d *modelDisk) image(names map[string]int, of func(*modelFile) *content) directoryImage {
	out := directoryImage{}
	for _, path := range slices.Sorted(maps.Keys(names)) { // in an order, for the seed
		if file := names[path]; file == directory {
			out[path] = nil
		} else {
			out[path] = of(d.files[file])
		}
	}
	return out
}

func (m directoryImage) sum() uint64 {
	h := xxhash.New()
	for _, path := range slices.Sorted(maps.Keys(m)) {
		_, _ = h.WriteString(path)
		if c := m[path]; c != nil {
			_, _ = fmt.Fprintf(h, " %d ", c.size)
			_, _ = h.Write(bytes.TrimRight(c.b, "\x00"))
		}
	}
	return h.Sum64()
}

// put writes the image to a directory, in place of what is there.
func (m directoryImage) put(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	for _, path := range slices.Sorted(maps.Keys(m)) {
		name := filepath.Join(dir, path)
		c := m[path]
		if c == nil {
			if err := os.MkdirAll(name, 0o700); err != nil {
				return err
			}
			continue
		}
		err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, c.b, 0o600), os.Truncate(name, c.size))
		if err != nil {
			return err
		}
	}
	return os.MkdirAll(dir, 0o700)
}
