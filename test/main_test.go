package test

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if what := os.Getenv(silentVariable); what != "" {
		os.Exit(beSilent(what))
	}
	os.Exit(Main(m))
}
