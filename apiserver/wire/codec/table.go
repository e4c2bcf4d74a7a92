package codec

import (
	"strconv"
	"time"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/printers"
	"github.com/quorate/quorate/apiserver/wire/status"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// table appends the parts of one Table.
type table struct {
	columns []kinds.Column
	rows    rowPrinter
	now     time.Time
	res     *kinds.Resource
}

// rowPrinter makes the cells of one object. *printers.Printer is one.
type rowPrinter interface {
	Row(obj map[string]any) ([]any, error)
}

func newTable(res *kinds.Resource) (*table, error) {
	p, err := printers.Of(res)
	if err != nil {
		return nil, err
	}
	return &table{columns: p.Columns(), rows: p, now: time.Now(), res: res}, nil
}

// head appends a Table up to its rows. Without columns, clients go on with those
// of an earlier Table of the same watch.
func (t *table) head(b []byte, version string, m ListMeta, columns bool) []byte {
	b = appendType(b, "Table", metav1.GroupName, version)
	b = append(b, `"metadata":`...)
	b = m.append(b)
	b = append(b, `,"columnDefinitions":`...)
	if !columns {
		return append(b, `null,"rows":[`...)
	}
	b = append(b, '[')
	for i, c := range t.columns {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"name":`...)
		b = appendString(b, c.Name)
		b = append(b, `,"type":`...)
		b = appendString(b, c.Type)
		b = append(b, `,"format":`...)
		b = appendString(b, c.Format)
		b = append(b, `,"description":`...)
		b = appendString(b, c.Description)
		b = append(b, `,"priority":`...)
		b = strconv.AppendInt(b, int64(c.Priority), 10)
		b = append(b, '}')
	}
	return append(b, `],"rows":[`...)
}

const tableEnd = "]}"

// maxWholeTable bounds a table that is there as a whole before any of it is sent, in bytes.
const maxWholeTable = 16 << 20

// The parts of a row.
const (
	rowCells  = `{"cells":`
	rowObject = `,"object":`
	rowEnd    = '}'
)

// versionRow appends the row of a version.
func (t *table) versionRow(b []byte, f Format, res *kinds.Resource, v *mvcc.Version, rev proto.Revision) ([]byte, error) {
	row, err := t.versionCells(res, v, rev)
	if err != nil {
		return b, err
	}
	b = append(b, rowCells...)
	b = row.append(b, t.now)
	b = append(b, rowObject...)
	switch f.IncludeObject {
	case metav1.IncludeNone:
		b = append(b, "null"...)
	case metav1.IncludeObject:
		b, err = appendObject(b, res, v, rev)
	default:
		b, err = appendPartial(b, f.AsVersion, res, v, rev)
	}
	return append(b, rowEnd), err
}

// treeRow appends the row of an object that is not stored.
func (t *table) treeRow(b []byte, f Format, obj map[string]any, policy metav1.IncludeObjectPolicy) ([]byte, error) {
	row, err := t.cellsOf(obj)
	if err != nil {
		return b, err
	}
	b = append(b, rowCells...)
	b = row.append(b, t.now)
	b = append(b, rowObject...)
	switch policy {
	case metav1.IncludeNone:
		b = append(b, "null"...)
	case metav1.IncludeObject:
		b, err = appendTree(b, Format{}, obj)
	default:
		b, err = appendTree(b, Format{As: AsMetadata, AsVersion: f.AsVersion}, obj)
	}
	return append(b, rowEnd), err
}

// table writes a Table of versions, row by row.
func (o *output) table(m ListMeta, items []*mvcc.Version) error {
	t, err := newTable(o.res)
	if err != nil {
		return err
	}
	o.buf = t.head(o.buf, o.f.AsVersion, m, true)
	for i, v := range items {
		if i > 0 {
			o.buf = append(o.buf, ',')
		}
		if o.buf, err = t.versionRow(o.buf, o.f, o.res, v, v.Revision); err != nil {
			return err
		}
		switch {
		case o.f.MediaType == JSON && !o.f.Pretty:
			if err := o.spill(); err != nil {
				return err
			}
		case len(o.buf) > maxWholeTable:
			return status.BadRequest("the table has more than %d MiB, which is too much for YAML and for indented JSON: use limit, or ask for plain JSON", maxWholeTable>>20)
		}
	}
	o.buf = append(o.buf, tableEnd...)
	o.buf = append(o.buf, '\n')
	return nil
}

// treeTable writes a Table of an object that is not stored.
func (o *output) treeTable(obj map[string]any) error {
	t, err := newTable(o.res)
	if err != nil {
		return err
	}
	m := ListMeta{Remaining: -1}
	if meta, ok := obj["metadata"].(map[string]any); ok {
		if s, ok := meta["resourceVersion"].(string); ok {
			if n, err := strconv.ParseUint(s, 10, 64); err == nil {
				m.Revision = proto.Revision(n)
			}
		}
	}
	o.buf = t.head(o.buf, o.f.AsVersion, m, true)
	if o.buf, err = t.treeRow(o.buf, o.f, obj, o.f.IncludeObject); err != nil {
		return err
	}
	o.buf = append(o.buf, tableEnd...)
	o.buf = append(o.buf, '\n')
	return nil
}
