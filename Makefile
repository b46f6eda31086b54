# Every target that CI runs is here; .ci/run and the workflow only call them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO ?= go
# The race detector needs a C compiler.
CC_FOUND := $(shell command -v $$($(GO) env CC 2>/dev/null) 2>/dev/null)
RACE := $(if $(CC_FOUND),-race)
# Three packages at a time, whatever the number of processors: tests with servers mostly wait.
TEST_FLAGS ?= -count=1 -p 3 -timeout 40m
# The form of each push: servers are needed all the same, and `make lint` vets.
SHORT ?=
ifneq ($(SHORT),)
TEST_FLAGS += -short -vet=off
# They wait for servers and programs, read the source, or compute with values; each part that they run has
# tests with -race of its own. ./backfill and ./cutover start some goroutines beside a relay and a sink (./relay,
# ./replication, ./sink/kafka, ./sink/kafkatx), which the detector sees at night alone. At night all have it.
UNRACED := ./test/integration ./cmd/cdc-relay ./test/parity ./test/fault ./test/takeover ./test ./docs test/ends \
	./backfill ./cutover ./retention/export ./audit/match \
	./config ./frame ./proof ./router ./router/encode ./router/record ./test/parity/golden
BENCH_SERVERS := ./test/integration test/ends
export CDC_RELAY_REQUIRE ?= servers
endif
PKG ?= ./...
# One lane of `make test` (test/modules.sh), before the modules.
ALONE := ./test/integration
# The other lane begins with these, longest first: what runs long would otherwise run alone at the end.
LONGEST := ./cmd/cdc-relay ./backfill ./test/parity ./test/fault ./cutover ./replication ./test ./relay ./test/takeover \
	./postgres/provision ./postgres/maintenance ./postgres/preflight ./sink/kafka ./sink/topics ./config ./sink/kafkatx ./proof
# What root alone can do; test/root_test.go holds both lists against the source.
ROOT_PACKAGES := ./sandbox ./relay ./replication ./test/integration
ROOT_TESTS := TestLink_CarriesEverythingLater TestLink_KeepsAShortDelay TestPostgres_ServerDoesNotRunAsRoot TestRelay_KeepsOrderThroughAnOutageOfItsNetwork \
	TestPostgresLostNetworkEndsTheStreamBeforeTheSlotIsFree TestMemory_FitsIntoAContainer
RUN_ROOT_TESTS = -v -run '^($(subst $(SPACE),|,$(strip $(ROOT_TESTS))))$$'
# Packages with a benchmark, or with a bound on allocations: the others would be linked for nothing.
BENCH_PACKAGES = $(shell grep -rl --include='*_test.go' '^func Benchmark' . | $(OF_ROOT_MODULE))
ALLOCS_PACKAGES = $(shell grep -rl --include='*_test.go' '^func Test.*Allocat' . | $(OF_ROOT_MODULE))
OF_ROOT_MODULE = xargs -n 1 dirname | sort -u | grep -vE '^\./($(subst $(SPACE),|,$(strip .bin dist $(MODULES))))(/|$$)'
# The race detector has every process wait for a second at its end, for races of what still runs then.
RACE_OPTIONS := GORACE="atexit_sleep_ms=100 $${GORACE:-}"
# It needs cgo, which .ci/run turns off for all else.
RACED_TEST = $(if $(RACE),CGO_ENABLED=1 )$(RACE_OPTIONS) $(GO) test $(RACE) $(TEST_FLAGS)

# The modules beside the root's: what services require, its tests with servers, the examples.
MODULES := test/ends outbox inbox examples/go examples/dapr

EMPTY :=
SPACE := $(EMPTY) $(EMPTY)

FUZZTIME ?= 20s
FUZZPART ?= 0/1
BENCH ?= .
BENCHTIME ?= 1s
DEMO_ARGS ?=
BENCH_ARGS ?=
CASES ?=
CAPTURE_ARGS ?=
FAULT_ARGS ?=
MUTANTS ?=
CHAOS_ARGS ?=
HOURS ?= 8

GOLANGCI_VERSION := v2.15.0
GOLANGCI := .bin/golangci-lint-$(GOLANGCI_VERSION)

GREMLINS_VERSION := v0.6.0
GREMLINS := .bin/gremlins-$(GREMLINS_VERSION)

# The image has 27 MB at most, and 0.22 MB of certificates beside the binary.
MAX_BINARY_BYTES := 26780000
GCFLAGS = $(shell grep -v '^\#' cmd/cdc-relay/gcflags)

##@ To begin with

.PHONY: help
help: ## list the targets
	@awk 'BEGIN { FS = ":.*## " } /^##@/ { printf "\n%s\n", substr($$0, 5) } /^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The program replaces the shell, so that it is make's own child and sees it die.
.PHONY: demo
demo: ## a real PostgreSQL, in-process brokers and the relay between them; DEMO_ARGS="--duration 15s" ends by itself
	@$(if $(wildcard .bin/demo),:,echo "building the demo; the first time this takes a minute or more" >&2)
	@$(GO) build -o .bin/demo ./demo && exec .bin/demo $(DEMO_ARGS)

# Without a server packages and tests mostly wait, so several wait at a time.
.PHONY: quick
quick: ## in a minute, without a server: the tests that need none, simulations with fewer seeds; PKG=./router for one package
	env -u CDC_RELAY_REQUIRE $(GO) test -short -p 6 -parallel 8 -timeout 5m $(PKG)
	@$(if $(filter ./...,$(PKG)),for module in $(MODULES); do (cd $$module && env -u CDC_RELAY_REQUIRE $(GO) test -short -p 6 -timeout 5m ./...); done)

.PHONY: test
test: ## all tests, with the race detector where there is a C compiler; PKG=./router for one package, SHORT=1 for fewer seeds and shorter loads, and the longest packages without it
	@$(if $(RACE),:,echo "no C compiler: without the race detector" >&2)
	@$(if $(filter ./...,$(PKG)),$(RACE_OPTIONS) GO="$(GO)" bash test/modules.sh "$(MODULES)" "$(ALONE)" "$(LONGEST)" "$(UNRACED)" $(RACE) $(TEST_FLAGS),$(RACED_TEST) $(PKG))

.PHONY: test-root
test-root: ## the tests that only root can run, which the others leave out: network devices, control groups, dropping rights
	$(RACED_TEST) $(RUN_ROOT_TESTS) $(filter-out $(UNRACED),$(ROOT_PACKAGES))
	@$(if $(filter $(UNRACED),$(ROOT_PACKAGES)),$(GO) test $(TEST_FLAGS) $(RUN_ROOT_TESTS) $(filter $(UNRACED),$(ROOT_PACKAGES)))

.PHONY: test-ordinary
test-ordinary: ## for root: all tests as an ordinary account, which is made, in a copy of the checkout
	@bash .ci/account
	.ci/as env CDC_RELAY_REQUIRE=servers $(MAKE) test

.PHONY: build
build: ## the static binary, in .bin/cdc-relay
	CGO_ENABLED=0 $(GO) build -trimpath $(GCFLAGS) -ldflags '-s -w' -o .bin/cdc-relay ./cmd/cdc-relay
	@size=$$(wc -c < .bin/cdc-relay); echo ".bin/cdc-relay: $$size bytes"; \
	if [ $$size -ge $(MAX_BINARY_BYTES) ]; then echo "the binary must stay below $(MAX_BINARY_BYTES) bytes" >&2; exit 1; fi

##@ To look closer

.PHONY: lint
lint: $(GOLANGCI) ## formatting and linters, vet among them
	@unformatted=$$(find . \( -name .bin -o -name dist -o -name .git \) -prune -o -name '*.go' -exec gofmt -l {} +); \
	if [ -n "$$unformatted" ]; then echo "run gofmt -w on:" $$unformatted >&2; exit 1; fi
	@work=$$(mktemp -d); trap 'rm -rf "$$work"' EXIT; export GOWORK="$$work/go.work"; \
	$(GO) work init . $(MODULES); $(GOLANGCI) run ./... $(MODULES:%=./%/...)

$(GOLANGCI):
	GOBIN=$(CURDIR)/.bin $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	mv .bin/golangci-lint $@

.PHONY: browser
browser: ## journeys through the console in Chromium; needs chromium, node and npm; BROWSER_ONLY=axe for some, BROWSER_BUT=axe for the others
	@mkdir -p .bin/browser && cp test/browser/package.json test/browser/package-lock.json .bin/browser/
	@if command -v npm >/dev/null; then cd .bin/browser && npm ci --silent --no-audit --no-fund; fi
	$(GO) test -tags tools -count=1 -timeout 15m -v ./test/browser

.PHONY: openapi
openapi: ## schemathesis asks a relay what its OpenAPI file describes, as nobody, viewer and operator; needs Python 3.10 or later with venv
	@if command -v python3 >/dev/null && [ ! -x .bin/python/bin/schemathesis ]; then python3 -m venv .bin/python && .bin/python/bin/pip install --quiet schemathesis==4.32.5; fi
	$(GO) test -tags tools -count=1 -timeout 40m -v -run OpenAPI ./test/console

.PHONY: console-figures
console-figures: ## what the console costs a real relay: idle, and in a drain with 0, 1 and 15 pages open, in turns
	$(GO) test -tags tools -count=1 -timeout 30m -v -run Figures ./test/console
	$(GO) test -run '^$$' -bench 'Console_|API' -benchtime 300x ./admin

.PHONY: screenshots
screenshots: ## the pictures of the console in docs/images, by the same script
	@BROWSER_ONLY=- BROWSER_SHOTS=$(CURDIR)/docs/images $(MAKE) browser

.PHONY: race
race: ## the race detector on the packages without servers, ten times
	$(GO) test -race -count=10 -timeout 9m ./checkpoint ./relay/... ./router ./sink/... ./admin ./metrics

.PHONY: allocs
allocs: ## the bounds on allocations, which the race detector would blur
	$(GO) test -count=1 -vet=off -run 'Allocat' $(ALLOCS_PACKAGES)
	cd outbox && $(GO) test -count=1 -run 'Allocat' .
	cd inbox && $(GO) test -count=1 -run 'Allocat' ./kafkainbox

.PHONY: test-matrix
test-matrix: ## the integration tests on PostgreSQL 14, 15, 16, 17 and 18, and a table of the outcome
	@bash test/matrix.sh "$(GO)" "$(RACE)"

KAFKA_VERSIONS ?=
.PHONY: test-kafka
test-kafka: ## the tests with a real Apache Kafka on 3.5, 3.9 and 4.3, and a table of the outcome; KAFKA_VERSIONS=3.5.2 for one
	@bash test/kafka.sh "$(GO)" "$(RACE)" $(KAFKA_VERSIONS)

.PHONY: engine
engine: ## a container engine and the images that the tests in containers need; says how large they are
	@bash test/engine/engine.sh

ENGINE_TESTS ?= .
.PHONY: engine-test
engine-test: ## the image, compose.yaml and several relays in containers; ENGINE_TESTS=TestImage for some
	@CDC_RELAY_ENGINE_ONLY="golang postgres kafka prometheus" bash test/engine/engine.sh $(GO) test -tags engine -count=1 -timeout 60m -v -run '$(ENGINE_TESTS)' ./test/engine

CONTAINER_TESTS ?= .
.PHONY: test-containers
test-containers: ## the integration tests with their servers in containers; CONTAINER_TESTS=TestShapes for some
	@bash test/engine/engine.sh bash test/containers.sh -test.run '$(CONTAINER_TESTS)'

.PHONY: systemd
systemd: ## what a real systemd restarts and what not, with the deb in a container
	@CDC_RELAY_ENGINE_ONLY=systemd bash test/engine/engine.sh bash test/systemd.sh

.PHONY: fault
fault: ## five minutes of seeded faults, real PostgreSQL, in-process and real brokers; FAULT_ARGS="-seed 7 -faults 'net_*'"
	$(GO) run ./test/fault -for 5m -broker kfake,kfake,apache -json .bin/fault/figures.json $(FAULT_ARGS)

.PHONY: fault-full
fault-full: ## the whole fault programme, at most an hour: every kind, 200 kills, takeovers, failpoints, planted bugs
	$(GO) run ./test/fault -full -json .bin/fault/figures.json $(FAULT_ARGS)

.PHONY: chaos
chaos: ## ten minutes of kills at both ends, on PostgreSQL 15 and again on 18: relay, Kafka, databases, Redis, consumers, under load; CHAOS_ARGS="-length 1m"
	cd test/ends && $(GO) test -tags chaos -count=1 -timeout 40m -v -run '^TestChaos$$' . -args -length 10m $(CHAOS_ARGS)

.PHONY: mutants-ends
mutants-ends: ## bugs that are planted into the module inbox, each of which a test must find
	cd test/ends && $(GO) test -count=1 -timeout 40m -v -run '^TestMutants_AreFound$$' . -args -mutants

.PHONY: dapr
dapr: ## builds a Dapr sidecar, once, in ten minutes or more, and has it read the relay's records
	@bash test/dapr.sh "$(GO)"

.PHONY: soak
soak: ## faults for HOURS (8), on every pair of servers
	$(GO) run ./test/fault -for $(HOURS)h -duration 5m -gap 20s -broker kfake,apache,apache3 -postgres 15,18 -json .bin/fault/soak.json $(FAULT_ARGS)

.PHONY: mutants
mutants: $(GREMLINS) ## small changes of the code that a row hangs on, 95 % of which the tests must notice; MUTANTS="checkpoint deadletter" for some
	$(GO) run ./test/mutation -gremlins $(GREMLINS) $(MUTANTS)

$(GREMLINS):
	GOBIN=$(CURDIR)/.bin $(GO) install github.com/go-gremlins/gremlins/cmd/gremlins@$(GREMLINS_VERSION)
	mv .bin/gremlins $@

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (20s); FUZZPART=1/3 for the second third of them
	@bash test/fuzz.sh "$(GO)" "$(FUZZTIME)" "$(FUZZPART)"

.PHONY: bench
bench: ## every benchmark; BENCH=name for some, SHORT=1 without those that start a server
	$(GO) test -vet=off -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -benchmem -timeout 30m $(filter-out $(BENCH_SERVERS),$(BENCH_PACKAGES))
	@for module in $(filter-out $(BENCH_SERVERS) examples/%,$(MODULES)); do (cd $$module && $(GO) test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -benchmem -timeout 30m ./...); done

.PHONY: bench-compare
bench-compare: ## the relay beside its peers on real servers, into docs/benchmarks.md; BENCH_ARGS=-full for every dimension
	@$(GO) build -o .bin/bench ./test/bench && exec .bin/bench -docs docs $(BENCH_ARGS)

.PHONY: parity-capture
parity-capture: ## a real Debezium rewrites the golden cases of test/parity; CASES="router-default op-truncate" for some
	$(GO) run ./test/parity/capture $(CAPTURE_ARGS) $(CASES)

VERSION ?= $(shell sed -n 's/^appVersion: //p' deploy/helm/cdc-relay/Chart.yaml)
.PHONY: release
release: ## all files of a release, in dist/, publishing nothing; VERSION=1.2.3, GPG_KEY=… signs
	@bash deploy/release/release.sh $(VERSION)

.PHONY: test-install
test-install: ## go install by a tag, and the nested modules by theirs, from a local proxy
	@bash test/install.sh

.PHONY: ci
ci: ## what CI runs for each push
	@CI=true bash .ci/run

.PHONY: clean
clean: ## remove what was built
	rm -rf .bin dist
