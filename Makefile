# dray. `make` lists the targets; each first gets what it needs by scripts/setup.

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VERSION = $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
COMMIT = $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
COMMAND = github.com/dray-dev/dray/cmd/dray/command

# Written by scripts/setup: where the devcontainer CLI, the images and Robot Framework are.
ENV := . .tools/env

##@ Use

.PHONY: run
run: ## Get this machine ready, build dray, and show a tool run on the host and in a devcontainer
	@scripts/setup compiler engine cli images
	@$(MAKE) build
	@$(ENV) && scripts/demo

.PHONY: build
build: agents ## Build bin/dray with the agents inside
	@echo "building bin/dray $(VERSION)"
	@CGO_ENABLED=1 go build -trimpath -buildvcs=false -o bin/dray \
		-ldflags "-X $(COMMAND).version=$(VERSION) -X $(COMMAND).commit=$(COMMIT)" ./cmd/dray

.PHONY: agents
agents:
	@scripts/setup --check go compiler >/dev/null
	@scripts/build-agents

##@ Prove

.PHONY: test
test: ready ## All tests: vet, Go with race detector and engine, features, fuzz targets, OpenAPI fuzzer, Robot Framework
	@scripts/test $(SUITES)

.PHONY: check
check: build ## Format, tidy, lint, dead code, known vulnerabilities, short race tests, agent size
	@scripts/check

.PHONY: bench
bench: ready ## Compare calls through dray with the alternatives; PARTS=calls for one part
	@scripts/setup swerex || echo "bench: measuring without SWE-ReX" >&2
	@scripts/setup ipykernel || echo "bench: measuring without ipykernel" >&2
	@$(ENV) && go run ./bench $(PARTS)

.PHONY: soak
soak: ready ## Everything that needs long, at published counts; writes docs/evidence
	@scripts/soak $(PARTS)

##@ Keep

.PHONY: setup
setup: ## Get this machine ready: compiler, engines, devcontainer CLI, images, Robot Framework, schemathesis
	@scripts/setup

.PHONY: install
install: ## Install bin/dray, its systemd user units and completions below PREFIX (/usr/local)
	@PREFIX="$(PREFIX)" scripts/install

.PHONY: uninstall
uninstall: ## Remove what make install has installed below PREFIX
	@PREFIX="$(PREFIX)" scripts/install uninstall

.PHONY: clean
clean: ## Remove what the build made; .tools stays
	rm -rf bin executor/agentbin/bin/dray-agent-*

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^##@/ { printf "\n%s\n", substr($$0, 5) } /^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: ready
ready: setup
	@$(MAKE) build
