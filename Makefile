# Everything that is done with this tree. `make help` lists it.
#
# GNU make. Each recipe line runs in a bash that stops at the first failure, also inside a pipe.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PREFIX = /usr/local
BINDIR = $(PREFIX)/bin
LIBDIR = $(PREFIX)/lib
INCLUDEDIR = $(PREFIX)/include

# What install takes its files from.
BUILT = target/release
VERSION = $(shell sed -n 's/^version *= *"\(.*\)".*/\1/p' Cargo.toml)

# rustup puts cargo there and not every shell looks there.
CARGO_HOME ?= $(HOME)/.cargo
export PATH := $(CARGO_HOME)/bin:$(PATH)

.PHONY: help demo program build test check test-real soak release test-kernels test-c test-loom test-miri test-python \
  test-sanitizer python docs manual fuzz ci msrv header api \
  bench-cc bench-dial bench-doctor bench-doctor-fail-on bench-doctor-matrix bench-engines bench-finish bench-gate \
  bench-heal bench-lab bench-link bench-replication bench-torture reports install uninstall clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-17s  %s\n", $$1, $$2 }' Makefile

demo: program ## Build, then lose bytes and get them back, on this machine alone
	target/release/lastbyte demo

# Where what builds BPF cannot be had, all else is built. In one run of cargo: for the C library alone it
# would build half of the dependencies again, with other features.
program: PACKAGES = -p lastbyte-cli
build: PACKAGES = -p lastbyte-cli -p lastbyte-capi
program: ## Build the release binary, target/release/lastbyte
build: ## Build that and the C library
program build:
	@scripts/ensure.sh build
	@features=; \
	if ! scripts/ensure.sh bpf; then \
	  echo "build: goes on without that: lastbyte cc will load no congestion control" >&2; \
	  features=" --no-default-features"; \
	fi; \
	echo "cargo build --release --locked $(PACKAGES)$$features"; \
	cargo build --release --locked $(PACKAGES)$$features

# Which tests these are, and which of them run alone: .config/nextest.toml.
test: ## Run the quick tests (some in namespaces of their own)
	@scripts/ensure.sh test
	scripts/tests.py test
	cargo test --workspace --doc --locked

# The documentation of the program comes first and by itself: the library `lastbyte` has the same
# name, so its pages replace those of the binary. Each run of cargo that can names the workspace, so that
# dependencies have the same features and are built once; without `bpf` the program is looked at alone,
# as its tests want all features.
check: ## Check format, lints, documentation, scripts, the rules of the house, the oldest compiler
	@scripts/ensure.sh check
	cargo fmt --check
	shopt -s nullglob; shellcheck scripts/*.sh bench/*.sh bench/torture .ci/run
	scripts/test-ensure.sh
	# With the flags of crates/bpf/src/compile.rs; a warning is an error here alone.
	for source in crates/congestion/bpf/*.bpf.c crates/doctor/bpf/*.bpf.c; do \
	  clang -target bpf -mcpu=v3 -O2 -g -Wall -Wextra -Werror -c "$$source" -o /dev/null; \
	done
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo clippy --workspace --test house --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc -p lastbyte-cli --no-deps --document-private-items --locked
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --exclude lastbyte-cli --no-deps \
	  --document-private-items --locked
	cargo clippy -p lastbyte-cli --no-default-features --locked -- -D warnings
	cargo test --workspace --locked --test house
	$(MAKE) --no-print-directory api API=check
	@$(MAKE) --no-print-directory msrv

# What the crate `lastbyte` offers, as its documentation has it: so any compiler will do. The documentation above
# has private items too.
API = write
api: ## Write the public names of the library to crates/lastbyte/api.txt, which `make check` compares
	@scripts/ensure.sh build
	cargo doc -p lastbyte --no-deps --all-features --locked
	cargo run -q -p lastbyte-testing --example api --locked -- $(API)

# Those of soak apart, which rest on how fast this machine is just then.
test-real: ## Run the quick and the slow tests, against iperf3 and real links, in C and in Python
	@scripts/ensure.sh real
	scripts/tests.py gate
	cargo test --workspace --doc --locked
	@$(MAKE) --no-print-directory test-loom test-python

soak: ## Run everything, with what judges rates and times; keeps what came of it (3 hours, root)
	@scripts/ensure.sh real
	scripts/tests.py soak

release: ## Build what is released; refuses where the last soak failed, is old, or was of other code
	@scripts/tests.py may-release
	@$(MAKE) --no-print-directory build python

# Part of soak alone: a kernel takes minutes, more of them where its processors are emulated.
test-kernels: ## Run the doctor on Debian's kernels, in qemu (5 to 15 minutes for each, root)
	@scripts/ensure.sh kernels
	scripts/kernels.sh

test-loom: ## Try every order in which two threads can meet in what they share
	@scripts/ensure.sh build
	RUSTFLAGS="--cfg lastbyte_loom" cargo test -p lastbyte-core -p lastbyte-metrics --lib --locked --target-dir target/loom every_order

# What asks the kernel cannot run in it; what decides can.
test-miri: ## Run the tests of what decides under Miri, which sees undefined behaviour
	@scripts/ensure.sh build
	@if ! cargo +nightly miri --version > /dev/null 2>&1 && \
	    ! rustup toolchain install nightly --profile minimal --component miri,rust-src > /dev/null 2>&1; then \
	  echo "test-miri: NOT TESTED: no nightly Rust with Miri here, and none to be had" >&2; \
	  exit 0; \
	fi; \
	echo "cargo +nightly miri test -p lastbyte-core --lib"; \
	cargo +nightly miri test -p lastbyte-core --lib --locked --target-dir target/miri

test-c: ## Search all C, BPF too, for faults: clang's static analyser, cppcheck
	@scripts/ensure.sh c
	scripts/c.sh

# Threads that share memory: counters of a gate, its threads, the dialler's. The standard library is built with it.
test-sanitizer: ## Run the tests of gate, metrics and dial under ThreadSanitizer, which sees races
	@scripts/ensure.sh build
	@if ! rustup toolchain install nightly --profile minimal --component rust-src > /dev/null 2>&1 && \
	    ! cargo +nightly --version > /dev/null 2>&1; then \
	  echo "test-sanitizer: NOT TESTED: no nightly Rust here, and none to be had" >&2; \
	  exit 0; \
	fi; \
	export RUSTFLAGS="-Zsanitizer=thread"; \
	echo "cargo +nightly test -Zbuild-std -p lastbyte-gate -p lastbyte-metrics -p lastbyte-dial --lib"; \
	cargo +nightly test -Zbuild-std --target "$$(rustc -vV | sed -n 's/^host: //p')" --locked \
	  -p lastbyte-gate -p lastbyte-metrics -p lastbyte-dial --lib --target-dir target/sanitizer

test-python: ## Run the tests of the Python package, with tools from its index
	@scripts/ensure.sh python
	scripts/python.sh test

python: ## Build the Python package, a wheel in target/wheels
	@scripts/ensure.sh python
	scripts/python.sh build

docs: ## Build the pages of docs as a book, target/book/index.html
	@scripts/ensure.sh docs
	target/tools/mdbook/bin/mdbook build docs

manual: ## Write what the program knows into docs anew: options, codes, scenarios, keys
	@scripts/ensure.sh bpf
	LASTBYTE_WRITE_MANUAL=1 cargo test -p lastbyte-cli --bin lastbyte --locked manual::

# How long for each target.
FUZZ_SECONDS = 60

fuzz: ## Feed random bytes to what decides and what parses (FUZZ_SECONDS=60 for each target)
	@scripts/ensure.sh build
	@cargo +nightly --version > /dev/null 2>&1 || rustup toolchain install nightly --profile minimal
	@cargo fuzz --version > /dev/null 2>&1 || cargo install cargo-fuzz --locked
	@for target in $$(cargo +nightly fuzz list --fuzz-dir fuzz); do \
	  echo "cargo +nightly fuzz run $$target"; \
	  cargo +nightly fuzz run --fuzz-dir fuzz "$$target" "fuzz/corpus/$$target" -- \
	    -max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=2048; \
	done

ci: ## Run check and test-real, as the build server does
	@scripts/tests.py last-soak
	@for stage in check test-real; do \
	  printf '\n=== %s (after %d s) ===\n' "$$stage" "$$SECONDS"; \
	  $(MAKE) --no-print-directory "$$stage"; \
	done; \
	printf '\n=== all passed (after %d s) ===\n' "$$SECONDS"

msrv: ## Check that the oldest compiler promised in Cargo.toml still builds it
	@scripts/ensure.sh bpf
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

bench-cc: program ## Measure the congestion controls of the catalogue (90 minutes, root)
	@scripts/ensure.sh build
	cargo build --release --locked -p lastbyte-congestion --example congestion_cost
	bench/cc.sh

bench-dial: program ## Measure dials beside curl, Python, Go and Node (20 minutes, root)
	@scripts/ensure.sh dial
	cargo build --release --locked -p lastbyte-dial --example dial_bench
	bench/dial.sh

bench-doctor: program ## Measure what the doctor costs those it watches, and itself (20 minutes, root)
	cargo build --release --locked -p lastbyte-socket --example gate_load
	bench/doctor.sh

bench-doctor-matrix: ## Try what the doctor finds where it is refused something (12 minutes, root)
	@scripts/ensure.sh bpf
	@scripts/ensure.sh real
	cargo build --locked -p lastbyte-cli
	bench/doctor/matrix.py build
	bench/doctor/matrix.py run --output target/matrix/runs
	bench/doctor/matrix.py render target/matrix/runs

bench-doctor-fail-on: program ## Count how often a build that loses bytes would pass, idle and busy (40 minutes, root)
	mkdir -p bench/results
	bench/doctor/fail_on.py | tee bench/results/doctor-fail-on.txt
	bench/doctor/fail_on.py --busy | tee -a bench/results/doctor-fail-on.txt

bench-engines: ## Measure ways to move bytes between two sockets (15 minutes, root)
	@scripts/ensure.sh gate
	cargo build --release --locked --manifest-path bench/engines/Cargo.toml --target-dir target/engines
	mkdir -p bench/results
	nice -n -10 target/engines/release/engines bench | tee bench/results/engines.txt

bench-finish: program ## Measure what a server pays for each way to end a connection (15 minutes, root)
	@scripts/ensure.sh bench
	cargo build --release --locked -p lastbyte --example finish_cost
	bench/finish.py

bench-gate: program ## Measure the gate beside HAProxy, nginx, socat and rathole (30 minutes, root)
	@scripts/ensure.sh gate
	cargo build --release --locked -p lastbyte-socket --example gate_load
	bench/gate.sh

bench-heal: program ## Measure uploads before and after heal, over 33 paths (25 minutes, root)
	@scripts/ensure.sh python
	bench/heal.sh

bench-lab: program ## Measure the lab against the reference case, iperf3, xfr (an hour, root)
	@scripts/ensure.sh real
	bench/lab.sh

bench-link: program ## Measure links: speed, truth, what they leave behind (35 minutes, root)
	@scripts/ensure.sh bench
	bench/link/measure.py

bench-replication: program ## Measure how far a MariaDB replica is behind, over usa-malaysia (30 minutes, root)
	@scripts/ensure.sh bench
	bench/replication.sh

bench-torture: program ## Torture proxies beside plain TCP, and write their table (40 minutes, root)
	@scripts/ensure.sh gate
	cargo build --release --locked -p lastbyte-torture
	bench/proxies.py

reports: program ## Measure five scenarios and write a page for each, in target/reports (30 minutes, root)
	bench/reports.sh

header: ## Write crates/capi/include/lastbyte.h anew, from the sources in Rust
	@scripts/ensure.sh build
	LASTBYTE_WRITE_HEADER=1 cargo test -p lastbyte-capi --locked --test all header::

# Cargo strips no static library: what only debuggers read of the standard library is a third of it. The
# name with .so.0 is what programs look for; build.rs of crates/capi wrote it into the shared one.
install: ## Install program, C library and header to PREFIX (/usr/local; DESTDIR is honoured)
	@for file in lastbyte liblastbyte_c.so liblastbyte_c.a; do \
	  test -e "$(BUILT)/$$file" || \
	    { echo "install: $(BUILT)/$$file is missing: run 'make build' first" >&2; exit 2; }; \
	done
	install -d "$(DESTDIR)$(BINDIR)" "$(DESTDIR)$(LIBDIR)/pkgconfig" "$(DESTDIR)$(INCLUDEDIR)"
	install -m 755 "$(BUILT)/lastbyte" "$(DESTDIR)$(BINDIR)/lastbyte"
	install -m 644 crates/capi/include/lastbyte.h "$(DESTDIR)$(INCLUDEDIR)/lastbyte.h"
	install -m 644 "$(BUILT)/liblastbyte_c.a" "$(DESTDIR)$(LIBDIR)/liblastbyte.a"
	install -m 755 "$(BUILT)/liblastbyte_c.so" "$(DESTDIR)$(LIBDIR)/liblastbyte.so.$(VERSION)"
	strip --strip-debug "$(DESTDIR)$(LIBDIR)/liblastbyte.a"
	ln -sf liblastbyte.so.$(VERSION) "$(DESTDIR)$(LIBDIR)/liblastbyte.so.0"
	ln -sf liblastbyte.so.0 "$(DESTDIR)$(LIBDIR)/liblastbyte.so"
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@VERSION@|$(VERSION)|' \
	  -e 's|@INCLUDEDIR@|$(INCLUDEDIR)|' crates/capi/lastbyte.pc.in \
	  > "$(DESTDIR)$(LIBDIR)/pkgconfig/lastbyte.pc"
	@if [[ -z "$(DESTDIR)" && $$(id -u) == 0 ]] && command -v ldconfig > /dev/null; then ldconfig; fi

uninstall: ## Remove what install put there
	rm -f "$(DESTDIR)$(BINDIR)/lastbyte" "$(DESTDIR)$(INCLUDEDIR)/lastbyte.h"
	rm -f "$(DESTDIR)$(LIBDIR)/pkgconfig/lastbyte.pc" "$(DESTDIR)$(LIBDIR)"/liblastbyte.{a,so}
	rm -f "$(DESTDIR)$(LIBDIR)"/liblastbyte.so.{0,$(VERSION)}
	@if [[ -z "$(DESTDIR)" && $$(id -u) == 0 ]] && command -v ldconfig > /dev/null; then ldconfig; fi

clean: ## Remove everything that was built
	rm -rf target
