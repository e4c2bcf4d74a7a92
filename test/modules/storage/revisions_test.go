package storage

import (
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
)

// Upstream's suites of storage begin with an empty etcd: some write down the revision of
// each write. Here a cluster has elected a leader and run other functions before, and a
// function begins at any revision. The adapter takes its base from every revision that it
// tells, and adds it to every one that it is asked for. With base 0 they are the store's.

// ask is the resourceVersion to ask the server for. What is no revision is upstream's
// error, which storage gives before anything is read.
func (a *adapter) ask(resourceVersion string) (string, error) {
	rev, err := a.Versioner().ParseResourceVersion(resourceVersion)
	if err != nil || rev == 0 || a.base == 0 {
		return resourceVersion, err
	}
	return strconv.FormatUint(rev+a.base, 10), nil
}

// told is the resourceVersion that the suite is told.
func (a *adapter) told(resourceVersion string) (string, error) {
	rev, err := a.Versioner().ParseResourceVersion(resourceVersion)
	if err != nil || rev == 0 || a.base == 0 {
		return resourceVersion, err
	}
	return strconv.FormatUint(rev-a.base, 10), nil
}

// tell replaces the resourceVersion of an object.
func (a *adapter) tell(obj runtime.Object) error {
	m, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	rev, err := a.told(m.GetResourceVersion())
	if err == nil {
		m.SetResourceVersion(rev)
	}
	return err
}

// notFound is upstream's error; at is the revision of the state in which nothing was
// found, or 0 if nobody knows it.
func (a *adapter) notFound(key string, at uint64) error {
	return storage.NewKeyNotFoundError(key, int64(max(at, a.base)-a.base))
}
