package sim

import (
	"encoding/json"
	"flag"
	"os"
	"testing"
	"time"
)

var summaryFile = flag.String("summary", "", "play the seeds of make chaos and write their counts into this file")

// TestCampaign is TestChaos as `make chaos` plays it: with counts that the table
// of the campaign takes up.
func TestCampaign(t *testing.T) {
	if *summaryFile == "" {
		t.Skip("make chaos plays it")
	}
	s := newSuite(t)
	s.run(*firstSeed, *seeds)
	t.Log(s.summary())
	text, err := json.MarshalIndent(map[string]any{
		"name": "virtual time", "runs": *seeds, "failed": len(s.failed), "counts": s.total.Counts,
		"more": s.ends, "took": time.Since(s.began),
	}, "", "  ")
	if err == nil {
		err = os.WriteFile(*summaryFile, text, 0o644)
	}
	if err != nil {
		t.Error(err)
	}
}
