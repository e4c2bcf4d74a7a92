package decoded

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/quorate/quorate/internal/must"
	admissionv1 "k8s.io/api/admission/v1"
	v2 "k8s.io/api/apidiscovery/v2"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// many is a JSON text with an array of so many elements in the place of *.
func many(around, element string, n int) []byte {
	return []byte(strings.Replace(around, "*", "["+strings.TrimSuffix(strings.Repeat(element+",", n), ",")+"]", 1))
}

// TestCost: what is counted is not much less than what decoding takes, and not many times as much.
func TestCost(t *testing.T) {
	const n = 200_000
	for _, x := range []struct {
		name string
		text []byte
		into func() any
	}{
		{"managed fields", many(`{"items":[{"metadata":{"managedFields":*}}]}`, "{}", n), func() any { return new(v2.APIGroupDiscoveryList) }},
		{"groups", many(`{"items":*}`, "{}", n), func() any { return new(v2.APIGroupDiscoveryList) }},
		{"resources", many(`{"resources":*}`, "{}", n), func() any { return new(metav1.APIResourceList) }},
		{"verbs", many(`{"resources":[{"verbs":*}]}`, `""`, n), func() any { return new(metav1.APIResourceList) }},
		{"causes", many(`{"response":{"status":{"details":{"causes":*}}}}`, "{}", n), func() any { return new(admissionv1.AdmissionReview) }},
		{"warnings", many(`{"response":{"warnings":*}}`, `""`, n), func() any { return new(admissionv1.AdmissionReview) }},
		{"converted objects", many(`{"response":{"convertedObjects":*}}`, "1", n), func() any { return new(apiextensionsv1.ConversionReview) }},
		{"any values", many(`{"a":*}`, `{"b":1}`, n), func() any { return new(map[string]any) }},
		{"numbers", many(`{"a":*}`, `1`, n), func() any { return new(map[string]any) }},
	} {
		before := allocated()
		into := x.into()
		must.OK(t, json.Unmarshal(x.text, into))
		taken, cost := int64(allocated()-before), Cost(x.text)
		if taken > cost*3/2 || taken < cost/16 {
			t.Errorf("%s: %d KiB are taken, %d counted", x.name, taken>>10, cost>>10)
		}
		t.Logf("%s: %d KiB are taken, %d counted", x.name, taken>>10, cost>>10)
		runtime.KeepAlive(into)
	}
	text := `{"a\"{,:":"[{,"}`
	if got := Cost([]byte(text)); got != perByte*int64(len(text))+perObject+perMember {
		t.Errorf("within strings: %d", got)
	}
}

// allocated is all that was, freed or not: what a slice was before it grew is there beside it.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// TestRoom: answers wait for each other, and one that is larger than all room waits for all of it.
func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRoom(10)
		if _, err := r.Take(t.Context(), 5, 4); !errors.As(err, new(*TooLargeError)) {
			t.Errorf("more than it may: %v", err)
		}
		first, err := r.Take(t.Context(), 4, 10)
		must.OK(t, err)
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		got := make(chan error)
		go func() {
			_, err := r.Take(ctx, 100, 100)
			got <- err
		}()
		synctest.Wait()
		cancel(gone)
		if err := <-got; !errors.Is(err, gone) {
			t.Errorf("who has gone: %v", err)
		}
		took := make(chan func())
		go func() {
			give, err := r.Take(t.Context(), 100, 100)
			if err != nil {
				t.Error(err)
			}
			took <- give
		}()
		synctest.Wait()
		select {
		case <-took:
			t.Error("it has not waited")
		default:
		}
		first()
		(<-took)()
		if give, err := r.Take(t.Context(), 10, 10); err != nil {
			t.Error(err)
		} else {
			give()
		}
	})
}
