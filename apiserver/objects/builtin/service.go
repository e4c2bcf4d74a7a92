package builtin

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/objects/builtin/service"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/quota"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/apiserver/types/validation"
	"github.com/quorate/quorate/apiserver/wire/codec"
	"github.com/quorate/quorate/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// What Services claim: an address is an IPAddress object, as upstream has it, a
// node port a row of a table of ours. See objects/claims.go.
const NodePortsTable = "quorate/nodeports"

var (
	addressesGVR = schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "ipaddresses"}
	BlocksGVR    = schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "servicecidrs"}
)

const (
	familyLabel    = "ipaddress.kubernetes.io/ip-family"
	ManagedByLabel = "ipaddress.kubernetes.io/managed-by"
	ManagedByUs    = "ipallocator.k8s.io"
)

// serviceRanges are the addresses and node ports that the command line gives to Services.
type serviceRanges struct {
	blocks []netip.Prefix
	ports  service.PortRange
}

func serviceStrategy(cfg Config) *objects.Strategy {
	ranges := &serviceRanges{blocks: cfg.ServiceBlocks, ports: cfg.ServicePorts}
	return &objects.Strategy{Validation: validatedLater{}, Allocate: ranges.allocate, Held: heldByService, Usage: usageOf(quota.Services)}
}

func serviceSpec(obj tree.Object) (*corev1.ServiceSpec, error) {
	if obj == nil {
		return nil, nil
	}
	s := &corev1.ServiceSpec{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(tree.As(obj["spec"]), s); err != nil {
		return nil, fmt.Errorf("read the Service's spec: %w", err)
	}
	return s, nil
}

// allocate completes a Service: fields that depend on each other, addresses and node ports.
// Upstream allocates before it validates, because a valid Service has what it is given. So the
// Service is validated with what it would be given, and only a valid one claims anything.
func (r *serviceRanges) allocate(o *objects.Op, obj, old tree.Object) (field.ErrorList, error) {
	spec, err := serviceSpec(obj)
	if err != nil {
		return nil, err
	}
	was, err := serviceSpec(old)
	if err != nil {
		return nil, err
	}
	service.Normalize(spec, was)
	would, trial := spec.DeepCopy(), maps.Clone(obj)
	setServiceSpec(trial, would)
	undo := o.ShowEmpty(trial)
	errs := validation.ServiceAddresses(trial, old)
	if undo(); len(errs) > 0 {
		return errs, nil
	}
	p := &pool{o: o, ranges: r, name: tree.Text(tree.As(obj["metadata"]), "name"), dry: true}
	if errs, err = service.Allocate(would, was, p); len(errs) > 0 || err != nil {
		return errs, err
	}
	setServiceSpec(trial, would)
	told := o.Advice()
	if errs = validateService(o, trial, old, told); len(errs) > 0 {
		return errs, nil
	}
	if told != nil {
		o.Warn(*told)
	}
	if o.Options.IsDryRun() {
		obj["spec"] = trial["spec"]
		return nil, nil
	}
	p.dry, p.dryPorts = false, nil
	errs, err = service.Allocate(spec, was, p)
	if len(errs) == 0 && err == nil {
		setServiceSpec(obj, spec)
	}
	return errs, err
}

func validateService(o *objects.Op, obj, old tree.Object, warnings *[]string) field.ErrorList {
	defer o.ShowEmpty(obj)()
	rules := validation.Of("services")
	if old == nil {
		return rules.Create(obj, true, warnings)
	}
	return rules.Update(o.Info.Subresource, obj, old, true, warnings)
}

// setServiceSpec writes back what package service may have changed. Parts that
// other trees share are replaced.
func setServiceSpec(obj tree.Object, s *corev1.ServiceSpec) {
	spec := tree.Clone(obj["spec"])
	put := func(name string, set bool, v any) {
		if set {
			spec[name] = v
		} else {
			delete(spec, name)
		}
	}
	put("clusterIP", s.ClusterIP != "", s.ClusterIP)
	put("clusterIPs", len(s.ClusterIPs) > 0, tree.FromStrings(s.ClusterIPs))
	put("ipFamilies", len(s.IPFamilies) > 0, tree.FromStrings(s.IPFamilies))
	put("externalTrafficPolicy", s.ExternalTrafficPolicy != "", string(s.ExternalTrafficPolicy))
	put("healthCheckNodePort", s.HealthCheckNodePort != 0, int64(s.HealthCheckNodePort))
	if s.InternalTrafficPolicy == nil {
		delete(spec, "internalTrafficPolicy")
	}
	if s.IPFamilyPolicy != nil {
		spec["ipFamilyPolicy"] = string(*s.IPFamilyPolicy)
	} else {
		delete(spec, "ipFamilyPolicy")
	}
	if s.AllocateLoadBalancerNodePorts == nil {
		delete(spec, "allocateLoadBalancerNodePorts")
	}
	if s.LoadBalancerClass == nil {
		delete(spec, "loadBalancerClass")
	}
	if sent, ok := spec["ports"].([]any); ok && len(sent) == len(s.Ports) {
		list := make([]any, len(sent))
		for i := range sent {
			port := tree.Clone(sent[i])
			if n := s.Ports[i].NodePort; n != 0 {
				port["nodePort"] = int64(n)
			} else {
				delete(port, "nodePort")
			}
			list[i] = port
		}
		spec["ports"] = list
	}
	obj["spec"] = spec
}

// heldByService are the rows of a stored Service.
func heldByService(obj tree.Object) []objects.ClaimKey {
	spec, err := serviceSpec(obj)
	if err != nil || spec == nil {
		return nil
	}
	addresses, ports := service.Held(spec)
	var keys []objects.ClaimKey
	for _, a := range addresses {
		keys = append(keys, objects.ClaimKey{Table: AddressesTable, Key: canonicalAddress(a)})
	}
	for _, p := range ports {
		keys = append(keys, objects.ClaimKey{Table: NodePortsTable, Key: fmt.Sprint(p)})
	}
	return keys
}

var AddressesTable = kinds.BuiltinTable(addressesGVR.GroupResource())

func canonicalAddress(s string) string {
	if a, err := netip.ParseAddr(s); err == nil {
		return a.String()
	}
	return s
}

// pool is the cluster's addresses and ports as one request sees them.
type pool struct {
	o      *objects.Op
	ranges *serviceRanges
	name   string // of the Service
	dry    bool   // look, but claim nothing
	blocks []netip.Prefix
	// dryPorts are the ports that this pool returned without a claim. The state does not have
	// them, so without this set two ports of one Service could get the same number.
	dryPorts map[int32]bool
}

// Families implements service.Pool.
func (p *pool) Families() (families []corev1.IPFamily) {
	for _, b := range p.all() {
		f := corev1.IPv4Protocol
		if b.Addr().Is6() {
			f = corev1.IPv6Protocol
		}
		if !slices.Contains(families, f) {
			families = append(families, f)
		}
	}
	return families
}

// all are the blocks that the command line names, then those of ServiceCIDRs.
func (p *pool) all() []netip.Prefix {
	if p.blocks == nil {
		p.blocks = p.ranges.all(p.o.Store)
	}
	return p.blocks
}

func (r *serviceRanges) all(s *objects.Store) []netip.Prefix {
	blocks := slices.Clone(r.blocks)
	res := s.Kinds().Lookup(BlocksGVR)
	if res == nil {
		return blocks
	}
	versions, err := s.Range(res.Table(), "")
	if err != nil {
		return blocks
	}
	for _, v := range versions {
		obj, err := codec.DecodeStored(res, v)
		if err != nil || v.Flags&proto.FlagTerminating != 0 {
			continue
		}
		list, _ := tree.Strings(tree.Lookup(obj, "spec.cidrs"))
		for _, text := range list {
			if b, err := netip.ParsePrefix(text); err == nil && !slices.Contains(blocks, b.Masked()) {
				blocks = append(blocks, b.Masked())
			}
		}
	}
	return blocks
}

// Address implements service.Pool.
func (p *pool) Address(family corev1.IPFamily, want string) (string, error) {
	if want != "" {
		return p.wanted(want)
	}
	lost := map[netip.Addr]bool{}
	taken := func(a netip.Addr) bool {
		if lost[a] {
			return true
		}
		v, err := p.o.Store.Current(AddressesTable, a.String())
		return err != nil || v != nil
	}
	for _, b := range p.all() {
		if b.Addr().Is6() != (family == corev1.IPv6Protocol) {
			continue
		}
		for {
			a, ok := service.Pick(b, taken)
			if !ok {
				break
			}
			err := p.claimAddress(a)
			if !errors.Is(err, objects.ErrTaken) {
				return a.String(), err
			}
			lost[a] = true
		}
	}
	return "", service.ErrFull
}

func (p *pool) wanted(want string) (string, error) {
	a, err := netip.ParseAddr(want)
	if err != nil {
		return "", fmt.Errorf("%q is no address", want)
	}
	if !slices.ContainsFunc(p.all(), func(b netip.Prefix) bool { return service.Usable(b, a) }) {
		return "", errors.New("the provided network does not match the current range")
	}
	return a.String(), p.claimAddress(a)
}

func (p *pool) claimAddress(a netip.Addr) error {
	if p.dry {
		return nil // upstream does not look either whether somebody has it
	}
	res := p.o.Store.Kinds().Lookup(addressesGVR)
	if res == nil {
		return errors.New("the registry has no addresses")
	}
	family := corev1.IPv4Protocol
	if a.Is6() {
		family = corev1.IPv6Protocol
	}
	obj := tree.Object{
		"metadata": tree.Object{"name": a.String(), "labels": tree.Object{familyLabel: string(family), ManagedByLabel: ManagedByUs}},
		"spec":     tree.Object{"parentRef": tree.Object{"group": "", "resource": "services", "namespace": p.o.Info.ObjectNamespace, "name": p.name}},
	}
	tree.PrepareCreate(tree.As(obj["metadata"]), res.BeginsGeneration(), p.o.Store.Now())
	value, offset, err := codec.EncodeFor(res, obj)
	if err != nil {
		return fmt.Errorf("encode an address: %w", err)
	}
	labels, fields := res.Attributes(obj)
	return p.o.Claim(&proto.Write{
		Table: res.Table(), Key: a.String(), Value: value, RevisionOffset: offset,
		Uid: tree.Text(tree.As(obj["metadata"]), "uid"), Labels: labels, Fields: fields,
	})
}

// Port implements service.Pool.
func (p *pool) Port(want int32) (int32, error) {
	ports := p.ranges.ports
	if want != 0 {
		if p.dry {
			return want, errors.Join(p.lookAt(want), p.claimPort(want))
		}
		if !ports.Contains(want) {
			return 0, fmt.Errorf("provided port is not in the valid range. The range of valid ports is %s", ports)
		}
		if err := p.claimPort(want); errors.Is(err, objects.ErrTaken) {
			return 0, errors.New("provided port is already allocated")
		} else if err != nil {
			return 0, err
		}
		return want, nil
	}
	lost := map[int32]bool{}
	for {
		n, ok := ports.PickPort(func(n int32) bool {
			v, err := p.o.Store.Current(NodePortsTable, fmt.Sprint(n))
			return lost[n] || p.dryPorts[n] || err != nil || v != nil
		})
		if !ok {
			return 0, service.ErrFull
		}
		lost[n] = true
		if err := p.claimPort(n); !errors.Is(err, objects.ErrTaken) {
			return n, err
		}
	}
}

// lookAt refuses a port that a dry run wants and somebody has. Whether it is in the range upstream
// does not look. What is no dry run finds out when it claims the port.
func (p *pool) lookAt(n int32) error {
	if !p.o.Options.IsDryRun() {
		return nil
	}
	v, err := p.o.Newest(NodePortsTable, fmt.Sprint(n))
	if err == nil && v != nil {
		err = errors.New("provided port is already allocated")
	}
	return err
}

func (p *pool) claimPort(n int32) error {
	if p.dry {
		if p.dryPorts == nil {
			p.dryPorts = map[int32]bool{}
		}
		p.dryPorts[n] = true
		return nil
	}
	// For people who look into a snapshot; nothing reads it.
	value := fmt.Appendf(nil, `{"service":%q}`, p.o.Info.ObjectNamespace+"/"+p.name)
	return p.o.Claim(&proto.Write{Table: NodePortsTable, Key: fmt.Sprint(n), Value: value})
}

// ClaimAgain makes a row that a stored Service, which the operation is for, holds without it.
// Errors: objects.ErrTaken.
func ClaimAgain(o *objects.Op, k objects.ClaimKey) error {
	p := &pool{o: o, name: o.Info.Name, dry: o.Options.IsDryRun()}
	if k.Table == NodePortsTable {
		n, err := strconv.ParseInt(k.Key, 10, 32)
		if err != nil {
			return err
		}
		return p.claimPort(int32(n))
	}
	a, err := netip.ParseAddr(k.Key)
	if err != nil {
		return err
	}
	return p.claimAddress(a)
}
