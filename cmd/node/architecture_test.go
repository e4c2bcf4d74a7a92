package main

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
)

const module = "github.com/quorate/quorate"

// A room says what a package may import of ours, what it must not import itself,
// and what must not be reachable from it at all; each prohibition with its reason.
type room struct {
	ours   []string          // packages of ours, below the module
	direct map[string]string // import path prefix -> reason
	reach  map[string]string // import path prefix -> reason
	tests  bool              // it is for tests: what is not, does not import it
}

var (
	noKubernetes = map[string]string{
		"k8s.io/":      "the store, the reads and the membership know bytes, not Kubernetes",
		"sigs.k8s.io/": "the store, the reads and the membership know bytes, not Kubernetes",
	}
	noRaft = map[string]string{
		"github.com/hashicorp/raft": "the API meets the store through the interface that it declares",
		"go.etcd.io/bbolt":          "the API meets the store through the interface that it declares",
	}
	pure = map[string]string{
		"time":         "Apply must follow from the entries alone: no clock",
		"math/rand":    "Apply must follow from the entries alone: no random",
		"math/rand/v2": "Apply must follow from the entries alone: no random",
		"crypto/rand":  "Apply must follow from the entries alone: no random",
		"net":          "Apply must follow from the entries alone: no network",
		"os":           "Apply must follow from the entries alone: no files, no environment",
		"log":          "Apply must follow from the entries alone: nothing to wait for",
		"context":      "Apply cannot be cancelled",
	}
	noHTTP = map[string]string{"net/http": "what speaks HTTP belongs in apiserver"}
)

// plugin is the room of an admission plugin: it sees an object and a user, and of the rest what it names.
func plugin(ours ...string) room {
	return room{ours: append(ours, "apiserver/admission", "apiserver/types/tree"), direct: noHTTP, reach: noRaft}
}

// both has the prohibitions of two tables.
func both(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// rooms is the import table. A package without a line fails the test: say what
// it may import, and why the rest is none of its business.
var rooms = map[string]room{
	"proto":                 {reach: noKubernetes},
	"raftstore/mvcc":        {ours: []string{"proto"}, direct: pure, reach: noKubernetes},
	"raftstore/watch":       {ours: []string{"proto", "raftstore/mvcc"}, direct: noHTTP, reach: both(noKubernetes, noRaft)},
	"raftstore/view":        {ours: []string{"proto", "raftstore/mvcc"}, direct: noHTTP, reach: both(noKubernetes, noRaft)},
	"raftstore/wal":         {direct: noHTTP, reach: noKubernetes},
	"raftstore/disk":        {ours: []string{"proto", "raftstore/mvcc", "raftstore/wal"}, direct: noHTTP, reach: noKubernetes},
	"raftstore/peer":        {ours: []string{"proto", "internal/loglimit"}, direct: noHTTP, reach: noKubernetes},
	"raftstore/local":       {ours: []string{"proto", "raftstore/errors"}, direct: noHTTP, reach: noKubernetes},
	"raftstore/exchange":    {ours: []string{"proto", "raftstore/errors", "raftstore/local"}, direct: noHTTP, reach: noKubernetes},
	"raftstore/readindex":   {ours: []string{"proto", "raftstore/errors", "raftstore/exchange", "raftstore/local"}, direct: noHTTP, reach: noKubernetes},
	"raftstore/failover":    {ours: []string{"proto", "raftstore/local"}, direct: noHTTP, reach: noKubernetes},
	"raftstore/replication": {ours: []string{"proto", "raftstore/errors", "raftstore/exchange", "raftstore/local"}, direct: noHTTP, reach: noKubernetes},
	"raftstore": {ours: []string{
		"proto", "raftstore/mvcc", "raftstore/disk", "raftstore/errors", "raftstore/exchange", "raftstore/failover", "raftstore/local", "raftstore/readindex",
		"raftstore/replication", "raftstore/watch", "internal/loglimit",
	}, direct: noHTTP, reach: noKubernetes},
	"raftstore/errors": {ours: []string{"proto"}, direct: pure, reach: noRaft},
	"raftstore/memstore": {
		ours:   []string{"proto", "raftstore/mvcc", "raftstore/watch", "raftstore/errors"},
		direct: noHTTP, reach: both(noKubernetes, noRaft), tests: true,
	},
	"raftstore/storetest": {ours: []string{"proto", "raftstore/mvcc", "raftstore/watch"}, direct: noHTTP, reach: noKubernetes, tests: true},
	"raftstore/regress":   {direct: noHTTP, reach: noKubernetes},
	"consistency":         {ours: []string{"proto"}, direct: noHTTP, reach: noKubernetes},
	"membership":          {ours: []string{"proto", "membership/pki", "internal/loglimit"}, reach: noKubernetes},
	"membership/pki":      {ours: []string{"proto"}, direct: noHTTP, reach: noKubernetes},
	"apiserver": {ours: []string{"proto", "consistency", "raftstore/mvcc", "raftstore/view", "raftstore/watch", "internal/collector", "internal/loglimit", "internal/slots", "apiserver/"}, direct: map[string]string{
		module + "/apiserver/controllers": "what the leader does with objects is a client of the server's, not a part of it",
	}, reach: noRaft},
	// What requests do with objects, and the node itself does without a request: a write that
	// needs an answer to be sent is in the wrong place. What kinds have as code is given to it.
	"apiserver/objects": {ours: []string{
		"proto", "consistency", "raftstore/mvcc", "raftstore/view", "apiserver/admission", "apiserver/access/audit", "apiserver/access/auth", "apiserver/wire/codec", "apiserver/types/conversion",
		"apiserver/types/crd", "apiserver/types/fieldmanager", "apiserver/types/kinds", "apiserver/objects/patch", "apiserver/wire/request", "apiserver/objects/storage",
		"apiserver/types/schema", "internal/slots", "apiserver/wire/status", "raftstore/errors", "apiserver/types/tree", "internal/loglimit",
	}, direct: noHTTP, reach: noRaft},
	// It puts together what operations need without a server: with a request, it would test that, too.
	"apiserver/objects/objectstest": {ours: []string{
		"proto", "consistency", "raftstore/memstore", "raftstore/mvcc", "raftstore/view", "apiserver/admission", "apiserver/access/auth", "apiserver/objects/builtin", "apiserver/objects/builtin/service",
		"apiserver/wire/codec", "apiserver/types/crd", "apiserver/types/kinds", "apiserver/objects", "apiserver/objects/patch", "apiserver/access/rbac", "apiserver/wire/request",
		"apiserver/wire/status", "apiserver/types/tree",
	}, direct: noHTTP, reach: noRaft, tests: true},
	// What kinds have as code: it sees objects and operations, never a request.
	"apiserver/objects/builtin": {ours: []string{
		"proto", "raftstore/mvcc", "apiserver/access/auth", "apiserver/access/auth/token", "apiserver/objects/builtin/service", "apiserver/wire/codec", "apiserver/types/crd",
		"apiserver/types/kinds", "apiserver/objects", "apiserver/types/quoratev1", "apiserver/types/quota", "apiserver/access/rbac", "apiserver/wire/request", "internal/slots", "apiserver/wire/status",
		"apiserver/objects/storage", "apiserver/types/tree", "apiserver/types/validation",
	}, direct: noHTTP, reach: noRaft},
	// Upstream's functions on upstream's types: objects in, errors out. Of the other rooms only those
	// that decide about kubelets and roles know k8s.io/kubernetes.
	"apiserver/types/validation": {ours: []string{"apiserver/types/quoratev1", "apiserver/types/tree", "apiserver/types/typed"}, direct: noHTTP, reach: noRaft},
	// Go types of objects, and nothing that is done with them.
	"apiserver/types/quoratev1": {direct: pure, reach: noRaft},
	// Trees in, values of Go types out.
	"apiserver/types/typed": {ours: []string{"apiserver/types/tree"}, direct: noHTTP, reach: noRaft},
	// What objects use is a part of every write: trees in, entries out.
	"apiserver/types/quota": {ours: []string{"proto", "raftstore/mvcc", "apiserver/types/tree"}, direct: noHTTP, reach: noRaft},
	// What a Service's fields mean, and ranges: pure, so that the node reads its flags by it.
	"apiserver/objects/builtin/service": {direct: noHTTP, reach: noRaft},
	// What admits sees an object and a user: not the store, and not the request.
	"apiserver/admission": {ours: []string{"proto", "apiserver/access/auth", "apiserver/types/tree"}, direct: noHTTP, reach: noRaft},
	// What plugins read: rows of this node's state, and no way to write them.
	"apiserver/types/state":         {ours: []string{"apiserver/types/kinds", "raftstore/mvcc", "raftstore/view"}, direct: noHTTP, reach: noRaft},
	"apiserver/admission/lifecycle": {ours: []string{"proto", "apiserver/admission", "apiserver/types/state"}, direct: noHTTP, reach: noRaft},
	// Rows of this node's state; who writes them is the node, for those who may.
	"apiserver/admission/suspension":     {ours: []string{"proto", "raftstore/mvcc", "raftstore/view", "apiserver/admission"}, direct: noHTTP, reach: noRaft},
	"apiserver/admission/limitranger":    {ours: []string{"proto", "apiserver/admission", "apiserver/types/state", "apiserver/types/tree"}, direct: noHTTP, reach: noRaft},
	"apiserver/admission/serviceaccount": {ours: []string{"proto", "raftstore/mvcc", "apiserver/admission", "apiserver/types/state", "internal/slots", "apiserver/types/tree"}, direct: noHTTP, reach: noRaft},
	// What upstream's plugins ask for, on decoded trees: kinds, not requests.
	"apiserver/admission/upstream": {ours: []string{
		"apiserver/types/typed", "apiserver/admission", "apiserver/types/state", "apiserver/access/auth", "apiserver/types/crd", "apiserver/types/kinds", "apiserver/types/schema", "apiserver/types/tree", "raftstore/mvcc",
	}, direct: noHTTP, reach: noRaft},
	// What files say is read once more by upstream's libraries, and follows from nothing of the cluster.
	"apiserver/admission/static": {ours: []string{"apiserver/admission/upstream", "apiserver/types/tree"}, direct: noHTTP, reach: noRaft},
	// Policies and their parameters are rows of this node's state, and objects are trees.
	"apiserver/admission/policies": {ours: []string{
		"apiserver/admission", "apiserver/types/state", "apiserver/admission/static", "apiserver/admission/suspension", "apiserver/admission/upstream", "apiserver/access/auth", "apiserver/types/crd",
		"apiserver/types/fieldmanager", "apiserver/types/kinds", "internal/slots", "apiserver/types/tree", "raftstore/mvcc", "raftstore/view",
	}, direct: noHTTP, reach: noRaft},
	// It asks who may have tokens for whom, and notes by which rows it has decided.
	"apiserver/admission/noderestriction": {ours: []string{"raftstore/mvcc", "apiserver/admission", "apiserver/types/state", "apiserver/access/auth", "apiserver/types/kinds", "apiserver/types/tree"}, direct: noHTTP, reach: noRaft},
	"apiserver/admission/pods":            plugin("apiserver/types/state", "proto"),
	"apiserver/admission/storage":         plugin("apiserver/types/state", "proto"),
	"apiserver/admission/podsecurity":     {ours: []string{"raftstore/mvcc", "apiserver/admission", "apiserver/types/state", "apiserver/types/tree"}, direct: noHTTP, reach: noRaft},
	// The table of plugins makes all of them.
	"apiserver/admission/plugins": {ours: []string{"proto", "apiserver/admission", "apiserver/admission/", "apiserver/access/auth", "apiserver/types/kinds", "apiserver/types/state", "apiserver/types/tree", "raftstore/view", "internal/settingfile"}, direct: noHTTP, reach: noRaft},
	"apiserver/admission/resourcequota": {ours: []string{
		"proto", "apiserver/admission", "apiserver/types/state", "apiserver/types/quota", "apiserver/types/tree",
	}, direct: noHTTP, reach: noRaft},
	// Upstream's webhooks. It calls them, so it speaks HTTP; what it decides by are rows of this node's state.
	"apiserver/admission/answers": {ours: []string{"internal/decoded"}, reach: noRaft},
	// JSON as bytes: what it means is others'.
	"internal/decoded":                {reach: noRaft},
	"apiserver/admission/imagepolicy": {ours: []string{"apiserver/admission", "apiserver/admission/answers", "internal/slots", "apiserver/types/tree"}, reach: noRaft},
	"apiserver/admission/webhook":     {ours: []string{"apiserver/admission", "apiserver/admission/answers", "apiserver/types/state", "apiserver/admission/static", "apiserver/admission/upstream", "apiserver/admission/webhook/direct", "apiserver/access/auth", "apiserver/wire/codec", "apiserver/types/kinds", "internal/slots", "apiserver/types/tree"}, reach: noRaft},
	// Reviews on the wire: bytes, not what they mean.
	"apiserver/admission/webhook/direct": {ours: []string{"apiserver/admission/answers"}, reach: noRaft},
	// Other servers' APIs, by rows of this node's state. It calls them; it changes nothing.
	"apiserver/backends/aggregator": {ours: []string{"raftstore/mvcc", "raftstore/view", "apiserver/types/state", "apiserver/access/auth", "internal/decoded", "apiserver/types/kinds"}, reach: noRaft},
	// The way to kubelets and Pods: objects of k8s.io/api in, connections out. It reads no state.
	"apiserver/backends/kubelet": {ours: []string{"apiserver/access/auth", "apiserver/backends/egress"}, reach: noRaft},
	// Where Services are, by rows of this node's state.
	"apiserver/backends/services": {ours: []string{"apiserver/types/state", "raftstore/mvcc", "raftstore/view"}, direct: noHTTP, reach: noRaft},
	// Decoded objects: what a kind's data say comes as arguments, so that everybody may use it.
	"apiserver/types/tree": {direct: noHTTP, reach: noRaft},
	// Connections and where they lead: not who wants them, and not what is said on them.
	"apiserver/backends/egress": {ours: []string{"internal/settingfile"}, reach: noRaft},
	// It knows nodes by their names, and its users not at all.
	"apiserver/backends/egress/tunnel": {ours: []string{"apiserver/backends/egress"}, reach: noRaft},
	// What a request says, not what the server has: it knows no resources.
	"apiserver/wire/request": {ours: []string{"apiserver/wire/status", "apiserver/types/tree"}, reach: noRaft},
	"apiserver/types/kinds": {ours: []string{"proto", "apiserver/types/tree"}, reach: both(noRaft, map[string]string{
		"github.com/google/cel-go": "kinds are data: what evaluates their columns is package printers",
	})},
	// Cells of tables: columns and trees in, values out. Data do not know who prints them.
	"apiserver/types/printers": {ours: []string{"apiserver/types/kinds", "apiserver/types/tree"}, direct: noHTTP, reach: noRaft},
	"apiserver/types/schema":   {ours: []string{"apiserver/types/tree"}, reach: noRaft},
	// Definitions are read from their table: what is served follows from it alone.
	"apiserver/types/crd": {ours: []string{"raftstore/mvcc", "raftstore/view", "apiserver/types/conversion", "apiserver/types/kinds", "apiserver/types/schema"}, reach: noRaft},
	// It knows trees and webhooks, not where objects are kept; its calls are observed as requests are.
	"apiserver/types/conversion":   {ours: []string{"internal/decoded", "internal/slots"}, reach: noRaft},
	"apiserver/types/fieldmanager": {ours: []string{"apiserver/types/schema"}, reach: noRaft},
	// It decodes what it patches, and fieldValidation is codec's.
	"apiserver/objects/patch": {ours: []string{"apiserver/wire/codec"}, reach: noRaft},
	"apiserver/wire/codec":    {ours: []string{"proto", "raftstore/mvcc", "apiserver/types/kinds", "apiserver/types/printers", "apiserver/wire/status"}, reach: noRaft},
	// The loop of every write: the bytes and their conditions, not what they mean.
	"apiserver/objects/storage": {ours: []string{"proto", "raftstore/errors", "raftstore/mvcc"}, direct: noHTTP, reach: both(noKubernetes, noRaft)},
	"apiserver/wire/status":     {ours: []string{"consistency", "raftstore/errors", "raftstore/mvcc"}, reach: noRaft},
	"apiserver/access/auth":     {ours: []string{"internal/settingfile"}, reach: noRaft},
	// Tokens end with the objects that they are bound to: it looks those up.
	"apiserver/access/auth/token": {ours: []string{"proto", "raftstore/mvcc", "apiserver/access/auth", "internal/slots"}, reach: noRaft},
	// Bootstrap tokens are Secrets: it reads those.
	"apiserver/access/auth/bootstraptoken": {ours: []string{"proto", "raftstore/mvcc", "apiserver/access/auth"}, reach: noRaft},
	// Roles are read from the tables: the bytes, and no way to write them but the API. What a cluster has
	// in the beginning is upstream's (k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy).
	"apiserver/access/rbac": {ours: []string{"proto", "raftstore/mvcc", "raftstore/view", "apiserver/access/auth"}, reach: noRaft},
	// What kubelets may do: rows of this node's state, and upstream's walk over what Pods and volumes
	// name (k8s.io/kubernetes/pkg/api/v1).
	"apiserver/access/nodeauthorizer": {ours: []string{"proto", "raftstore/mvcc", "raftstore/view", "apiserver/types/state", "apiserver/access/auth", "apiserver/types/kinds", "apiserver/access/rbac"}, direct: noHTTP, reach: noRaft},
	// Its refusals are Status objects in the form that the client accepts.
	"apiserver/catalog/discovery": {ours: []string{"apiserver/backends/aggregator", "apiserver/types/kinds", "apiserver/wire/codec"}, reach: noRaft},
	"apiserver/catalog/openapi":   {ours: []string{"apiserver/backends/aggregator", "apiserver/types/kinds", "apiserver/types/schema"}, reach: noRaft},
	// It knows requests by their words and objects by their types, not how they are served. What
	// configures it is read from the tables: the bytes, and no way to write them.
	"internal/slots":            {direct: noHTTP, reach: both(noKubernetes, noRaft)},
	"apiserver/access/fairness": {ours: []string{"raftstore/mvcc", "raftstore/view"}, direct: noHTTP, reach: noRaft},
	"apiserver/observe/health":  {reach: noRaft},
	"apiserver/observe/zpages":  {reach: noRaft},
	// Connections and whose they are: no requests, no objects.
	"apiserver/transport/listener": {ours: []string{"apiserver/access/auth", "apiserver/transport/h2", "internal/loglimit"}, reach: noRaft},
	// Frames and streams: what is asked is the handler's.
	"apiserver/transport/h2":     {reach: both(noKubernetes, noRaft)},
	"apiserver/observe/features": {reach: noRaft},
	// It knows requests and answers as bytes: what they mean is the server's.
	"apiserver/access/audit": {ours: []string{"internal/settingfile"}, reach: noRaft},
	// It counts requests by the words that package request has for them.
	"apiserver/observe/metrics": {ours: []string{"apiserver/admission", "apiserver/types/conversion", "apiserver/wire/request", "internal/loglimit"}, reach: noRaft},
	// It measures between two marks of the watch hub and a connection: no requests, no objects.
	"apiserver/transport/delivery": {ours: []string{"proto", "raftstore/mvcc", "raftstore/watch", "internal/loglimit"}, direct: noHTTP, reach: noRaft},
	// What the leader's node does: with objects as everybody, by operations of package objects.
	"apiserver/controllers": {ours: []string{
		"proto", "consistency", "raftstore/mvcc", "apiserver/backends/aggregator", "apiserver/access/auth", "apiserver/objects/builtin", "apiserver/wire/codec",
		"apiserver/types/crd", "apiserver/access/fairness", "apiserver/types/kinds", "apiserver/objects", "apiserver/types/quoratev1", "apiserver/types/quota", "apiserver/access/rbac", "apiserver/wire/request", "apiserver/types/schema", "apiserver/types/tree", "internal/loglimit",
	}, direct: noHTTP, reach: noRaft},
	// How command lines are read and explained: no command of its own.
	"internal/cli":      {ours: []string{"internal/words"}, direct: noHTTP, reach: noKubernetes},
	"internal/loglimit": {direct: noHTTP, reach: noKubernetes},
	"deploy":            {},
	"bench":             {},
	"bench/burst":       {ours: []string{"bench/client", "bench/host", "bench/measure", "bench/probe", "bench/report"}, reach: noKubernetes},
	"bench/churn":       {ours: []string{"bench/client", "bench/host", "bench/measure", "bench/plot", "bench/report"}, reach: noKubernetes},
	"bench/client":      {reach: noKubernetes},
	"bench/compare":     {ours: []string{"bench/client", "bench/faults", "bench/host", "bench/load", "bench/measure", "bench/modes", "bench/report"}, reach: noKubernetes},
	"bench/faults":      {ours: []string{"bench/client", "bench/measure", "bench/plot", "bench/probe", "bench/report"}, reach: noKubernetes},
	"bench/host":        {direct: noHTTP, reach: noKubernetes},
	"bench/load":        {ours: []string{"bench/client", "bench/host", "bench/measure", "bench/plot", "bench/report"}, reach: noKubernetes},
	// Clients as the control plane's programs are: client-go's.
	"bench/pods":  {ours: []string{"bench/host", "bench/measure"}, reach: noRaft},
	"bench/modes": {ours: []string{"bench/client", "bench/host", "bench/measure", "bench/plot", "bench/probe", "bench/report"}, reach: noKubernetes},
	// It fills clusters by a backup that is multiplied, which is the disk's format.
	"bench/scale": {ours: []string{"bench/client", "bench/host", "bench/measure", "bench/plot", "bench/report", "raftstore/disk"}, reach: noKubernetes},
	// What those who measure share: clocks and distributions, the objects and their judge, and drawings.
	"bench/measure":           {direct: noHTTP, reach: noKubernetes},
	"bench/plot":              {direct: noHTTP, reach: noKubernetes},
	"bench/report":            {ours: []string{"bench/host", "bench/measure", "bench/plot"}, direct: noHTTP, reach: noKubernetes},
	"bench/probe":             {ours: []string{"bench/client", "bench/measure"}, reach: noKubernetes},
	"bench/report/reporttest": {tests: true},
	// Whole clusters, from outside: a package per subject, and what starts clusters for them.
	"test":                    {},
	"test/harness/cluster":    {},
	"test/system/access":      {},
	"test/system/joining":     {},
	"test/system/churn":       {},
	"test/system/clientgo":    {},
	"test/system/commands":    {},
	"test/system/conformance": {},
	"test/system/definitions": {},
	"test/system/faults":      {},
	"test/system/golden":      {ours: []string{"test/harness/kubeapiserver", "test/harness/story"}},
	"test/system/hostile":     {},
	"test/system/hosts":       {},
	"test/system/quotas":      {},
	"test/system/rules":       {},
	"test/system/kubectl":     {},
	"test/system/members":     {},
	"test/system/proxy":       {},
	"test/system/nodes":       {},
	// What the tests of real machines run in.
	"test/harness/isolated": {reach: noKubernetes},
	"test/system/reads":     {},
	"test/system/watches":   {},
	"test/system/writes":    {},
	// What runs in the containers of test/system/nodes.
	"test/system/nodes/inside": {},
	// Which tests run where.
	"test/harness/tiers": {reach: noKubernetes},
	// Which advisories are reached: by programs and files alone.
	"test/harness/advisories": {direct: noHTTP, reach: both(noKubernetes, noRaft)},
	"test/harness/mutate":     {direct: noHTTP, reach: both(noKubernetes, noRaft)},
	// A peer to compare with.
	"test/harness/kubeapiserver": {reach: noKubernetes},
	"test/judges/differential":   {},
	"test/judges/upstream":       {},
	// Random objects, for judges.
	"test/judges/random": {ours: []string{"apiserver/types/tree"}},
	// Load tools of others, measured as our own loads are; kperf's data by client-go.
	"test/judges/load": {ours: []string{"bench/client", "bench/host", "bench/report"}, reach: noRaft},
	// What happened in a run, and who judges it.
	"test/judges/history": {reach: noKubernetes},
	// In a build with bugs the product imports it: it is no more than a list of names.
	"test/harness/planted":         {direct: noHTTP, reach: both(noKubernetes, noRaft)},
	"test/harness/planted/overlay": {ours: []string{"test/harness/planted"}, direct: noHTTP, reach: both(noKubernetes, noRaft)},
	"test/harness/story":           {reach: noKubernetes},
	// For judges in modules of their own.
	"test/judges/history/dense": {ours: []string{"test/judges/history"}, reach: noKubernetes},
	"test/judges":               {ours: []string{"test/judges/history", "test/judges/history/dense"}, reach: noKubernetes},
	"test/judges/wire":          {ours: []string{"test/judges/history"}, reach: noKubernetes},
	// Machines and disks for tests know nothing of what runs on them.
	"test/chaos":         {ours: []string{"membership/pki", "test/judges/history", "test/judges/wire", "test/judges/check", "test/chaos/"}},
	"test/chaos/clock":   {reach: noKubernetes},
	"test/chaos/host":    {reach: noKubernetes},
	"test/chaos/lazyfs":  {reach: noKubernetes},
	"test/judges/check":  {ours: []string{"test/judges/history"}, reach: noKubernetes},
	"test/judges/report": {ours: []string{"test/judges/history", "test/judges/check"}, reach: noKubernetes},
	"test/judges/judge":  {ours: []string{"test/judges/history", "test/judges/check", "test/judges/report"}, reach: noKubernetes},
	"test/sim":           {ours: []string{"proto", "raftstore", "raftstore/", "consistency", "apiserver", "apiserver/", "test/judges/history", "test/judges/wire"}},
	// What we say against what upstream publishes.
	"internal/facts": {reach: noKubernetes, tests: true},
	// What benchmarks report beside the clock.
	"internal/cputime": {direct: noHTTP, reach: noKubernetes, tests: true},
	// How tests end at errors.
	"internal/must": {direct: noHTTP, reach: noKubernetes, tests: true},
	// Where tests of databases keep their files.
	"internal/memdir": {direct: noHTTP, reach: noKubernetes, tests: true},
	// The other ends of connections: servers, proxies and kubeconfigs.
	"internal/standins": {reach: noKubernetes, tests: true},
	// A network without sockets.
	"internal/pipes": {direct: noHTTP, reach: noKubernetes, tests: true},
	// Bytes of files that settings name.
	"internal/settingfile": {direct: noHTTP, reach: noKubernetes},
	// Go's garbage collector alone.
	"internal/collector": {direct: noHTTP, reach: both(noKubernetes, noRaft)},
	// A worker's: it passes bytes to nodes, and asks them as any client does.
	"internal/localproxy": {ours: []string{"internal/hostport", "internal/loglimit", "internal/settingfile"}, reach: noRaft},
	// Says which process answers at a port, to those who have started one.
	"internal/process":  {reach: noKubernetes},
	"internal/hostport": {direct: noHTTP, reach: noKubernetes},
	// Between processes, and between them and the kernel: neither knows what these are.
	"internal/relay":    {direct: noHTTP, reach: both(noKubernetes, noRaft)},
	"internal/slowsync": {direct: noHTTP, reach: both(noKubernetes, noRaft)},
	"internal/words":    {direct: noHTTP, reach: noKubernetes},
	// It knows processes, ports and files, and asks nodes as any client does.
	"internal/playground": {
		ours:  []string{"internal/process", "internal/relay", "internal/slowsync", "internal/words", "membership", "membership/pki", "proto", "raftstore/disk"},
		reach: map[string]string{"k8s.io/": "it runs programs, and serves nothing"},
	},
	// Backups as files: it reads what package disk has written.
	"internal/backup": {ours: []string{"proto", "internal/datadir", "raftstore/disk"}, direct: noHTTP, reach: noKubernetes},
	// Identity and state of a directory that no node has: membership and disk do not know each other.
	"internal/datadir": {ours: []string{"proto", "membership", "raftstore/disk", "raftstore/mvcc"}, direct: noHTTP, reach: noKubernetes},
	// The wiring knows everybody, and is known to those who want a whole node.
	"node": {
		ours: []string{
			"proto", "raftstore", "raftstore/", "consistency", "membership", "membership/", "apiserver", "apiserver/",
			"internal/backup", "internal/collector", "internal/datadir", "internal/hostport", "internal/process", "internal/settingfile", "internal/slots",
		},
		direct: map[string]string{
			"github.com/spf13/":         "settings are fields: flags are the command line's",
			"os/signal":                 "signals are the process'",
			"github.com/hashicorp/raft": "the wiring knows the store, not what is under it",
		},
	},
	// Another program's flags to settings of a node.
	"internal/kubeapiserver": {ours: []string{"node", "apiserver/admission/plugins", "apiserver/controllers", "apiserver/observe/features", "apiserver/backends/kubelet", "internal/parent", "internal/settingfile"}},
	// Whatever it imports is initialized before it, and it is to be early.
	"internal/parent": {direct: pure, reach: both(noKubernetes, noRaft)},
	// For users' tests: all that it knows of a server is what any program that embeds one can know.
	"quoratetest": {ours: []string{"node"}},
	// It measures from outside: the nodes that it starts are processes of quorate.
	"cmd/quorate-bench": {
		ours: []string{"bench/burst", "bench/churn", "bench/client", "bench/compare", "bench/faults", "bench/load", "bench/measure", "bench/modes", "bench/probe", "bench/report", "bench/scale", "internal/cli", "internal/playground"},
	},
	// The same program by two names.
	"cmd/quorate": {ours: []string{"cmd/internal/commands"}},
	"cmd/node":    {ours: []string{"cmd/internal/commands"}},
	// Flags in, text out. Only the programs import it.
	"cmd/internal/commands": {
		ours: []string{
			"node", "internal/backup", "internal/cli", "internal/collector", "internal/datadir", "internal/hostport", "internal/kubeapiserver", "internal/localproxy", "internal/playground", "internal/words",
			"apiserver/backends/egress/tunnel", // its agent
			"membership", "membership/",        // the admin API and kubeconfigs
			"raftstore/disk",                                                                                                       // what it says of a survivor, and of a cluster that was restored
			"apiserver/admission/plugins", "apiserver/admission/suspension", "apiserver/controllers", "apiserver/observe/features", // their names are in the help
		},
	},
}

// folders of apiserver, from the bottom up: each imports only those before it. The server itself is above all of them.
var folders = []string{"types", "wire", "access", "transport", "admission", "objects", "backends", "catalog", "controllers", "observe"}

// testFolders are those of test, of which test/doc.go says what they hold.
var testFolders = []string{"harness", "system", "judges", "sim", "chaos", "modules"}

// TestFolders holds the order of apiserver's folders, and the names of those of test.
func TestFolders(t *testing.T) {
	layer := func(path string) int {
		below, ok := strings.CutPrefix(path, module+"/apiserver/")
		if !ok {
			return len(folders)
		}
		folder, _, _ := strings.Cut(below, "/")
		i := slices.Index(folders, folder)
		if i < 0 {
			t.Errorf("%s is in none of the folders %v", path, folders)
		}
		return i
	}
	for _, p := range packages(t) {
		if below, ok := strings.CutPrefix(p.ImportPath, module+"/test/"); ok {
			if folder, _, _ := strings.Cut(below, "/"); !slices.Contains(testFolders, folder) {
				t.Errorf("%s is in none of the folders %v of test", p.ImportPath, testFolders)
			}
		}
		if !strings.HasPrefix(p.ImportPath, module+"/apiserver/") || rooms[strings.TrimPrefix(p.ImportPath, module+"/")].tests {
			continue
		}
		for _, i := range p.Imports {
			if strings.HasPrefix(i, module+"/apiserver") && layer(i) > layer(p.ImportPath) {
				t.Errorf("%s imports %s, which is above it", p.ImportPath, i)
			}
		}
	}
}

// packageImports is what a package imports, by itself and through others.
type packageImports struct {
	ImportPath    string
	Imports, Deps []string
}

func packages(t *testing.T) (all []packageImports) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports,Deps", module+"/...").Output()
	must.OK(t, err)
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p packageImports
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// TestArchitecture compares the import table with the code. Run it with
// -count=1: the test cache does not notice changed imports of other packages.
func TestArchitecture(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		r, ok := rooms[name]
		if !ok {
			t.Errorf("%s has no line in the import table: say what it may import", name)
			continue
		}
		seen[name] = true
		used := map[string]bool{}
		for _, i := range p.Imports {
			if ours, ok := strings.CutPrefix(i, module+"/"); ok {
				door := r.door(ours)
				if door == "" {
					t.Errorf("%s imports %s, which the import table does not allow", name, ours)
				}
				used[door] = true
				if rooms[ours].tests && !r.tests && !strings.HasPrefix(name, "test/") {
					t.Errorf("%s imports %s, which is for tests", name, ours)
				}
			}
			forbid(t, r.direct, name, "imports", i)
		}
		for _, door := range r.ours {
			if !used[door] {
				t.Errorf("%s does not import %s any more: take it out of the import table", name, door)
			}
		}
		for _, i := range p.Deps {
			forbid(t, r.reach, name, "reaches", i)
		}
	}
	for name := range rooms {
		if !seen[name] {
			t.Errorf("the import table has a line for %s, which does not exist", name)
		}
	}
}

// door returns the entry of the table that allows an import, or "".
func (r room) door(ours string) string {
	for _, a := range r.ours {
		if a == ours || strings.HasSuffix(a, "/") && strings.HasPrefix(ours, a) {
			return a
		}
	}
	return ""
}

func forbid(t *testing.T, table map[string]string, name, verb, path string) {
	t.Helper()
	for prefix, why := range table {
		if path == prefix || strings.HasSuffix(prefix, "/") && strings.HasPrefix(path, prefix) || strings.HasPrefix(path, prefix+"/") {
			t.Errorf("%s %s %s: %s", name, verb, path, why)
		}
	}
}
