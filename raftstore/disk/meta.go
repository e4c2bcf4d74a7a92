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
	DataIndex          uint64
	ConfigurationIndex uint64
	Servers            []server
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

func (m *meta) write(dir string) error {
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	b := append([]byte(metaPreamble), 0, 0, 0, 0)
	binary.BigEndian.PutUint32(b[len(metaPreamble):], uint32(len(body)))
	return writeFile(dir, metaFile, seal(append(b, body...)))
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
