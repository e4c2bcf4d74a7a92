package mvcc

import "github.com/quorate/quorate/proto"

// newestVersion is the mark of the bug that is planted as planted.MarkBehind.
func (s *State) newestVersion() (newest proto.Revision) {
	for _, t := range s.Tables() {
		newest = max(newest, t.Latest())
	}
	return newest
}
