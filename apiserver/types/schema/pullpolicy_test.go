package schema

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// TestPlainTag: of random names, those that are taken without the library are what they are to the
// library; and the names that people give to images are taken.
func TestPlainTag(t *testing.T) {
	pieces := []string{"a", "b1", "0", "f", "A", "docker.io", "localhost", "latest", "0123456789abcdef", ".", "-", "_", "/", ":", "@", "5000", "é", " ", strings.Repeat("a", 60)}
	g, plain := rand.New(rand.NewPCG(1, 1)), 0
	for range 100_000 {
		image := ""
		for range 1 + g.IntN(7) {
			image += pieces[g.IntN(len(pieces))]
		}
		if _, ok := plainTag(image); !ok {
			continue
		}
		plain++
		if got, want := pullPolicy(image), pullPolicyOfReference(image); got != want {
			t.Fatalf("%q: %s, by the library %s", image, got, want)
		}
	}
	if plain < 1000 {
		t.Errorf("%d names were taken", plain)
	}
	for _, image := range []string{"nginx", "nginx:1.27", "quay.io/a/b-c:v1.2.3_x", "registry.k8s.io/pause:3.10", "ghcr.io/a/b:latest"} {
		if _, ok := plainTag(image); !ok {
			t.Errorf("%s is left to the library", image)
		}
	}
}
