# `make` prints this list. Everything a target needs beyond Go it installs or
# starts by itself, or says in one sentence what to install.

GO      ?= go
TOOL    := $(GO) tool -modfile=tools/go.mod
export GOFLAGS += -buildvcs=false
# Tests that draw their cases draw the same ones each time, so that nobody's change fails
# for a fault that was there before. `make search` draws others.
export RAPID_SEED ?= 1
# What `version` says. Git may be missing or refuse a checkout of another owner.
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
STAMP   := -ldflags "-X github.com/scheduler-service/scheduler/internal/version.stamped=$(VERSION)"
# What the processes spend their time on: the compiler optimises that. Tests and `make run` do
# without, because the whole of the libraries is compiled anew for it.
PROFILE := -pgo=deploy/profile.pgo

.DEFAULT_GOAL := help
.PHONY: help run seed test search race lint security gen client web e2e check bench profile chaos chaos-long build

help: ## print this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: ## start the whole service on this machine and say what to do next
	@echo "building the service (the first time takes a minute)"
	@$(GO) build $(STAMP) -o .data/bin/standalone ./cmd/standalone
	@exec .data/bin/standalone

# SEED hands on flags, such as SEED='-jobs 1000 -executions 50000 -hostile'.
seed: ## fill the installation that `make run` has started with 100,000 jobs and 5 million executions
	$(GO) run ./cmd/seed $(SEED)

# vet sees all that go test would have it look for again, test by test. One package more
# than there are processors runs at a time, and the slowest begins first: its tests wait for
# processes of their own.
test: ## all tests, on a real PostgreSQL and Redis that they start themselves
	$(GO) vet ./...
	$(GO) vet -tags=profile ./cmd/internal/program
	RAPID_CHECKS=$${RAPID_CHECKS:-50} $(GO) test -vet=off -shuffle=on -p=$$(($$(getconf _NPROCESSORS_ONLN) + 1)) -timeout=15m ./internal/proof/e2e ./...

search: ## tests that draw their cases, with twenty times as many new ones
	RAPID_SEED=0 RAPID_CHECKS=1000 $(GO) test -count=1 -timeout=60m $$($(GO) list -f '{{if .Dir}}{{.ImportPath}} {{join .TestImports " "}} {{join .XTestImports " "}}{{end}}' ./... | grep pgregory.net/rapid | cut -d' ' -f1)
	$(GO) test -count=1 -timeout=30m ./internal/promoter -run TestYear -year.seed=0 -year.jobs=200

# Long tests in which one goroutine works, or processes of their own, take two minutes of the
# detector's time and show it nothing.
ALONE := ^(TestABatchOfAThousand|TestAdvisedLocksAreEnough|TestAListOfVersionsHoldsNoDefinitions|TestAPageOfLargeJobsIsShort|TestManyKilledProgramsLeaveNothing|TestMigrationsGoUpAndDownAndUp|TestTheHistoryOfAnOlderInstallationGetsItsKey|TestTheMatrixOfOperationsAndCallers|TestYear)$$

# The proofs and the simulated year are left out: simulations run in one goroutine,
# and the others mostly wait for processes of their own, which no detector sees. So do
# those of scripts, modules and commands: the detector needs more memory than they may have.
race: ## tests under the race detector, but simulations and internal/proof (needs a C compiler)
	CGO_ENABLED=1 $(GO) test -race -short -skip='$(ALONE)' -shuffle=on -timeout=15m $$($(GO) list ./... | grep -v -E '/internal/(proof/|executor/(javascript|runner|sandbox|wasm))')

lint: ## vet, staticcheck, gofumpt, and whether modules are what their sums say
	$(GO) mod verify
	$(GO) vet ./...
	$(TOOL) staticcheck ./...
	@unformatted=$$($(TOOL) gofumpt -l cmd internal migrations); \
	if [ -n "$$unformatted" ]; then echo "not gofumpt-ed:"; echo "$$unformatted"; exit 1; fi

# Without a way to the database of vulnerabilities it says so, and that is all.
security: ## what gosec finds, a list of what is shipped (SBOM), and known vulnerabilities
	@mkdir -p .data/shipped
	$(GO) -C tools/security build -o $(CURDIR)/.data/bin/ ./findings ./sbom
	.data/bin/findings .
	$(GO) build $(STAMP) -o .data/shipped/ ./cmd/api ./cmd/promoter ./cmd/worker ./cmd/migrate ./cmd/standalone ./cmd/schedctl
	.data/bin/sbom .data/shipped/* > .data/sbom.json
	@if $(GO) tool -modfile=tools/security/go.mod govulncheck ./... > .data/vulnerabilities.txt 2>&1; then echo "govulncheck: no known vulnerabilities"; \
	elif grep -q 'fetching vulnerabilities' .data/vulnerabilities.txt; then echo "known vulnerabilities were NOT looked up: $$(tail -1 .data/vulnerabilities.txt)"; \
	else cat .data/vulnerabilities.txt; exit 1; fi

gen: ## regenerate api/ from openapi.yaml, db/ from migrations/ and db/queries/, and the chart's alerts
	cp deploy/prometheus/alerts.yml deploy/helm/scheduler/alerts.yml
	$(GO) generate ./api
	$(TOOL) sqlc generate
	@if command -v npm >/dev/null; then npm --prefix api/typescript ci --silent && npm --prefix api/typescript run --silent generate; \
	else echo "npm is missing: the TypeScript client was not regenerated"; fi

client: ## lint the contract; build, check and try the TypeScript client (needs Node 20)
	npm --prefix api/typescript ci --silent --no-audit --no-fund
	npm --prefix api/typescript run --silent lint
	npm --prefix api/typescript run --silent fresh
	npm --prefix api/typescript test

# The build is committed, so that the programs need no Node; a test says when it is stale.
web: ## check and build the console of web/ into web/dist (needs Node 20)
	npm --prefix web ci --silent --no-audit --no-fund
	npm --prefix web run --silent check
	npm --prefix web run --silent build

e2e: ## try the console in a real browser, on an installation of its own (needs Node 20 and Chromium)
	npm --prefix web ci --silent --no-audit --no-fund
	$(GO) build $(STAMP) -o .data/bin/ ./cmd/standalone ./cmd/seed
	npm --prefix web run --silent e2e

check: lint gen test client ## all that a change must pass; generated code must be up to date
	git diff --exit-code -- api db deploy

bench: ## measure the product beside this machine's own limits
	$(GO) run ./cmd/bench

profile: ## measure anew what the compiler optimises (deploy/profile.pgo), some five minutes
	@rm -rf .data/profiles && mkdir -p .data/profiles
	$(GO) run ./cmd/bench -profiles $(CURDIR)/.data/profiles -only apiload,steady,drain -rates 1000 -spread 4000 -jobs 3000 -history 10000 -seconds 5
	$(GO) tool pprof -proto .data/profiles/*.pprof >.data/profiles/all && mv .data/profiles/all deploy/profile.pgo

chaos: ## break a private installation for a minute and check what is promised
	$(GO) run ./cmd/chaos

chaos-long: ## every fault in turn, three seeds of five minutes, with Redis and without: some 35 minutes; writes its figures into docs
	@mkdir -p .data/chaos && rm -f .data/chaos/*.json
	@for backend in auto postgres; do for seed in 1 2 3; do \
		fleet=; if [ $$seed = 3 ]; then fleet="-workers 16 -promoters 4 -backlog 40000 -storm 50"; fi; \
		$(GO) run ./cmd/chaos -backend $$backend -seed $$seed -duration 5m -apart 3s -json .data/chaos/$$backend-$$seed.json $$fleet || exit 1; \
	done; done
	$(GO) run ./cmd/chaos -out docs/how/tests.md .data/chaos/*.json

build: ## the processes, into .data/bin
	$(GO) build $(STAMP) $(PROFILE) -o .data/bin/ ./cmd/...
