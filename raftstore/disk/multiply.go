package disk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/quorate/quorate/proto"
	pb "google.golang.org/protobuf/proto"
)

// Copies are versions that Multiply adds to a backup.
type Copies struct {
	// Table and Key name the live version that is copied.
	Table, Key string
	// N is how many there are to be.
	N int
	// Texts are replaced in the key, the value, the uid, and the values of labels and fields of
	// copy i, each by a text of the same length that With returns; the uid must be among them.
	Texts []string
	With  func(i int, text string) string
	// Fields are other values of fields, by their names. The template must have them.
	Fields map[string]func(i int) string
}

// Multiply writes a backup that has what the backup r has, and copies of some of its
// versions besides, each with a revision of its own. It is for those who measure clusters
// with more objects than they can create in the time that they have. The copies are as if
// they had been created by the same requests under other names.
func Multiply(w io.Writer, r io.Reader, copies ...Copies) error {
	if err := multiply(w, r, copies); err != nil {
		return fmt.Errorf("multiply backup: %w", err)
	}
	return nil
}

func multiply(w io.Writer, r io.Reader, copies []Copies) error {
	p, state, err := loadBackup(r)
	if err != nil {
		return err
	}
	header := p.state
	live, err := liveVersions(state)
	if err != nil {
		return err
	}
	// Only what is live, as a restore takes it over: then what is written has no history.
	header.Floor = header.Applied
	first := header.Applied
	header.Versions = uint64(len(live))
	for _, c := range copies {
		header.Versions += uint64(c.N)
		header.Applied += uint64(c.N)
	}
	header.Floor = header.Applied
	f := frames{}
	buf := f.preamble(nil)
	put := func(kind proto.Kind, m proto.Message) error {
		b, err := proto.Encode(kind, m)
		if err != nil {
			return err
		}
		buf = f.frame(buf, b, checksum(b))
		if len(buf) < streamChunk {
			return nil
		}
		_, err = w.Write(buf)
		buf = buf[:0]
		return err
	}
	if err := put(proto.KindStateRecord, header); err != nil {
		return err
	}
	for _, a := range live {
		if err := put(proto.KindVersionRecord, a.Version.Record(a.Table)); err != nil {
			return err
		}
		f.count++
	}
	for _, c := range copies {
		at := slices.IndexFunc(live, func(a Added) bool { return a.Table == c.Table && a.Version.Key == c.Key })
		if at < 0 {
			return fmt.Errorf("%s %s is not in it", c.Table, c.Key)
		}
		of := live[at].Version.Record(c.Table)
		for i := range c.N {
			first++
			made, err := c.record(of, i, first)
			if err == nil {
				err = put(proto.KindVersionRecord, made)
			}
			if err != nil {
				return err
			}
			f.count++
		}
	}
	_, err = w.Write(f.trailer(buf))
	return err
}

// record is copy i.
func (c *Copies) record(of *proto.VersionRecord, i int, revision uint64) (*proto.VersionRecord, error) {
	made := pb.Clone(of).(*proto.VersionRecord)
	made.RequestId = nil
	for _, text := range c.Texts {
		with := c.With(i, text)
		if len(with) != len(text) {
			return nil, errors.New("a text is replaced by one of another length")
		}
		replace := func(in string) string { return string(bytes.ReplaceAll([]byte(in), []byte(text), []byte(with))) }
		made.Key, made.Uid = replace(made.Key), replace(made.Uid)
		made.Value = bytes.ReplaceAll(made.Value, []byte(text), []byte(with))
		for _, a := range slices.Concat(made.Labels, made.Fields) {
			a.Value = replace(a.Value)
		}
	}
	for field, with := range c.Fields {
		at := slices.IndexFunc(made.Fields, func(a *proto.Attribute) bool { return a.Name == field })
		if at < 0 {
			return nil, fmt.Errorf("%s %s has no field %q", c.Table, c.Key, field)
		}
		made.Fields[at].Value = with(i)
	}
	// The value has its revision in it, in decimal digits.
	if at := int(made.RevisionOffset); at > 0 {
		old := strconv.FormatUint(of.Revision, 10)
		made.Value = slices.Replace(made.Value, at, at+len(old), []byte(strconv.FormatUint(revision, 10))...)
	}
	made.Revision, made.CreateRevision = revision, revision
	return made, nil
}
