# Everything that is done with this tree. `make help` lists it.
#
# GNU make. Each recipe line runs in a bash that stops at the first failure, also inside a pipe.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PREFIX = /usr/local
BINDIR = $(DESTDIR)$(PREFIX)/bin

# rustup puts cargo there and not every shell looks there.
CARGO_HOME ?= $(HOME)/.cargo
export PATH := $(CARGO_HOME)/bin:$(PATH)

.PHONY: help demo build test check test-real test-python python ci msrv bench-lab bench-link install uninstall clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s  %s\n", $$1, $$2 }' Makefile

demo: build ## Build, then lose bytes and get them back, on this machine alone
	target/release/lastbyte demo

build: ## Build the release binary, target/release/lastbyte
	@scripts/ensure.sh build
	cargo build --release --locked -p lastbyte-cli

test: ## Run the quick tests (some in namespaces of their own)
	@scripts/ensure.sh build
	cargo test --workspace --locked

# The documentation of the program comes first and by itself: the library `lastbyte` has the same
# name, so its pages replace those of the binary.
check: ## Check format, lints, documentation, scripts, the rules of the house, the oldest compiler
	@scripts/ensure.sh check
	cargo fmt --check
	shopt -s nullglob; shellcheck scripts/*.sh bench/*.sh .ci/run
	scripts/test-ensure.sh
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo clippy -p lastbyte-cli --test house --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc -p lastbyte-cli --no-deps --document-private-items --locked
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --exclude lastbyte-cli --no-deps \
	  --document-private-items --locked
	cargo test -p lastbyte-cli --locked --test house
	@$(MAKE) --no-print-directory msrv

test-real: ## Run the slow tests, against iperf3 and real links, and those of the Python package
	@scripts/ensure.sh real
	cargo test --workspace --locked -- --ignored --test-threads=1
	@$(MAKE) --no-print-directory test-python

test-python: ## Run the tests of the Python package, with tools from its index
	@scripts/ensure.sh python
	scripts/python.sh test

python: ## Build the Python package, a wheel in target/wheels
	@scripts/ensure.sh python
	scripts/python.sh build

ci: ## Run check, test and test-real, as the build server does
	@for stage in check test test-real; do \
	  printf '\n=== %s (after %d s) ===\n' "$$stage" "$$SECONDS"; \
	  $(MAKE) --no-print-directory "$$stage"; \
	done; \
	printf '\n=== all passed (after %d s) ===\n' "$$SECONDS"

msrv: ## Check that the oldest compiler promised in Cargo.toml still builds it
	@scripts/ensure.sh build
	@version=$$(sed -n 's/^rust-version *= *"\(.*\)".*/\1/p' Cargo.toml); \
	if ! command -v rustup > /dev/null; then \
	  echo "msrv: SKIPPED: no rustup here, so Rust $$version was not tried" >&2; \
	  exit 0; \
	fi; \
	if ! rustup toolchain list | grep "^$$version-" > /dev/null; then \
	  echo "msrv: installing Rust $$version with rustup" >&2; \
	  rustup toolchain install "$$version" --profile minimal; \
	fi; \
	echo "cargo +$$version check --workspace --locked --target-dir target/msrv"; \
	cargo "+$$version" check --workspace --locked --target-dir target/msrv

bench-lab: build ## Measure the lab against the reference case and iperf3 (15 minutes, root)
	@scripts/ensure.sh real
	bench/lab.sh

bench-link: build ## Measure links: speed, truth, what they leave behind (35 minutes, root)
	@scripts/ensure.sh bench
	bench/link.sh

install: ## Install the built binary to PREFIX/bin (PREFIX=/usr/local; DESTDIR is honoured)
	@test -x target/release/lastbyte || \
	  { echo "install: target/release/lastbyte is missing: run 'make build' first" >&2; exit 2; }
	install -d "$(BINDIR)"
	install -m 755 target/release/lastbyte "$(BINDIR)/lastbyte"

uninstall: ## Remove what install put there
	rm -f "$(BINDIR)/lastbyte"

clean: ## Remove everything that was built
	rm -rf target
