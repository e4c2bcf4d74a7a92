package disk

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/wal"
)

// metaPreamble begins snapshot.meta. Its first byte is the format's version.
const metaPreamble = "\x01QUOMETA"

// maxMeta bounds snapshot.meta.
const maxMeta = 1 << 20

// meta is what a snapshot adds to its data.
type meta struct {
	Index, Term uint64
	// DataIndex is the applied index that the data had at least. It is below
	// Index if the last entries carried no command.
	DataIndex uint64
	// Received is the newest applied index that came with a snapshot of another node, or a backup, and not through
	// the log: see LogLost. Nil: the process that wrote this did not say; then it may be DataIndex.
	Received           *uint64 `json:",omitempty"`
	ConfigurationIndex uint64
	Servers            []server
}

func (m *meta) received() uint64 {
	switch {
	case m == nil:
		return 0
	case m.Received == nil:
		return m.DataIndex
	}
	return *m.Received
}

type server struct{ Suffrage, ID, Address string }

func newMeta(index, term uint64, c raft.Configuration, configurationIndex uint64) *meta {
	m := &meta{Index: index, Term: term, ConfigurationIndex: configurationIndex}
	for _, s := range c.Servers {
		m.Servers = append(m.Servers, server{s.Suffrage.String(), string(s.ID), string(s.Address)})
	}
	return m
}

func (m *meta) id() string { return fmt.Sprintf("%d-%d", m.Term, m.Index) }

// raft returns the library's form, without the size.
func (m *meta) raft() *raft.SnapshotMeta {
	out := &raft.SnapshotMeta{
		Version: 1, ID: m.id(), Index: m.Index, Term: m.Term, ConfigurationIndex: m.ConfigurationIndex,
	}
	for _, s := range m.Servers {
		out.Configuration.Servers = append(out.Configuration.Servers, raft.Server{
			Suffrage: suffrages[s.Suffrage], ID: raft.ServerID(s.ID), Address: raft.ServerAddress(s.Address),
		})
	}
	return out
}

var suffrages = map[string]raft.ServerSuffrage{
	raft.Voter.String():    raft.Voter,
	raft.Nonvoter.String(): raft.Nonvoter,
	raft.Staging.String():  raft.Staging,
}

func (m *meta) encode() ([]byte, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	b := append([]byte(metaPreamble), 0, 0, 0, 0)
	binary.BigEndian.PutUint32(b[len(metaPreamble):], uint32(len(body)))
	return seal(append(b, body...)), nil
}

// write makes it the meta of a directory in which no node runs.
func (m *meta) write(dir string) error {
	b, err := m.encode()
	if err != nil {
		return err
	}
	return writeFile(dir, metaFile, b)
}

// metaFiles are snapshot.meta and its spare. On a full disk a new file cannot be made, and without a newer snapshot
// the log cannot be cut, which would make room. So a snapshot is written to a second file, which has its room already,
// and the two change names.
type metaFiles struct {
	dir string
	// unsure: the names were exchanged, and the exchange may not be on the disk. Then the next start may find the
	// spare as snapshot.meta, so it must not be written to.
	unsure bool
}

// spareBytes is the size of a spare, one block.
const spareBytes = 4096

// prepare makes the spare, and what becomes the first snapshot.meta, if they are not there. Without room they will be later.
func (f *metaFiles) prepare() error {
	there, err := exists(f.dir, metaFile)
	if err == nil && !there {
		err = f.prepareFile(firstFile)
	}
	return errors.Join(err, f.prepareFile(spareFile))
}

func (f *metaFiles) prepareFile(name string) error {
	there, err := exists(f.dir, name)
	if err != nil || there {
		return err
	}
	path := filepath.Join(f.dir, name)
	spare, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, fileMode)
	if err == nil {
		_, err = spare.Write(make([]byte, spareBytes))
		err = errors.Join(err, spare.Sync(), spare.Close())
	}
	if err == nil {
		return nil
	}
	err = errors.Join(err, remove(f.dir, name))
	if wal.NoRoom(err) {
		return nil
	}
	return fmt.Errorf("prepare %s: %w", name, err)
}

// write makes m the directory's meta.
func (f *metaFiles) write(m *meta) error {
	content, err := m.encode()
	if err != nil {
		return err
	}
	second, err := exists(f.dir, metaFile)
	if err != nil {
		return err
	}
	spare := spareFile
	if !second {
		spare = firstFile
	}
	there, err := exists(f.dir, spare)
	if err != nil {
		return err
	}
	if there && !f.unsure && len(content) <= spareBytes {
		if err = f.swap(spare, content, second); !errors.Is(err, errUnsupported) {
			return err
		}
	}
	if err := writeFile(f.dir, metaFile, content); err != nil {
		return err
	}
	_ = f.prepare() // the next write tries again
	return nil
}

// swap writes a spare and gives it snapshot.meta's name. second says whether there is one, which becomes the spare.
func (f *metaFiles) swap(spare string, content []byte, second bool) (err error) {
	if err := f.fill(spare, content); err != nil {
		return fmt.Errorf("write %s: %w", spare, err)
	}
	failpoint("synced." + spareFile)
	f.unsure = true
	if second {
		err = exchange(f.dir, spare, metaFile)
	} else {
		err = os.Rename(filepath.Join(f.dir, spare), filepath.Join(f.dir, metaFile))
	}
	if err != nil {
		f.unsure = !errors.Is(err, errUnsupported)
		return err
	}
	failpoint("exchanged." + metaFile)
	if err := syncDir(f.dir); err != nil {
		return err
	}
	f.unsure = false
	_ = f.prepare() // the next write tries again
	return nil
}

// fill writes a spare in place, in the block that it has.
func (f *metaFiles) fill(name string, content []byte) error {
	spare, err := os.OpenFile(filepath.Join(f.dir, name), os.O_WRONLY, fileMode)
	if err != nil {
		return err
	}
	_, err = spare.Write(content)
	if err == nil {
		err = spare.Truncate(int64(len(content)))
	}
	if err == nil {
		failpoint("write." + spareFile)
		err = spare.Sync()
	}
	return errors.Join(err, spare.Close())
}

// readMeta returns nil if there is no snapshot.
func readMeta(dir string) (*meta, error) {
	path := filepath.Join(dir, metaFile)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if info.Size() > maxMeta {
		return nil, fmt.Errorf("%s: %d bytes: %w", path, info.Size(), ErrDamaged)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	m, err := decodeMeta(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

func decodeMeta(b []byte) (*meta, error) {
	n := len(metaPreamble)
	if len(b) < n+4+sumSize {
		return nil, fmt.Errorf("%d bytes: %w", len(b), ErrDamaged)
	}
	payload, _, err := open(b)
	if err != nil {
		return nil, err
	}
	if string(payload[:n]) != metaPreamble {
		return nil, fmt.Errorf("preamble %x: %w", payload[:n], proto.ErrFormat)
	}
	body := payload[n+4:]
	if binary.BigEndian.Uint32(payload[n:]) != uint32(len(body)) {
		return nil, fmt.Errorf("length: %w", ErrDamaged)
	}
	m := &meta{}
	if err := json.Unmarshal(body, m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	for _, s := range m.Servers {
		if _, ok := suffrages[s.Suffrage]; !ok {
			return nil, fmt.Errorf("suffrage %q: %w", s.Suffrage, ErrDamaged)
		}
	}
	if m.Index == 0 || m.Term == 0 {
		return nil, fmt.Errorf("index %d, term %d: %w", m.Index, m.Term, ErrDamaged)
	}
	return m, nil
}
