package serviceaccount

import (
	"fmt"
	"slices"

	"github.com/quorate/quorate/apiserver/types/tree"
)

// checkSecrets refuses secrets that the account does not list.
func (s *account) checkSecrets(spec tree.Object) error {
	for _, v := range tree.List(spec["volumes"]) {
		source := tree.As(tree.As(v)["secret"])
		if name := tree.Text(source, "secretName"); source != nil && !s.mounts(name) {
			return fmt.Errorf("volume with secret.secretName=\"%s\" is not allowed because service account %s does not reference that secret", name, s.Metadata.Name)
		}
	}
	if err := s.checkContainers(spec, "initContainers", "init container"); err != nil {
		return err
	}
	if err := s.checkContainers(spec, "containers", "container"); err != nil {
		return err
	}
	for i, ref := range tree.List(spec["imagePullSecrets"]) {
		if name := tree.Text(tree.As(ref), "name"); !slices.Contains(s.ImagePullSecrets, reference{name}) {
			return fmt.Errorf(`imagePullSecrets[%d].name="%s" is not allowed because service account %s does not reference that imagePullSecret`, i, name, s.Metadata.Name)
		}
	}
	return nil
}

func (s *account) mounts(secret string) bool { return slices.Contains(s.Secrets, reference{secret}) }

// checkContainers refuses secrets in the environment of containers. what is what errors call
// a container.
func (s *account) checkContainers(spec tree.Object, field, what string) error {
	for _, c := range tree.List(spec[field]) {
		name := tree.Text(tree.As(c), "name")
		for _, env := range tree.List(tree.As(c)["env"]) {
			ref := tree.As(tree.Field(env, "valueFrom", "secretKeyRef"))
			if secret := tree.Text(ref, "name"); ref != nil && !s.mounts(secret) {
				return fmt.Errorf("%s %s with envVar %s referencing secret.secretName=\"%s\" is not allowed because service account %s does not reference that secret",
					what, name, tree.Text(tree.As(env), "name"), secret, s.Metadata.Name)
			}
		}
		for _, from := range tree.List(tree.As(c)["envFrom"]) {
			ref := tree.As(tree.Field(from, "secretRef"))
			if secret := tree.Text(ref, "name"); ref != nil && !s.mounts(secret) {
				return fmt.Errorf("%s %s with envFrom referencing secret.secretName=\"%s\" is not allowed because service account %s does not reference that secret",
					what, name, secret, s.Metadata.Name)
			}
		}
	}
	return nil
}

// volumeSecrets are where volumes name secrets: the source, and the way to the name in it. A
// volume has one source, and the first that is there counts.
var volumeSecrets = [...]struct {
	source string
	path   []string
}{
	{"azureFile", []string{"secretName"}},
	{"cephfs", []string{"secretRef", "name"}},
	{"cinder", []string{"secretRef", "name"}},
	{"flexVolume", []string{"secretRef", "name"}},
	{"rbd", []string{"secretRef", "name"}},
	{"secret", []string{"secretName"}},
	{"scaleIO", []string{"secretRef", "name"}},
	{"iscsi", []string{"secretRef", "name"}},
	{"storageos", []string{"secretRef", "name"}},
	{"csi", []string{"nodePublishSecretRef", "name"}},
}

// hasSecrets reports whether a Pod names a secret anywhere.
func hasSecrets(spec tree.Object) bool {
	named := func(v any, path ...string) bool { name, _ := tree.Field(v, path...).(string); return name != "" }
	for _, ref := range tree.List(spec["imagePullSecrets"]) {
		if named(ref, "name") {
			return true
		}
	}
	for _, field := range [...]string{"initContainers", "containers", "ephemeralContainers"} {
		for _, c := range tree.List(spec[field]) {
			for _, from := range tree.List(tree.As(c)["envFrom"]) {
				if named(from, "secretRef", "name") {
					return true
				}
			}
			for _, env := range tree.List(tree.As(c)["env"]) {
				if named(env, "valueFrom", "secretKeyRef", "name") {
					return true
				}
			}
		}
	}
	for _, v := range tree.List(spec["volumes"]) {
		for _, s := range volumeSecrets {
			if named(tree.As(v)[s.source], s.path...) {
				return true
			}
		}
		for _, source := range tree.List(tree.Field(v, "projected", "sources")) {
			if named(source, "secret", "name") {
				return true
			}
		}
	}
	return false
}
