package serviceaccount

import (
	"math/rand/v2"
	"slices"

	"github.com/quorate/quorate/apiserver/types/tree"
)

const (
	volumePrefix = "kube-api-access-"
	mountPath    = "/var/run/secrets/kubernetes.io/serviceaccount"
	// tokenSeconds is for how long kubelets ask for a token: this number tells the server
	// that the client may be one that never reads its token again.
	tokenSeconds = 60*60 + 7
	filesMode    = 0o644
)

// mountToken mounts the volume of the account's token in all containers of a Pod that mount
// nothing there. spec is the Pod's own; what is below it is replaced.
func mountToken(spec tree.Object) {
	name, has := "", false
	for _, v := range tree.List(spec["volumes"]) {
		if n := tree.Text(tree.As(v), "name"); isTokenVolume(n) {
			name, has = n, true
			break
		}
	}
	if !has {
		name = volumePrefix + suffix()
	}
	needed := false
	for _, field := range [...]string{"initContainers", "containers"} {
		if mounted := mountIn(tree.List(spec[field]), name); mounted != nil {
			spec[field], needed = mounted, true
		}
	}
	if needed && !has {
		spec["volumes"] = append(slices.Clone(tree.List(spec["volumes"])), tokenVolume(name))
	}
}

// mountIn returns containers that mount a volume, nil if all of them have something there.
func mountIn(containers []any, volume string) []any {
	var out []any
	for i, c := range containers {
		mounts := tree.List(tree.As(c)["volumeMounts"])
		if tree.As(c) == nil || slices.ContainsFunc(mounts, func(m any) bool { return tree.Text(tree.As(m), "mountPath") == mountPath }) {
			continue
		}
		if out == nil {
			out = slices.Clone(containers)
		}
		own := tree.Clone(c)
		own["volumeMounts"] = append(slices.Clone(mounts), tree.Object{"name": volume, "readOnly": true, "mountPath": mountPath})
		out[i] = own
	}
	return out
}

// tokenVolume has the three files by which a client in a Pod finds the API: a token that is
// bound to the Pod, the roots that vouch for the server, and the Pod's namespace.
func tokenVolume(name string) tree.Object {
	return tree.Object{"name": name, "projected": tree.Object{
		"defaultMode": int64(filesMode),
		"sources": []any{
			tree.Object{"serviceAccountToken": tree.Object{"path": "token", "expirationSeconds": int64(tokenSeconds)}},
			tree.Object{"configMap": tree.Object{"name": "kube-root-ca.crt", "items": []any{
				tree.Object{"key": "ca.crt", "path": "ca.crt"},
			}}},
			tree.Object{"downwardAPI": tree.Object{"items": []any{
				tree.Object{"path": "namespace", "fieldRef": tree.Object{"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
			}}},
		},
	}}
}

// alphabet is upstream's of generated names: no vowels, no digits that look like letters.
const alphabet = "bcdfghjklmnpqrstvwxz2456789"

func suffix() string {
	var tail [5]byte
	for i := range tail {
		tail[i] = alphabet[rand.IntN(len(alphabet))]
	}
	return string(tail[:])
}
