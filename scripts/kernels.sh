#!/usr/bin/env bash
# Runs what asks the kernel on other kernels than this machine's: those of Debian, in qemu.
#
#   scripts/kernels.sh                 one kernel of each series in `series`
#   scripts/kernels.sh 6.1             the newest of this series that the archive has
#   scripts/kernels.sh FILE.deb...     the kernel in these packages, fetched by hand
#
# With KERNELS_CHECK="NAME SECONDS COMMAND" that alone is run there, as root.
#
# Nothing is installed: a package is unpacked below target/kernels, its kernel is booted with this
# machine's files as its own, over which it writes into its memory alone, and scripts/kernels-guest.sh
# runs there. What that says is in target/kernels/RELEASE/told. A kernel that cannot be had is NOT TESTED.
#
# Packages come from the archive that apt here takes Debian's from.
set -euo pipefail

# Series, and the suite of Debian that has it; of the last one the newest kernel.
series=(5.10:bullseye 6.1:bookworm 6.12:trixie 7:trixie-backports)
# A kernel has so long for everything, seconds.
limit=3600

main() {
  local wanted=("$@")
  mkdir -p "$place"
  need_tools || { say "NOT TESTED: $why"; return 0; }
  build_tests
  if [[ ${1:-} == *.deb ]]; then
    test_kernel "$@"
  else
    if [[ $# == 0 ]]; then wanted=("${series[@]%%:*}"); fi
    need_lists || { say "NOT TESTED: $why"; return 0; }
    local one
    for one in "${wanted[@]}"; do test_series "$one"; done
  fi
  say "tested: ${tested[*]:-nothing}${untested:+; NOT TESTED:$untested}"
  [[ ${#failed[@]} -eq 0 ]] || { say "FAILED: ${failed[*]}"; exit 1; }
}

need_tools() {
  local tool
  if [[ $(uname -m) != x86_64 ]]; then why="only kernels for x86-64 are known here"; fi
  for tool in qemu-system-x86_64 busybox cpio depmod modprobe apt-get dpkg-deb; do
    command -v "$tool" > /dev/null || why="there is no $tool (qemu-system-x86, busybox-static, cpio, kmod)"
  done
  if [[ -w /dev/kvm ]]; then accelerator=kvm; fi
  [[ -z $why ]]
}

# --- packages ------------------------------------------------------------------------------------

# Lists of packages of their own, so that those of the machine stay as they are.
need_lists() {
  local archive suite
  # shellcheck disable=SC2016 # apt fills these in
  archive=$(apt-get indextargets --format '$(ORIGIN) $(RELEASE) $(REPO_URI)' 'Created-By: Packages' |
    awk '$1 == "Debian" && $2 !~ /-/ { print $3; exit }')
  if [[ -z $archive ]]; then why="apt here takes no packages from an archive of Debian"; return 1; fi
  mkdir -p "$lists/state/partial" "$lists/cache/archives/partial"
  for suite in $(printf '%s\n' "${series[@]#*:}" | sort -u); do
    echo "deb [arch=amd64] $archive $suite main"
  done > "$lists/sources"
  if [[ -e $lists/fetched && -z $(find "$lists/fetched" -mmin +1440) ]] && cmp -s "$lists/"{sources,fetched}; then
    return 0
  fi
  say "fetching lists of packages into target/kernels"
  # A suite that has left the archive leaves the others as they are.
  timeout 300 apt-get "${apt[@]}" -q -o Acquire::Languages=none update > "$lists/log" 2>&1 ||
    say "not all of them: $(grep '^E:' "$lists/log" | head -1)"
  cp "$lists/sources" "$lists/fetched"
}

test_series() {
  local release packages=() one
  release=$(apt-cache "${apt[@]}" pkgnames "linux-image-$1." | sed -n 's/^linux-image-\([0-9.+a-z-]*[0-9]-amd64\)$/\1/p' |
    sort -V | tail -1)
  if [[ -z $release ]]; then
    untested+=" $1 (the archive has none);"
    return 0
  fi
  # From 7 on the kernel and its modules are packages of their own.
  for one in image base binary modules; do
    if apt-cache "${apt[@]}" show "linux-$one-$release" > /dev/null 2>&1; then packages+=("linux-$one-$release"); fi
  done
  mkdir -p "$place/packages/$release"
  (
    cd "$place/packages/$release"
    compgen -G '*.deb' > /dev/null || timeout 600 apt-get "${apt[@]}" -q download "${packages[@]}" >&2
  ) || { untested+=" $1 (its packages could not be fetched);"; return 0; }
  test_kernel "$place/packages/$release"/*.deb
}

# --- a kernel ------------------------------------------------------------------------------------

test_kernel() {
  local outcome
  release=${1##*/}
  release=${release%%_*}
  release=${release#linux-*-}
  out=$place/$release
  [[ -e $out/initrd ]] || unpack "$@"
  rm -rf "$out/told" "$out/console"
  mkdir -p "$out/told"
  write_checks
  say "$release: boots"
  boot
  outcome=$(cat "$out/told/outcome" 2> /dev/null || echo "did not come to its end: ${out#"$root_of_tree/"}/console")
  cat "$out/told/summary" 2> /dev/null || true
  say "$release: $outcome"
  tested+=("$release")
  if [[ $outcome != passed ]]; then failed+=("$release"); fi
}

unpack() {
  local root=$out.unpacked package
  rm -rf "$root" "$out"
  for package; do dpkg-deb -x "$package" "$root"; done
  mkdir -p "$out/modules/lib/modules/$release"
  find "$root" -name 'vmlinuz*' -type f -exec mv {} "$out/vmlinuz" \;
  take_modules "$root"
  rm -rf "$root"
  make_initramfs
}

# Those of networks and file systems, unpacked.
take_modules() {
  local to=$out/modules/lib/modules/$release from folders folder
  for from in "$1"{,/usr}"/lib/modules/$release"; do
    if [[ -d $from/kernel ]]; then break; fi
  done
  cp "$from"/modules.{builtin,builtin.modinfo,order} "$to"
  for folder in net lib crypto arch/x86/crypto fs/9p fs/netfs fs/fscache fs/overlayfs drivers/virtio \
    drivers/net/tun.ko drivers/net/veth.ko; do
    compgen -G "$from/kernel/$folder*" > /dev/null && folders+=" kernel/$folder"
  done
  (
    cd "$from"
    for folder in $folders; do find "$folder"* -name '*.ko*'; done | cpio -pdm --quiet "$to"
  )
  find "$to" -name '*.xz' -exec xz -d {} +
  depmod -b "$out/modules" "$release" 2> /dev/null
}

# What it needs to take this machine's files for its own.
make_initramfs() {
  local tree=$out/initramfs module number=100
  mkdir -p "$tree"/{bin,modules,proc,sys,dev,lower,upper,root}
  cp "$(command -v busybox)" "$tree/bin/busybox"
  for module in virtio_pci 9pnet_virtio 9p overlay; do
    modprobe -d "$out/modules" -S "$release" --show-depends "$module"
  done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | awk '!seen[$0]++' | while read -r module; do
    cp "$module" "$tree/modules/$number-${module##*/}"
    number=$((number + 1))
  done
  cat > "$tree/init" << END
#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc
for module in /modules/*; do insmod "\$module"; done
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=loose,ro machine /lower
mount -t tmpfs tmpfs /upper
mkdir /upper/files /upper/work
mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work overlay /root
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 told "/root$out/told"
umount /proc
exec switch_root /root /bin/bash "$root_of_tree/scripts/kernels-guest.sh" "$out"
END
  chmod +x "$tree/init"
  (cd "$tree" && find . | cpio -o -H newc --quiet | gzip -1) > "$out/initrd"
  rm -rf "$tree"
}

# Some machines have a /dev/kvm in which nothing comes to its beginning.
boot() {
  if [[ $accelerator == kvm ]]; then
    start kvm
    if ! comes_up; then
      kill "$machine" 2> /dev/null || true
      wait "$machine" || true
      say "/dev/kvm is of no use here: processors are emulated, which is some ten times slower"
      accelerator=tcg
      write_checks
      start tcg
    fi
  else
    start tcg
  fi
  wait "$machine" || say "$release: qemu ended with $?"
}

# Whether it says a word within some seconds.
comes_up() {
  local i
  for ((i = 0; i < 50; i++)); do
    if grep -q Linux "$out/console" 2> /dev/null; then return 0; fi
    sleep 0.2
  done
  return 1
}

start() {
  timeout "$limit" qemu-system-x86_64 -accel "$1" -cpu max -smp 2 -m 3072 -nodefaults \
    -no-reboot -display none -serial "file:$out/console" -kernel "$out/vmlinuz" -initrd "$out/initrd" \
    -append "console=ttyS0 panic=-1" \
    -virtfs "local,path=/,mount_tag=machine,security_model=none,readonly=on,multidevs=remap" \
    -virtfs "local,path=$out/told,mount_tag=told,security_model=none" < /dev/null 2> "$out/qemu" &
  machine=$!
}

# --- what is run there ---------------------------------------------------------------------------

# Programs are built here: the kernel there has the same files.
build_tests() {
  cargo build --quiet --locked -p lastbyte-cli
  bench/doctor/matrix.py build
  local package file
  for package in cli doctor; do
    file=$(cargo test --locked --no-run -p "lastbyte-$package" --test all 2>&1 |
      sed -n 's|^ *Executable .* (\(.*\))$|\1|p') || true
    if [[ ! -x $file ]]; then say "the tests of lastbyte-$package could not be built"; exit 1; fi
    tests[$package]=$root_of_tree/$file
  done
}

# A line for each check: its name, its seconds, its command.
write_checks() {
  # Scripts that look for an interpreter take long where processors are emulated.
  echo "PATH=$(dirname "$(python3 -c 'import sys; print(sys.executable)')"):$PATH" > "$out/told/settings"
  if [[ -n ${KERNELS_CHECK:-} ]]; then
    echo "$KERNELS_CHECK" > "$out/told/checks"
    return
  fi
  cat > "$out/told/checks" << END
choice 60 $lastbyte doctor -- sh -c 'exit 7'; [[ \$? == 7 ]]
loss 180 ${tests[doctor]} loss:: --nocapture --test-threads=1
tables 120 ${tests[doctor]} tables:: --nocapture
tracefs 180 ${tests[doctor]} tracefs:: --nocapture$(slow " --skip a_spin_on_poll")
doctor 300 ${tests[cli]} doctor:: --nocapture --test-threads=1
kernel 500 ${tests[doctor]} kernel:: --nocapture --test-threads=1
losses_bpf 400 ${tests[cli]} --exact clinic::diagnosis::each_loss_is_found_with_bpf --nocapture
losses_tracefs 400 ${tests[cli]} --exact clinic::diagnosis::each_loss_is_found_with_tracefs --nocapture
matrix 900 $root_of_tree/bench/doctor/matrix.py run --columns kernel --rounds 1 --output $out/told/matrix.jsonl$(clinic)
left 10 ls /sys/kernel/tracing/instances; [[ -z \$(ls /sys/kernel/tracing/instances) ]]
no_types 60 mount -t tmpfs none /sys/kernel/btf; $lastbyte doctor -- true 2>&1 | tee /dev/stderr | grep -q 'by the kernel.s trace points'
no_tracefs 60 umount /sys/kernel/tracing; $lastbyte doctor --tier tracefs -- true 2>&1 | tee /dev/stderr | grep -q 'by the kernel.s trace points'
END
}

# All of the clinic judges times too, and takes many hours where processors are emulated.
clinic() {
  if [[ $accelerator == kvm ]]; then
    printf '\nclinic 3000 %s --ignored clinic::diagnosis::the_doctor_finds --nocapture --test-threads=1' "${tests[cli]}"
  fi
}

# Words for where processors are emulated, and some ten thousand lines a second are too many.
slow() {
  if [[ $accelerator == tcg ]]; then echo "$1"; fi
}

say() {
  echo "kernels: $*" >&2
}

root_of_tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
place=$root_of_tree/target/kernels
lists=$place/lists
lastbyte=$root_of_tree/target/debug/lastbyte
apt=(-o "Dir::Etc::sourcelist=$lists/sources" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$lists/state"
  -o "Dir::Cache=$lists/cache" -o APT::Sandbox::User=root)
PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH:/usr/sbin:/sbin"
cd "$root_of_tree"

declare -A tests # by package: its program of tests
why=
release= # of the kernel that is tested
out=     # its folder
accelerator=tcg
machine= # the process that is it
tested=()
untested=
failed=()

main "$@"; exit # it may be edited while it runs
