package clients

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// leaderElection lets three candidates, each with a node of its own, elect a leader;
// when the leader gives up, another one leads.
func leaderElection(t *testing.T, s *surroundings) {
	leads := make(chan string, 3)
	stops := map[string]context.CancelFunc{}
	var wg sync.WaitGroup
	for i, n := range s.c.Nodes() {
		name := fmt.Sprintf("candidate-%d", i)
		lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, s.ns, "lock", resourcelock.ResourceLockConfig{Identity: name}, n.Config(), 5*time.Second)
		noError(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: lock, LeaseDuration: 6 * time.Second, RenewDeadline: 4 * time.Second, RetryPeriod: 200 * time.Millisecond, ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { leads <- name },
				OnStoppedLeading: func() {},
			},
		})
		noError(t, err)
		stops[name] = cancel
		wg.Go(func() { elector.Run(ctx) })
	}
	defer func() {
		for _, stop := range stops {
			stop()
		}
		wg.Wait()
	}()
	for range s.c.Nodes() {
		select {
		case name := <-leads:
			lease, err := s.typed.CoordinationV1().Leases(s.ns).Get(t.Context(), "lock", metav1.GetOptions{})
			noError(t, err)
			if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != name {
				t.Errorf("%s leads, the lease says %v", name, lease.Spec.HolderIdentity)
			}
			stops[name]()
		case <-time.After(within):
			t.Fatal("nobody leads")
		}
	}
}
