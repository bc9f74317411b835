# `make` lists the targets. Everything runs as root or as any user, without a terminal, and needs only Go and
# make; what else is missing on a Debian or Ubuntu is installed by `deps`.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

BIN := $(CURDIR)/bin
PKG ?= ./...

# A test may take this long before go test says which one it is. It judges no speed.
TEST_TIMEOUT ?= 30m
# Compiled as the program and the linter's packages are, so that all share what is compiled.
PROVE = ARGS='$(ARGS)' CGO_ENABLED=0 go run -trimpath ./internal/workshop/prove
# Arguments for go test, e.g. make test PKG=./lock ARGS='-run Watchdog -v'
ARGS ?=

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: ## serve embedded: SQLite, Redis and everything else in one process
	go run . serve

.PHONY: demo
demo: ## one flash sale from beginning to end, with its audit
	go run . demo

.PHONY: build
build: ## the static binary, bin/seckill
	CGO_ENABLED=0 go build -trimpath -buildvcs=auto -ldflags='-s -w' -o $(BIN)/seckill .

.PHONY: test
test: deps $(BIN)/gotestsum ## every rule, against real servers, in at most five minutes (PKG=./lock ARGS='-run=^TestX$$')
	@$(PROVE) test $(PKG)

.PHONY: quick
quick: ## the tests of one package, without the race detector; what has not changed is not run again (PKG=./service)
	CGO_ENABLED=0 go test -vet=off -trimpath $(ARGS) $(PKG)

.PHONY: faults
faults: deps $(BIN)/gotestsum ## what takes long or breaks servers, part by part (PART='clusters locks' ROUNDS= SEED=; make parts names them)
	@$(PROVE) faults $(PART)

.PHONY: parts
parts: ## the parts of the faults (OF=commit: the one that continuous integration runs for it)
	@$(PROVE) parts $(OF)

.PHONY: mutants
mutants: deps ## small defects, one at a time: which test finds each (ONLY=S1,A2)
	@ONLY="$(ONLY)" CGO_ENABLED=0 go test -count=1 -v -vet=off -trimpath -tags=mutants -timeout=180m \
		-run='^TestDefectsAreNoticed$$' ./internal/workshop/mutants

.PHONY: cover
cover: deps ## test coverage over all packages, bin/cover.html
	@mkdir -p $(BIN)
	go test -count=1 -timeout=$(TEST_TIMEOUT) -coverpkg=./... -coverprofile=$(BIN)/cover.out $(PKG)
	go tool cover -html=$(BIN)/cover.out -o $(BIN)/cover.html
	go tool cover -func=$(BIN)/cover.out | tail -1

# The pictures of README.md, and beside them one of each step of the browser's test. A font for the language switch is
# installed where no font has Chinese.
.PHONY: screenshots
screenshots: deps deps-browser ## renew handler/console/pictures, which README.md shows; those of all steps are in bin/screenshots
	@[ -n "$$(fc-list :lang=zh 2>/dev/null)" ] || deployments/tools/install-packages fonts-wqy-microhei
	@mkdir -p $(BIN)/screenshots
	go test -tags=faults -count=1 -timeout=$(TEST_TIMEOUT) -parallel=1 -run 'InABrowser$$' ./handler/console -args -pictures=pictures -steps=$(BIN)/screenshots

.PHONY: bench
bench: deps $(BIN)/benchstat ## what a request costs, beside the yardstick (CASES= ROUNDS=3 SECONDS=3 CONNECTIONS='128 1024' OPEN=0.5 VOUCHERS=100 INSTANCES=4 BINARY=)
	@mkdir -p $(BIN)
	BENCH_CASES="$(or $(CASES),all)" BENCH_ROUNDS=$(or $(ROUNDS),3) BENCH_SECONDS=$(or $(SECONDS),3) BENCH_CONNECTIONS="$(or $(CONNECTIONS),128)" \
		BENCH_RECORD=$(BIN)/bench.md BENCH_OPEN="$(or $(OPEN),0.5)" BENCH_VOUCHERS=$(VOUCHERS) BENCH_INSTANCES=$(INSTANCES) BENCH_BINARY="$(BINARY)" \
		$(FAULT) -run 'TestBench$$' ./internal/workshop/bench | tee $(BIN)/bench.txt
	$(BIN)/benchstat -col /build -alpha 1 $(BIN)/bench.txt

.PHONY: bench-record
bench-record: ## the record that deployments/bench shows, bin/bench.md (ROUNDS=3 SECONDS=3)
	@$(MAKE) bench CASES=record CONNECTIONS='128 1024' OPEN='0.5 1.5'

.PHONY: bench-draw
bench-draw: deps ## a draw of a million entries for ten thousand units, from the end of the sale until everybody is served (DRAW_ENTRIES=1000000)
	DRAW_ENTRIES=$${DRAW_ENTRIES:-1000000} go test -run='^$$' -bench='^BenchmarkDraw$$' -benchtime=1x -timeout=20m ./service/repair $(ARGS)

.PHONY: bench-console
bench-console: deps ## what watchers of a sale cost it, and how long each page takes in a large shop (WATCHERS=50 ROUNDS= VOUCHERS=10000 ORDERS=1000000)
	WATCHERS=$(WATCHERS) ROUNDS=$(ROUNDS) VOUCHERS=$(VOUCHERS) ORDERS=$(ORDERS) \
		go test -v -run='^$$' -bench='^Benchmark(Watchers|Pages)$$' -benchtime=1x -timeout=60m ./handler/console $(ARGS)

.PHONY: bench-go
bench-go: deps ## Go's benchmarks of single functions (PKG=./lock)
	go test -run='^$$' -bench=. -benchmem -timeout=$(TEST_TIMEOUT) $(ARGS) $(PKG)

.PHONY: bench-lock
bench-lock: deps $(BIN)/benchstat ## the lock against redsync, redislock and rueidislock on one Redis (ROUNDS=5 SECONDS=1 ARGS='-bench=Lock/load=keys')
	@rm -f $(BIN)/bench-lock.txt
	cd lock/bench && for round in $$(seq $(or $(ROUNDS),5)); do \
		go test -vet=off -run='^$$' -bench=. -benchtime=$(or $(SECONDS),1)s -timeout=20m . $(ARGS) | tee -a $(BIN)/bench-lock.txt; done
	$(BIN)/benchstat -row '.name /load /replicas /goroutines' -col '/peer /synced' -alpha 1 $(BIN)/bench-lock.txt

# One test of the faults by itself, as long as is wanted. Each prints the SEED that repeats it.
FAULT := CGO_ENABLED=0 go test -count=1 -v -vet=off -trimpath -tags=faults -timeout=180m $(ARGS)

.PHONY: chaos
chaos: deps ## kill -9 of API, workers, Redis, NATS and MariaDB at random during a rush (ROUNDS=20 SEED=)
	ROUNDS=$(or $(ROUNDS),20) $(FAULT) -run 'TestRandomKills' ./internal/workshop/e2e

.PHONY: weather
weather: deps ## what no list of faults names, at random during a rush (ROUNDS=20 SEED= EVENT=)
	ROUNDS=$(or $(ROUNDS),20) $(FAULT) -run 'TestWeather$$' ./internal/workshop/e2e

.PHONY: life
life: deps ## everybody moves the same 500 orders at once, and processes are killed meanwhile (ROUNDS=10 ORDERS=500 SEED=)
	ROUNDS=$(or $(ROUNDS),10) ORDERS=$(or $(ORDERS),500) $(FAULT) -run 'TestLivesAtOnce$$' ./internal/workshop/e2e

.PHONY: linear
linear: deps ## histories of real requests under kills are linearizable (ROUNDS=20 SEED=)
	ROUNDS=$(or $(ROUNDS),20) $(FAULT) -run 'TestHistoriesAreLinearizable$$' ./internal/workshop/e2e

.PHONY: fairness
fairness: deps ## who gets the units when 20,000 press at once at two instances: those who come first, whoever they are; in a draw, anybody
	$(FAULT) -run 'TestFairness(OfADraw)?$$' ./internal/workshop/e2e

.PHONY: examples
examples: deps deps-examples ## what docs/examples shows, in each language, beside a server whose answers get lost
	$(FAULT) -run '^Test(Examples|Buyers|Receiver|JavaSharesTheLock|LockInYourService)$$' ./internal/workshop/e2e

.PHONY: siege
siege: deps ## what one attacker from outside costs a sale (SIEGE_SECONDS=10 SIEGE_MODES='sync async' SIEGE_ATTACKS=all)
	SIEGE_SECONDS=$${SIEGE_SECONDS:-10} SIEGE_ATTACKS="$${SIEGE_ATTACKS:-all}" $(FAULT) -run '^Test(Siege|Hoarders)$$' ./internal/workshop/e2e

# Servers of other versions than the system has, from Debian's newer suites, Maven Central and the module proxy.
ENGINES := mysql-8.0 mysql-9 mariadb-11.4 mariadb-11.8 redis-8 valkey-8 nats-2.10
.PHONY: deps-engines
deps-engines: $(ENGINES:%=$(BIN)/engines/%/complete) ## databases, Redis and NATS of other versions, into bin/engines (needs Debian's apt, and Maven)

.PHONY: deps-mysql8
deps-mysql8: $(BIN)/engines/mysql-8.0/complete ## MySQL 8 alone

$(BIN)/engines/%/complete: deployments/tools/install-engine internal/workshop/testserver/mysql.sql internal/workshop/testserver/mariadb.sql
	deployments/tools/install-engine $* $(@D)

.PHONY: deps-interop
deps-interop: # the Java program that takes locks through the real Redisson (needs a JDK of 17 or newer, and Maven)
	mvn -q -B -f lock/interop/pom.xml package

.PHONY: lint
lint: $(BIN)/golangci-lint ## golangci-lint with .golangci.yml
	CGO_ENABLED=0 $(BIN)/golangci-lint run $(PKG) # reads what the tests' programs were, or will be, compiled to

.PHONY: modules
modules: ## each go.mod of the tree: tidy, built, and tested (the service's own tests are `make test`; those of lock/bench measure)
	@for module in $$(git ls-files '*go.mod'); do \
		echo "$$module"; cd "$(CURDIR)/$${module%go.mod}"; export CGO_ENABLED=0; \
		go mod tidy -diff; go build -o /dev/null ./...; \
		case $$module in lock/bench/*) go test -run='^$$' ./... ;; */tools/* | go.mod) ;; *) go test ./... ;; esac; \
	done

.PHONY: fmt
fmt: $(BIN)/golangci-lint ## format (gofumpt and goimports, as lint demands it)
	$(BIN)/golangci-lint fmt $(PKG)

.PHONY: vuln
vuln: $(BIN)/govulncheck ## known vulnerabilities in what the program calls (VULN_OFFLINE=skip, VULN_DB=)
	@deployments/tools/vuln $(BIN)/govulncheck $(PKG)

.PHONY: sbom
sbom: $(BIN)/cyclonedx-gomod ## what the program is made of, in CycloneDX: bin/seckill.cdx.json
	deployments/tools/sbom $< $(BIN)/seckill.cdx.json

.PHONY: assets
assets: ## renew from npm what the console's pages are made with, as its lock file pins it: handler/console/static/lib (needs Node.js)
	deployments/tools/renew-assets $(BIN)/assets

.PHONY: release
release: $(BIN)/image ## what a version gives to take home: programs for six systems, an image, bill of materials, sums, in dist/ (TARGETS=linux/amd64)
	rm -rf dist && deployments/tools/release dist $(BIN) $(TARGETS)

.PHONY: notice
notice: $(BIN)/go-licenses ## write NOTICE: the licences of what the program is made of
	deployments/tools/notice $<

.PHONY: pin
pin: ## pin the images of deployments/ to the digests that their tags have now (needs docker)
	deployments/pin

.PHONY: schema
schema: build $(BIN)/schemathesis/complete ## schemathesis compares the OpenAPI document with the service (MODES=async CALLERS=user EXAMPLES=100 SEED=2)
	BIN=$(BIN) deployments/schema/run

.PHONY: lint-api
lint-api: build $(BIN)/openapi/complete ## Redocly's and Spectral's rules of the OpenAPI document, which generators of clients stumble over
	BIN=$(BIN) deployments/schema/lint

.PHONY: chart
chart: $(BIN)/helm $(BIN)/kubeconform $(BIN)/kubernetes/complete ## the Helm chart: lint, render, and hold against Kubernetes' schemas
	BIN=$(BIN) deployments/helm/check

.PHONY: rules
rules: $(BIN)/promtool ## Prometheus itself reads its configuration and its rules, and tries each alert
	cd deployments/prometheus && $(BIN)/promtool check config --lint=all prometheus.yml
	cd deployments/prometheus && $(BIN)/promtool test rules rules_test.yml rules_long_test.yml

.PHONY: load
load: build $(BIN)/k6 ## load test of the running server at BASE_URL (SCENARIO=rush|sustained|mixed|soak RATE= DURATION= STOCK=)
	deployments/k6/run

# Only the queue of MODE=async needs NATS.
.PHONY: load-local
load-local: deps build $(BIN)/k6 $(if $(filter async,$(MODE)),$(BIN)/nats-server) ## the same against real servers and two instances, started for it (MODE=sync|async)
	deployments/k6/local

.PHONY: ci
ci: ## what continuous integration runs
	.ci/run

.PHONY: clean-clone
clean-clone: ## .ci/run of the last commit in a fresh clone, as a stranger would see it
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && \
		git clone -q . "$$dir/seckill" && cd "$$dir/seckill" && git log -1 --oneline && .ci/run

.PHONY: clean
clean: ## remove what was built
	rm -rf $(BIN)

# Tools have a module of their own, deployments/tools, so that their requirements stay out of the service's.
$(BIN)/golangci-lint: deployments/tools/go.mod deployments/tools/go.sum
	cd deployments/tools && CGO_ENABLED=0 GOBIN=$(BIN) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch $@

$(BIN)/govulncheck: deployments/tools/go.mod deployments/tools/go.sum
	cd deployments/tools && CGO_ENABLED=0 GOBIN=$(BIN) go install golang.org/x/vuln/cmd/govulncheck
	@touch $@

$(BIN)/benchstat: deployments/tools/go.mod deployments/tools/go.sum
	cd deployments/tools && CGO_ENABLED=0 GOBIN=$(BIN) go install golang.org/x/perf/cmd/benchstat
	@touch $@

$(BIN)/go-licenses $(BIN)/cyclonedx-gomod $(BIN)/image: $(addprefix deployments/tools/supply/,go.mod go.sum image/main.go)
	cd deployments/tools/supply && CGO_ENABLED=0 GOBIN=$(BIN) go install tool
	@touch $(BIN)/go-licenses $(BIN)/cyclonedx-gomod $(BIN)/image

$(BIN)/helm: deployments/tools/chart/go.mod deployments/tools/chart/go.sum
	cd deployments/tools/chart && CGO_ENABLED=0 GOBIN=$(BIN) go install helm.sh/helm/v3/cmd/helm
	@touch $@

# The tags leave out the clients of every cloud, which find targets there.
$(BIN)/promtool $(BIN)/prometheus: deployments/tools/promtool/go.mod deployments/tools/promtool/go.sum
	cd deployments/tools/promtool && CGO_ENABLED=0 GOBIN=$(BIN) \
		go install -tags=remove_all_sd,enable_dns_sd github.com/prometheus/prometheus/cmd/$(@F)
	@touch $@

$(BIN)/kubeconform: deployments/tools/chart/go.mod deployments/tools/chart/go.sum
	cd deployments/tools/chart && CGO_ENABLED=0 GOBIN=$(BIN) go install github.com/yannh/kubeconform/cmd/kubeconform
	@touch $@

$(BIN)/kubernetes/complete: deployments/tools/install-kubernetes-schemas deployments/helm/requirements.txt
	deployments/tools/install-kubernetes-schemas $(@D)

# Programs to run beside the service, not a part of its build: the one version of each is pinned here.
$(BIN)/k6:
	GOBIN=$(BIN) go install go.k6.io/k6@v1.8.1

$(BIN)/gotestsum:
	CGO_ENABLED=0 GOBIN=$(BIN) go install gotest.tools/gotestsum@v1.13.0

$(BIN)/nats-server: go.mod go.sum
	CGO_ENABLED=0 go build -o $@ github.com/nats-io/nats-server/v2
	@touch $@

# schemathesis is a program of Python, in an environment of its own.
$(BIN)/schemathesis/complete: deployments/schema/requirements.txt
	deployments/tools/install-schemathesis $(@D)

# The linters of the document are programs of Node.js.
$(BIN)/openapi/complete: deployments/tools/openapi/package.json deployments/tools/openapi/package-lock.json
	deployments/tools/install-openapi-linters $(@D)

.PHONY: deps
deps: # what the tests need beside Go: a C compiler for the race detector, and the servers
	@deployments/tools/install-servers

.PHONY: deps-browser
deps-browser: # what the console is tested in
	@deployments/tools/install-servers chromium

.PHONY: deps-chart
deps-chart: $(BIN)/helm # what renders the chart

.PHONY: deps-examples
deps-examples: $(BIN)/examples/complete # what the examples are run with: Node.js, a JDK, Maven

$(BIN)/examples/complete: deployments/tools/install-examples $(wildcard docs/examples/buyer-typescript/*.*) docs/examples/java-shares-the-lock/pom.xml
	deployments/tools/install-examples $(@D)

.PHONY: deps-haproxy
deps-haproxy: # what stands before several database servers
	@deployments/tools/install-servers haproxy

.PHONY: deps-proxies
deps-proxies: $(BIN)/nginx-1.26/bin/nginx $(BIN)/prometheus # what stands beside the instances: nginx, also a later one, HAProxy and Prometheus
	@deployments/tools/install-servers nginx haproxy

$(BIN)/nginx-1.26/bin/nginx: deployments/tools/install-nginx
	deployments/tools/install-nginx $(BIN)/nginx-1.26
