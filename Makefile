# Quorate: targets for people. `make` alone explains them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
# Programs and tests are built with the same flags: otherwise Go compiles all libraries twice. Without
# the tag, grpc links text/template, whose reflection keeps every exported method of every type.
export GOFLAGS := $(filter-out -trimpath -tags=grpcnotrace,$(GOFLAGS)) -trimpath -tags=grpcnotrace
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)
# The oldest Go for a release: docs/dependencies.md. With Go's module proxy it need not be installed:
# GOTOOLCHAIN=go1.26.10 make build
RELEASE_GO := go1.26.10
# How the kubectl of a module file says which version it is, and how what else is built from it does.
kube_version = $(subst v0.,v1.,$(shell awk '$$1=="k8s.io/kubectl"{print $$2}' $(1)))
kube_ldflags = -s -w -X k8s.io/component-base/version.gitVersion=$(1) \
	-X k8s.io/component-base/version.gitMajor=1 \
	-X k8s.io/component-base/version.gitMinor=$(word 2,$(subst ., ,$(1)))
# Where `make run` keeps its playground: where all commands of 'quorate dev' look for it.
DATA ?= .quorate
# Which servers those judge who judge servers.
JUDGE_SERVERS ?= quorate upstream

.PHONY: help
help: ## Explain the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/quorate and bin/quorate-bench
	go build -ldflags '$(LDFLAGS)' -o bin/quorate ./cmd/quorate
	go build -ldflags '$(LDFLAGS)' -o bin/quorate-bench ./cmd/quorate-bench
	@have=$$(go env GOVERSION); [ $$(printf '%s\n' $$have $(RELEASE_GO) | sort -V | head -1) = $(RELEASE_GO) ] || \
		echo "built with $$have, which has known vulnerabilities: build releases with $(RELEASE_GO) or later (docs/dependencies.md)"

# The date of the pages is that of the sources.
.PHONY: man
man: build ## Write man pages of all commands into bin/man/man1
	rm -rf bin/man
	SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct 2>/dev/null)}; export SOURCE_DATE_EPOCH; \
	bin/quorate man --dir bin/man/man1 && bin/quorate-bench man --dir bin/man/man1

.PHONY: run
run: build ## Build, start three nodes on loopback, write a kubeconfig, say what to do next
	bin/quorate dev --data-dir $(DATA) --kubeconfig $(DATA)/kubeconfig

.PHONY: control-plane
control-plane: build bin/kube-controller-manager bin/kube-scheduler ## Build Kubernetes' own controller manager and scheduler too, and start them beside three nodes (10 minutes to build)
	bin/quorate dev --control-plane --data-dir $(DATA) --kubeconfig $(DATA)/kubeconfig

.PHONY: kubectl
kubectl: bin/kubectl ## Build Kubernetes' own kubectl from its Go module into bin/

bin/kubectl: tools/kubectl/go.mod tools/kubectl/main.go
	sh tools/cached.sh $@ tools/kubectl -ldflags '$(call kube_ldflags,$(call kube_version,$<))' .

.PHONY: kubectls
kubectls: bin/kubectl bin/kubectl-1.35 bin/kubectl-1.37 bin/kubectl-debian ## Build the kubectls of the minors around ours too, and fetch Debian's

bin/kubectl-1.%: tools/kubectl/1.%.mod tools/kubectl/main.go
	sh tools/cached.sh $@ tools/kubectl -modfile=1.$*.mod -ldflags '$(call kube_ldflags,$(call kube_version,$<))' .

# Unpacked, not installed: it would take the place of a kubectl that is there.
bin/kubectl-debian:
	@mkdir -p bin && dir=$$(mktemp -d) && chmod 755 $$dir && cd $$dir && (apt-get update && apt-get download kubernetes-client && dpkg-deb -x kubernetes-client*.deb .) >/dev/null && \
		cp usr/bin/kubectl $(CURDIR)/$@; code=$$?; rm -rf $$dir; exit $$code

# How the Helm of a module file says which version it is.
helm_version = $(shell awk '$$1 ~ "^helm.sh/helm/v"{print $$2}' $(1))

.PHONY: helms
helms: bin/helm bin/helm-3 ## Build Helm 4 and 3 from their Go modules into bin/

# With the Kubernetes libraries of kubectl 1.37, so that they are built once.
bin/helm: tools/helm/go.mod
	sh tools/cached.sh $@ tools/helm -ldflags '-s -w -X helm.sh/helm/v4/internal/version.version=$(call helm_version,$<)' helm.sh/helm/v4/cmd/helm

bin/helm-3: tools/helm/3.mod
	sh tools/cached.sh $@ tools/helm -modfile=3.mod -ldflags '-s -w -X helm.sh/helm/v3/internal/version.version=$(call helm_version,$<)' helm.sh/helm/v3/cmd/helm

.PHONY: kwok
kwok: bin/kwok bin/kwokctl bin/kwok-stages.yaml ## Build KWOK, which plays kubelets, and its kwokctl from their Go module into bin/

# How Nodes and Pods live, as KWOK's module has it.
bin/kwok-stages.yaml: tools/kwok/go.mod
	cd $$(cd tools/kwok && go list -m -f '{{.Dir}}' sigs.k8s.io/kwok)/kustomize/stage && \
		for f in node/fast/node-*.yaml node/heartbeat-with-lease/node-*.yaml pod/fast/pod-*.yaml; do echo ---; cat $$f; done >$(CURDIR)/$@

bin/kwok: tools/kwok/go.mod
	sh tools/cached.sh $@ tools/kwok -ldflags '-s -w' sigs.k8s.io/kwok/cmd/kwok

bin/kwokctl: tools/kwok/go.mod
	sh tools/cached.sh $@ tools/kwok -ldflags '-s -w' sigs.k8s.io/kwok/cmd/kwokctl

.PHONY: tools
tools: tools/bin/staticcheck tools/bin/govulncheck tools/bin/protoc-gen-go tools/bin/protoc-gen-go-grpc ## Build the generators and linters at their pinned versions

tools/bin/%: tools/lint/go.mod
	cd tools/lint && go build -o ../bin/$* $$(go list -f '{{.ImportPath}}' tool | grep '/$*$$')

.PHONY: generate
generate: tools ## Regenerate everything that is generated (needs protobuf-compiler)
	sh proto/generate.sh
	sh apiserver/types/schema/generate.sh
	sh tools/upstreamfacts/generate.sh

# `make check` needs Go, git and this machine's tools only. Modules of their own are vetted by
# test-all, which compiles them anyway.
.PHONY: check
check: tools/bin/staticcheck tools/bin/govulncheck ## Format, vet, lint, advisories, pinned modules, generated files, architecture
	@bad=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$bad" ] || { echo "not gofmt-ed:"; echo "$$bad"; exit 1; }
	go mod tidy -diff
	cd test/modules/storage && go mod tidy -diff
	cd test/judges/etcd && go mod tidy -diff
	cd test/judges/writes && go mod tidy -diff
	go vet ./...
	tools/bin/staticcheck ./...
	go run ./test/harness/advisories -release $(RELEASE_GO)
	go test -vet=off -run 'TestArchitecture|TestFolders|TestEveryExport|TestPins|TestToolchain|TestDependencies|TestNoReplace|TestGenerated|TestModelsAreCurrent|TestDeploy|TestTiers' ./cmd/node ./apiserver/types/schema ./proto ./deploy ./test/harness/tiers

# Tests. test/harness/tiers/tiers.txt says which package is in which tier, and explains the tiers. `go vet`
# runs in check only. Each package is built in one way in a target: with the race detector or without.
run_tier = packages=$$(go run ./test/harness/tiers $(1)) && $(2) $$packages
go_test := go test -vet=off -timeout 20m
go_race := go test -race -vet=off -timeout 30m
with_programs := QUORATE_BIN=$(CURDIR)/bin/quorate

.PHONY: quick
quick: ## Test what a change concerns: unit tests, short forms, cached results (1 to 4 minutes)
	$(call run_tier,unit raced,go test -vet=off -short -timeout 10m)

# The two halves run side by side: both wait more than they compute.
.PHONY: test
test: build kubectl ## Prove correctness: unit tests, three nodes as processes (Go, make, git, a C compiler; no root)
	$(MAKE) --no-print-directory -O -j 2 test-unit test-nodes

.PHONY: test-unit
test-unit:
	$(call run_tier,unit,$(go_test))

.PHONY: test-nodes
test-nodes:
	$(call run_tier,raced,$(go_race) -short)
	$(go_test) ./test/sim -seeds 50
	$(call run_tier,system measured,$(with_programs) $(go_test) -short)

.PHONY: test-race
test-race: ## Run the race detector over all goroutines and locks, 200 seeds, and the judges of storage (15 minutes)
	$(call run_tier,-race unit,$(go_race) -short)
	$(call run_tier,raced,$(go_race))
	rm -rf $(KEPT)
	QUORATE_HISTORIES=$(KEPT) $(go_test) ./test/sim
	$(go_race) ./test/sim -run 'TestChaos$$' -first 1000 -seeds 20
	$(call judge_storage,$(KEPT))
	$(call judge_etcd,$(KEPT))

# Kubernetes' own code as the judge of what becomes of writes, in a module of its own: it links etcd's client.
.PHONY: judge-writes
judge-writes: ## Hold what becomes of random writes to Kubernetes' own strategies, plugins and quotas (a minute)
	cd test/judges/writes && go vet ./... && $(go_test) ./...

# The measured packages run one after the other with nothing beside them.
.PHONY: test-all
test-all: test-deps build kubectls helms kwok ## Test everything else: other clients, faults, hosts, measured tests (root and apt; an hour)
	$(call run_tier,system,$(with_programs) $(go_test))
	$(call run_tier,all,$(go_test))
	$(go_test) ./test/sim -first 2000 -seeds 500
	$(MAKE) --no-print-directory test-http2
	$(call run_tier,measured alone,$(with_programs) $(go_test) -p 1)
	$(MAKE) --no-print-directory judge-planted judge-writes
	cd test/modules/clients && go mod tidy -diff && go vet ./...
	cd test/modules/ecosystem && go mod tidy -diff && go vet ./...
	cd test/modules/storage && $(go_test) ./...
	cd test/modules/clients && $(with_programs) $(go_test) ./...
	cd test/modules/ecosystem && $(with_programs) $(go_test) ./...
	bash test/judges/testcmd/run.sh --fast

.PHONY: test-http2
test-http2: build kubectl ## Smoke tests of nodes that serve HTTP/2 by net/http (--http2-server): reads, writes, watches, client-go (2 minutes)
	QUORATE_TEST_SETTINGS=http2-server=net/http $(with_programs) $(go_test) -short ./test/system/reads ./test/system/writes ./test/system/watches ./test/system/clientgo

# Debian packages that tests need where they are missing; nothing is done where
# they are there, or where there is no apt.
.PHONY: test-deps
test-deps:
	@missing=; command -v systemd-analyze >/dev/null || missing=systemd; \
	command -v ip >/dev/null || missing="$$missing iproute2"; \
	for p in npm jq openssl curl strace; do command -v $$p >/dev/null || missing="$$missing $$p"; done; \
	[ -d /usr/lib/python3/dist-packages/kubernetes ] || missing="$$missing python3-kubernetes"; \
	if [ -n "$$missing" ] && command -v apt-get >/dev/null; then \
		(apt-get update && apt-get install -y --no-install-recommends $$missing) >/dev/null; fi

# How many seeds of virtual time, and where reports go. As root: the real processes
# get networks and disks of their own.
SEEDS ?= 10000
CHAOS := $(CURDIR)/.cache/chaos

.PHONY: chaos
chaos: ## Prove it under faults: 10,000 seeds of virtual time, then real processes (root, half an hour)
	@mkdir -p $(CHAOS) && rm -rf $(CHAOS)/*
	@code=0; go test ./test/sim -run 'TestCampaign$$' -count=1 -timeout 2h -seeds $(SEEDS) -summary $(CHAOS)/sim.json -out $(CHAOS) || code=1; \
	go test ./test/chaos -run 'TestCampaign$$' -count=1 -timeout 2h -campaign -sim $(CHAOS)/sim.json -out $(CHAOS) || code=1; \
	cat $(CHAOS)/table.txt; echo "report: $(CHAOS)/index.html"; exit $$code

# Recorded runs for the judges of others: those of the simulator, made again each time, or what
# HISTORIES=DIR names.
KEPT := $(CURDIR)/.cache/histories
HISTORIES ?= $(KEPT)
# How the judges of others are run, on the histories in $(1).
judge_storage = cd test/modules/storage && QUORATE_HISTORIES=$(1) go run ./correctness/run -run 'TestCorrectness|TestTexts|TestPlanted|TestHistories'
judge_etcd = cd test/judges/etcd && QUORATE_HISTORIES=$(1) go test -count=1 -timeout 15m ./...

.PHONY: histories
histories:
	rm -rf $(KEPT)
	go test ./test/sim -run 'TestChaos$$' -count=1 -timeout 20m -keep $(KEPT)

.PHONY: judge-storage
judge-storage: $(if $(filter $(KEPT),$(HISTORIES)),histories) ## Kubernetes' correctness suite of storage, and its model on recorded runs (a minute or two)
	$(call judge_storage,$(abspath $(HISTORIES)))

.PHONY: judge-etcd
judge-etcd: $(if $(filter $(KEPT),$(HISTORIES)),histories) ## etcd's robustness model and validators on recorded runs (a minute or two)
	$(call judge_etcd,$(abspath $(HISTORIES)))

# Ten minutes: five runs of the simulator for each planted bug, and what the judges of others say.
PLANTED := $(CURDIR)/.cache/planted
.PHONY: judge-planted
judge-planted: ## Plant known bugs in the simulator, and have all judges find them (ten minutes)
	rm -rf $(PLANTED)
	set -o pipefail; overlay=$$(go run ./test/harness/planted/overlay) && go test -overlay $$overlay ./test/sim -run 'TestPlanted$$' -count=1 -timeout 60m -v -found 5 -keep $(PLANTED) | grep -E '^(ok|FAIL|---)|seed +[0-9]+ '
	cd test/modules/storage && QUORATE_PLANTED_HISTORIES=$(PLANTED) go run ./correctness/run -run TestPlanted -v
	cd test/judges/etcd && QUORATE_PLANTED_HISTORIES=$(PLANTED) go test -count=1 -run TestPlanted -v .

# One suite of test/modules/ecosystem/testdata/envtest.txt on one server (quorate or upstream), as its project runs it.
SUITE ?= controller-runtime
SERVER ?= quorate
.PHONY: judge-envtest
judge-envtest: build kubectl $(if $(filter upstream,$(SERVER)),peers) ## Run SUITE of another project by envtest on SERVER (quorate or upstream; minutes)
	@mkdir -p .cache
	cd test/modules/ecosystem && QUORATE_BIN=$(CURDIR)/bin/quorate go test -run 'TestEnvtest$$' -count=1 -timeout 4h -v . -suite $(SUITE) -server $(SERVER) -copy $(CURDIR)/.cache/envtest-$(SUITE) -output $(CURDIR)/.cache/envtest-$(SUITE)-$(SERVER).log

# Packages for `make mutate`, and how many mutants of each. A mutant that lives is in code that no test holds.
MUTATE ?= ./consistency
MUTANTS ?= 150
.PHONY: mutate
mutate: ## Change operators of the packages in MUTATE, and see which changes no test notices (minutes each)
	go run ./test/harness/mutate -n $(MUTANTS) $(MUTATE)

.PHONY: fuzz
fuzz: ## Fuzz every parser for a while (FUZZTIME, default 30s each)
	@for p in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u); do \
		for f in $$(grep -h -o '^func Fuzz[A-Za-z0-9]*' $$p/*_test.go | cut -c6-); do \
			echo "$$p $$f"; go test -run '^$$' -fuzz "^$$f$$" -fuzztime $${FUZZTIME:-30s} $$p || exit 1; done; done

.PHONY: peers
peers: bin/etcd bin/kube-apiserver ## Build etcd and kube-apiserver from their Go modules into bin/

bin/etcd: tools/peers/go.mod
	sh tools/cached.sh $@ tools/peers -ldflags '-s -w' go.etcd.io/etcd/server/v3

bin/kube-apiserver bin/kube-controller-manager bin/kube-scheduler bin/kubelet bin/kube-proxy bin/kubeadm bin/kubectl-convert: bin/%: tools/peers/go.mod
	sh tools/cached.sh $@ tools/peers -ldflags '$(call kube_ldflags,$(call kube_version,$<))' k8s.io/kubernetes/cmd/$*

# Unpacked, not installed: what runs containers, and what kube-proxy calls. Their libraries too,
# where this machine has none.
DEBIAN_PACKAGES := containerd runc containernetworking-plugins busybox-static nftables conntrack \
	libnftables1 libnftnl11 libjansson4 libedit2 libbsd0 libmd0 libmnl0 libnetfilter-conntrack3 libnfnetlink0 libseccomp2
bin/debian:
	@mkdir -p bin && dir=$$(mktemp -d) && chmod 755 $$dir && mkdir $$dir/all && cd $$dir && \
		(apt-get update && apt-get download $(DEBIAN_PACKAGES) && for p in *.deb; do dpkg-deb -x $$p all || exit 1; done) >/dev/null && \
		cp -r all $(CURDIR)/$@; code=$$?; rm -rf $$dir; exit $$code

# What runs in Pods, and its manifests.
bin/metrics-server: tools/metrics/go.mod
	sh tools/cached.sh $@ tools/metrics -ldflags '-s -w -X sigs.k8s.io/metrics-server/pkg/version.gitVersion=v0.9.0' sigs.k8s.io/metrics-server/cmd/metrics-server

bin/sample-apiserver: tools/peers/go.mod
	sh tools/cached.sh $@ tools/peers -ldflags '-s -w' k8s.io/sample-apiserver

bin/manifests: tools/metrics/go.mod tools/peers/go.mod
	@rm -rf $@ && mkdir -p $@
	cp -r "$$(cd tools/metrics && go list -m -f '{{.Dir}}' sigs.k8s.io/metrics-server)/manifests/base" $@/metrics-server
	cp -r "$$(cd tools/peers && go list -m -f '{{.Dir}}' k8s.io/sample-apiserver)/artifacts/example" $@/sample-apiserver
	chmod -R u+w $@

.PHONY: nodes
nodes: build kubectl bin/kubelet bin/kube-proxy bin/kubeadm bin/kube-controller-manager bin/kube-scheduler bin/debian bin/metrics-server bin/sample-apiserver bin/etcd bin/manifests ## Run real kubelets and Pods under three nodes, and kill, pause and cut off these (root; 10 minutes)
	CGO_ENABLED=0 go build -ldflags '-s -w' -o bin/nodes-inside ./test/system/nodes/inside
	QUORATE_BIN=$(CURDIR)/bin/quorate QUORATE_NODES_BIN=$(CURDIR)/bin go test ./test/system/nodes -count=1 -timeout 30m -v

.PHONY: judge-kubectl
judge-kubectl: build kubectl peers bin/kube-controller-manager bin/kubectl-convert ## Run kubectl's own contract suite on Quorate and on kube-apiserver (JUDGE_SERVERS; 10 minutes each)
	@for s in $(JUDGE_SERVERS); do bash test/judges/testcmd/run.sh --server $$s || code=1; done; exit $${code:-0}

# What changed is what git diff shows: nothing, unless a story or the version of tools/peers did.
.PHONY: golden
golden: peers ## Record kube-apiserver's answers to the stories of test/system/golden again (10 minutes to build)
	go run ./test/system/golden -record test/system/golden/testdata/*.txt

# How many requests of each seed. One of them again: -one SEED:INDEX in place of -requests.
REQUESTS ?= 10000
JUDGE_SEEDS ?= 1,2,3
# Objects of Kubernetes itself, or of what people install: manifests or installed.
POOL ?= manifests

.PHONY: judge-differential
judge-differential: build kubectl peers bin/helm ## Send the same objects to kube-apiserver and Quorate, and print where answers differ (10 minutes)
	QUORATE_BIN=$(CURDIR)/bin/quorate go test ./test/judges/differential -run 'TestCampaign$$' -count=1 -timeout 2h -campaign -seeds $(JUDGE_SEEDS) -requests $(REQUESTS) -pool $(POOL) -v

# The directory of kube-burner, kperf and ClusterLoader2; without them it is said how to get them. LOAD: options of run.sh.
TOOLS ?=
LOAD ?=
.PHONY: judge-load
judge-load: build peers bin/kube-controller-manager ## Run the load tools of others, in TOOLS, on Quorate and on kube-apiserver (LOAD="--runs 3 --busy 4"; 6 minutes a run)
	bash test/judges/load/run.sh $(if $(TOOLS),--tools $(TOOLS)) $(LOAD)

.PHONY: bench-peers
bench-peers: peers ## Measure kube-apiserver with etcd and Quorate one after the other (5 minutes, and 10 to build)
	bash bench/peers.sh

.PHONY: bench-pods
bench-pods: peers kwok bin/kube-controller-manager bin/kube-scheduler ## Run 10,000 Pods on 500 Nodes that KWOK plays, beside kube-apiserver with etcd (8 minutes, and 15 to build)
	bash bench/pods.sh

.PHONY: bench
bench: build ## Measure three nodes on this machine: CPU per operation, latency
	bash bench/run.sh

.PHONY: clean
clean: ## Remove what was built; playground data stays
	rm -rf bin tools/bin
