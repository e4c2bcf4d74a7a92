package disk

import (
	"bytes"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
)

// TestFragments: of each length, a record comes back from its fragments, and they go together.
func TestFragments(t *testing.T) {
	db := mustOpen(t, t.TempDir(), Options{FlushEvery: time.Hour})
	most := fragmentBytes(db.file.bolt.Info().PageSize)
	for _, n := range []int{0, 1, most - sumSize - 1, most - sumSize, most - sumSize + 1, most - 1, most, most + 1, 2*most - sumSize, 2*most - 1, 100 * most, 1 << 20} {
		payload := bytes.Repeat([]byte{7}, n)
		must.OK(t, db.file.bolt.Update(func(tx *bbolt.Tx) error {
			versions := tx.Bucket(versionsBucket)
			versions.FillPercent = 1
			tot := totals{}
			for r := range proto.Revision(3) {
				must.OK(t, put(versions, r+1, seal(bytes.Clone(payload)), &tot))
			}
			for from, r := readRecords(tx), proto.Revision(1); ; r++ {
				got, value, sum, err := from.next()
				must.OK(t, err)
				if value == nil && r == 4 {
					break
				}
				if got != r || !bytes.Equal(value, payload) || sum != checksum(payload) {
					t.Fatalf("%d bytes: record %d is %d, with %d bytes", n, r, got, len(value))
				}
			}
			for r := range proto.Revision(3) {
				must.OK(t, drop(versions, r+1, &tot))
			}
			if k, _ := versions.Cursor().First(); k != nil || tot != (totals{}) {
				t.Errorf("%d bytes: %x is left, totals %+v", n, k, tot)
			}
			if err := drop(versions, 1, &tot); !errors.Is(err, ErrDamaged) {
				t.Errorf("%d bytes, dropped twice: %v", n, err)
			}
			return nil
		}))
	}
}

// TestDamagedFragments: a fragment that is missing, is there twice or belongs to no record is damage.
func TestDamagedFragments(t *testing.T) {
	for name, change := range map[string]func(versions *bbolt.Bucket, key func(r, i int) []byte) error{
		"the first is missing":       func(v *bbolt.Bucket, key func(r, i int) []byte) error { return v.Delete(key(2, 0)) },
		"the second is missing":      func(v *bbolt.Bucket, key func(r, i int) []byte) error { return v.Delete(key(2, 1)) },
		"the last is missing":        func(v *bbolt.Bucket, key func(r, i int) []byte) error { return v.Delete(key(2, 2)) },
		"the last of all is missing": func(v *bbolt.Bucket, key func(r, i int) []byte) error { return v.Delete(key(3, 2)) },
		"one more":                   func(v *bbolt.Bucket, key func(r, i int) []byte) error { return v.Put(key(2, 3), []byte("x")) },
		"a long key": func(v *bbolt.Bucket, key func(r, i int) []byte) error {
			return v.Put(append(key(2, 2), 1), []byte("x"))
		},
		"a short key": func(v *bbolt.Bucket, _ func(r, i int) []byte) error { return v.Put([]byte{0}, []byte("x")) },
		"two in each other's place": func(v *bbolt.Bucket, key func(r, i int) []byte) error {
			a, b := bytes.Clone(v.Get(key(2, 0))), bytes.Clone(v.Get(key(2, 1)))
			a[0]++
			return errors.Join(v.Put(key(2, 0), b), v.Put(key(2, 1), a))
		},
	} {
		t.Run(name, func(t *testing.T) {
			db := mustOpen(t, t.TempDir(), Options{FlushEvery: time.Hour})
			most := fragmentBytes(db.file.bolt.Info().PageSize)
			key := func(r, i int) []byte {
				var keys [][]byte
				for k := range fragments(proto.Revision(r), maxRecord, most) {
					if keys = append(keys, bytes.Clone(k)); len(keys) > i {
						break
					}
				}
				return keys[i]
			}
			must.OK(t, db.file.bolt.Update(func(tx *bbolt.Tx) error {
				versions, tot := tx.Bucket(versionsBucket), totals{}
				for r := range proto.Revision(3) {
					must.OK(t, put(versions, r+1, seal(make([]byte, 3*most-50)), &tot))
				}
				return change(versions, key)
			}))
			err := db.file.bolt.View(func(tx *bbolt.Tx) error {
				for from := readRecords(tx); ; {
					if _, payload, _, err := from.next(); err != nil || payload == nil {
						return err
					}
				}
			})
			if !errors.Is(err, ErrDamaged) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestFormatOne: a file with whole records, as earlier releases wrote it, is read and sent, and becomes one with fragments as it is written.
func TestFormatOne(t *testing.T) {
	dir := stateDir(t, 450)
	path := filepath.Join(dir, stateFile)
	bolt, err := bbolt.Open(path, fileMode, stateOptions())
	must.OK(t, err)
	whole := 0
	must.OK(t, bolt.Update(func(tx *bbolt.Tx) error {
		values := map[proto.Revision][]byte{}
		for from := readRecords(tx); ; {
			r, payload, _, err := from.next()
			must.OK(t, err)
			if payload == nil {
				break
			}
			values[r] = seal(bytes.Clone(payload))
		}
		must.OK(t, tx.DeleteBucket(versionsBucket))
		versions, err := tx.CreateBucket(versionsBucket)
		must.OK(t, err)
		for r, v := range values {
			must.OK(t, versions.Put(revisionKey(r), v))
			if len(v) > fragmentBytes(bolt.Info().PageSize) {
				whole++
			}
		}
		return tx.Bucket(metaBucket).Put(formatKey, seal(bytes.Clone(formatOne)))
	}))
	must.OK(t, bolt.Close())
	if whole == 0 {
		t.Fatal("no record is long")
	}
	format := func(db *DB) (f []byte) {
		must.OK(t, db.file.bolt.View(func(tx *bbolt.Tx) error {
			f = bytes.Clone(tx.Bucket(metaBucket).Get(formatKey)[:1])
			return nil
		}))
		return f
	}
	db := mustOpen(t, dir, Options{FlushEvery: time.Hour})
	if f := format(db); !bytes.Equal(f, formatOne) {
		t.Errorf("format %x", f)
	}
	s := mustLoad(t, db)
	var stream bytes.Buffer
	_, err = db.WriteBackup(&stream, nil)
	must.OK(t, err)
	if !bytes.Equal(stream.Bytes(), backup(t, 450)) {
		t.Error("another stream than that of a file with fragments")
	}
	m := &model{state: s, next: uint64(s.Applied()) + 1}
	for range 10 {
		db.Record(m.apply(30))
		must.OK(t, db.Sync())
	}
	if f := format(db); !bytes.Equal(f, formatTwo) {
		t.Errorf("format %x", f)
	}
	must.OK(t, db.Close())
	db = mustOpen(t, dir, Options{FlushEvery: time.Hour})
	if s := mustLoad(t, db); s.Applied() != 750 {
		t.Errorf("state at %d", s.Applied())
	}
	must.OK(t, db.Shrink())
	must.OK(t, db.file.bolt.View(checkTree))
	if names := fileNames(t, dir); !slices.Equal(names, []string{stateFile}) {
		t.Errorf("%v are left", names)
	}
}
