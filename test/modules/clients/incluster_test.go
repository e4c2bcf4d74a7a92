package clients

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quorate/quorate/test/harness/cluster"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	// inPodVariable makes a process of this test the operator in a Pod; its value is the
	// directory that is mounted as the Pod's volume.
	inPodVariable = "QUORATE_TEST_IN_POD"
	mountedAt     = "/var/run/secrets/kubernetes.io/serviceaccount"
	operatorUser  = "mill-operator"
	// endsWithin is how long an operator may go on that is answered 401: it gives up when it could
	// not renew its lease for some seconds, and ends what it does.
	endsWithin = 45 * time.Second
)

// TestInCluster runs the operator as in a Pod, with what rest.InClusterConfig finds there: the
// admission says which files the Pod has, the test makes them as a kubelet does. When the Pod
// goes, the token ends on all nodes, and with it the operator; so does a token when its Secret
// goes, or its account.
func TestInCluster(t *testing.T) {
	o := startOperated(t)
	api := o.c.Nodes()[0].Typed(t)
	ctx := t.Context()
	grantOperator(t, api)
	pod := runPod(t, api, "operator")
	dir := mountVolume(t, o.c, api, pod)
	token := string(readFile(t, filepath.Join(dir, "token")))
	awaitToken(t, o.c, token, http.StatusOK)

	operator := runInPod(t, o.c.Nodes()[1], dir)
	noError(t, o.client.Create(ctx, &Mill{ObjectMeta: millMeta(0), Spec: MillSpec{Stones: 2}}))
	o.await(t, "the operator in the Pod reconciles", func(done, all int) bool {
		select {
		case <-operator.ended:
			t.Fatal("the operator has ended")
		default:
		}
		return done == 1 && all == 1
	})

	now := int64(0)
	noError(t, api.CoreV1().Pods(millNamespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
	awaitToken(t, o.c, token, http.StatusUnauthorized)

	// While the operator notices, the same of a Secret.
	secret, err := api.CoreV1().Secrets(millNamespace).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "bound"}}, metav1.CreateOptions{})
	noError(t, err)
	token = tokenFor(t, api, 3600, &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: secret.Name, UID: secret.UID})
	awaitToken(t, o.c, token, http.StatusOK)
	noError(t, api.CoreV1().Secrets(millNamespace).Delete(ctx, secret.Name, metav1.DeleteOptions{}))
	awaitToken(t, o.c, token, http.StatusUnauthorized)
	operator.awaitCutOff(t)

	// And of the account, while the Pod stays.
	other := runPod(t, api, "other")
	token = string(readFile(t, filepath.Join(mountVolume(t, o.c, api, other), "token")))
	awaitToken(t, o.c, token, http.StatusOK)
	noError(t, api.CoreV1().ServiceAccounts(millNamespace).Delete(ctx, operatorUser, metav1.DeleteOptions{}))
	awaitToken(t, o.c, token, http.StatusUnauthorized)
}

// grantOperator makes the operator's account, which may do everything.
func grantOperator(t *testing.T, api kubernetes.Interface) {
	t.Helper()
	_, err := api.CoreV1().ServiceAccounts(millNamespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: operatorUser}}, metav1.CreateOptions{})
	noError(t, err)
	_, err = api.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: operatorUser},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: millNamespace, Name: operatorUser}},
	}, metav1.CreateOptions{})
	noError(t, err)
}

// runPod makes a Pod of the operator's account.
func runPod(t *testing.T, api kubernetes.Interface, name string) *corev1.Pod {
	t.Helper()
	pod, err := api.CoreV1().Pods(millNamespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{ServiceAccountName: operatorUser, Containers: []corev1.Container{{Name: "operator", Image: "operator"}}},
	}, metav1.CreateOptions{})
	noError(t, err)
	return pod
}

// mountVolume makes the files that a Pod's container finds in its account's volume, as a
// kubelet does, and returns their directory.
func mountVolume(t *testing.T, c *cluster.Cluster, api kubernetes.Interface, pod *corev1.Pod) string {
	t.Helper()
	volume := ""
	for _, m := range pod.Spec.Containers[0].VolumeMounts {
		if m.MountPath == mountedAt {
			volume = m.Name
		}
	}
	dir, err := os.MkdirTemp(c.Dir, "pod-")
	noError(t, err)
	for _, v := range pod.Spec.Volumes {
		if v.Name != volume || v.Projected == nil {
			continue
		}
		for _, source := range v.Projected.Sources {
			project(t, api, pod, dir, source)
		}
		return dir
	}
	t.Fatalf("nothing is mounted at %s: %v", mountedAt, pod.Spec)
	return ""
}

func project(t *testing.T, api kubernetes.Interface, pod *corev1.Pod, dir string, source corev1.VolumeProjection) {
	t.Helper()
	write := func(path, text string) { noError(t, os.WriteFile(filepath.Join(dir, path), []byte(text), 0o600)) }
	switch {
	case source.ServiceAccountToken != nil:
		ref := &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
		write(source.ServiceAccountToken.Path, tokenFor(t, api, *source.ServiceAccountToken.ExpirationSeconds, ref))
	case source.ConfigMap != nil:
		var roots *corev1.ConfigMap
		cluster.Await(t, within, "the ConfigMap "+source.ConfigMap.Name, func() string {
			var err error
			if roots, err = api.CoreV1().ConfigMaps(pod.Namespace).Get(t.Context(), source.ConfigMap.Name, metav1.GetOptions{}); err != nil {
				return err.Error()
			}
			return ""
		})
		for _, item := range source.ConfigMap.Items {
			write(item.Path, roots.Data[item.Key])
		}
	case source.DownwardAPI != nil:
		for _, item := range source.DownwardAPI.Items {
			if item.FieldRef.FieldPath != "metadata.namespace" {
				t.Fatalf("the field %s is not one that a Pod's account needs", item.FieldRef.FieldPath)
			}
			write(item.Path, pod.Namespace)
		}
	default:
		t.Fatalf("a source that the test does not know: %v", source)
	}
}

func tokenFor(t *testing.T, api kubernetes.Interface, seconds int64, ref *authenticationv1.BoundObjectReference) string {
	t.Helper()
	r, err := api.CoreV1().ServiceAccounts(millNamespace).CreateToken(t.Context(), operatorUser, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds, BoundObjectRef: ref},
	}, metav1.CreateOptions{})
	noError(t, err)
	return r.Status.Token
}

// awaitToken awaits that all nodes answer a request with a token so.
func awaitToken(t *testing.T, c *cluster.Cluster, token string, status int) {
	t.Helper()
	for _, n := range c.Nodes() {
		config := rest.AnonymousClientConfig(n.Config())
		config.BearerToken, config.Timeout = token, within
		client, err := rest.HTTPClientFor(config)
		noError(t, err)
		cluster.Await(t, within, fmt.Sprintf("%s answers %d", n.Name, status), func() string {
			resp, err := client.Get(n.API + "/api/v1/namespaces/" + millNamespace)
			if err != nil {
				return err.Error()
			}
			if err := resp.Body.Close(); err != nil {
				return err.Error()
			}
			if resp.StatusCode != status {
				return resp.Status
			}
			return ""
		})
	}
}

// podProcess is the operator as the process of a Pod.
type podProcess struct {
	ended chan struct{}
	said  *strings.Builder // to be read once it has ended
}

// runInPod runs the operator with a file system of its own, in which a directory is mounted
// as in a Pod, and with a node as the Service kubernetes. It ends with the test, or by the
// reaper of the run, which finds the directory in its command line.
func runInPod(t *testing.T, n *cluster.Node, dir string) *podProcess {
	t.Helper()
	at, err := url.Parse(n.API)
	noError(t, err)
	self, err := os.Executable()
	noError(t, err)
	cmd := exec.Command(self, dir)
	cmd.Env = append(os.Environ(), inPodVariable+"="+dir, "KUBERNETES_SERVICE_HOST="+at.Hostname(), "KUBERNETES_SERVICE_PORT="+at.Port())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER, // users that are not root need the latter to mount
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	p := &podProcess{ended: make(chan struct{}), said: &strings.Builder{}}
	cmd.Stdout, cmd.Stderr = p.said, p.said
	noError(t, cmd.Start())
	go func() {
		defer close(p.ended)
		_ = cmd.Wait() // it always ends with an error; what it says tells which
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-p.ended
		if t.Failed() {
			t.Logf("the operator said:\n%s", p.said)
		}
	})
	return p
}

// awaitCutOff awaits that the operator ends because it could not renew its lease.
func (p *podProcess) awaitCutOff(t *testing.T) {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(endsWithin):
		t.Fatal("the operator goes on without its Pod")
	}
	if want := "leader election lost"; !strings.Contains(p.said.String(), want) {
		t.Errorf("the operator has ended, but not by %q", want)
	}
}

// beOperator is the operator's process. It ends when its manager does: a Pod would be
// started again.
func beOperator(dir string) error {
	runtimeFiles, err := filepath.EvalSymlinks("/var/run")
	if err != nil {
		return err
	}
	if err := syscall.Mount("tmpfs", runtimeFiles, "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mount %s: %w", runtimeFiles, err)
	}
	if err := os.MkdirAll(mountedAt, 0o700); err != nil {
		return err
	}
	if err := syscall.Mount(dir, mountedAt, "", syscall.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s: %w", mountedAt, err)
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	counts := &millCounts{active: map[string]int{}, reconcile: map[string]int{}, finalized: map[string]int{}, errors: map[string]int{}}
	return errors.Join(runManager(context.Background(), config, "in-pod", counts), errors.New("the manager has ended"))
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	noError(t, err)
	return b
}
