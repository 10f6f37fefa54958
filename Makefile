# `make` prints this list. Everything a target needs beyond Go it installs or
# starts by itself, or says in one sentence what to install.

GO      ?= go
TOOL    := $(GO) tool -modfile=tools/go.mod
export GOFLAGS += -buildvcs=false
# What `version` says. Git may be missing or refuse a checkout of another owner.
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
STAMP   := -ldflags "-X github.com/scheduler-service/scheduler/internal/version.stamped=$(VERSION)"

.DEFAULT_GOAL := help
.PHONY: help run test race lint gen client check bench chaos chaos-long build

help: ## print this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: ## start the whole service on this machine and say what to do next
	@echo "building the service (the first time takes a minute)"
	@$(GO) build $(STAMP) -o .data/bin/standalone ./cmd/standalone
	@exec .data/bin/standalone

test: ## all tests, on a real PostgreSQL and Redis that they start themselves
	$(GO) vet ./...
	$(GO) test -shuffle=on -timeout=15m ./...

# The proofs and the simulated year are left out: simulations run in one goroutine,
# and the others mostly wait for processes of their own, which no detector sees.
race: ## tests under the race detector, but simulations and internal/proof (needs a C compiler)
	CGO_ENABLED=1 $(GO) test -race -short -shuffle=on -timeout=15m $$($(GO) list ./... | grep -v /internal/proof/)

lint: ## vet, staticcheck, gofumpt, and whether modules are what their sums say
	$(GO) mod verify
	$(GO) vet ./...
	$(TOOL) staticcheck ./...
	@unformatted=$$($(TOOL) gofumpt -l cmd internal migrations); \
	if [ -n "$$unformatted" ]; then echo "not gofumpt-ed:"; echo "$$unformatted"; exit 1; fi

gen: ## regenerate api/ from openapi.yaml, and db/ from migrations/ and db/queries/
	$(GO) generate ./api
	$(TOOL) sqlc generate
	@if command -v npm >/dev/null; then npm --prefix api/typescript ci --silent && npm --prefix api/typescript run --silent generate; \
	else echo "npm is missing: the TypeScript client was not regenerated"; fi

client: ## lint the contract; build, check and try the TypeScript client (needs Node 20)
	npm --prefix api/typescript ci --silent --no-audit --no-fund
	npm --prefix api/typescript run --silent lint
	npm --prefix api/typescript run --silent fresh
	npm --prefix api/typescript test

check: lint gen test client ## all that a change must pass; generated code must be up to date
	git diff --exit-code -- api db

bench: ## measure the product beside this machine's own limits
	$(GO) run ./cmd/bench

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
	$(GO) build $(STAMP) -o .data/bin/ ./cmd/...
