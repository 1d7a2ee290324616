#!/usr/bin/env bash
# Measures how far a MariaDB replica is behind its master at the other end of usa-malaysia: with
# cubic, and with a gate beside the master that sends by bbr.
#
#   make bench-replication         everything, about 30 minutes on a machine that does nothing else
#   bench/replication.sh quick     one round of a minute each
#
# Needs root, MariaDB 10.11's mariadbd and mariadb, and ss. It runs in namespaces of its own (mounts,
# processes, network), with the databases in memory there, so that nothing of it stays, also when it
# is killed. What it prints is kept in bench/results/replication.txt.
#
# ROUNDS, SECONDS_PER_RUN, LOAD (Mbit/s of binlog) and VARIANTS (of control, cubic, bbr, gate) change
# what their names say; LASTBYTE names the binary.
set -euo pipefail

cd "$(dirname "$0")/.."
lastbyte=${LASTBYTE:-$PWD/target/release/lastbyte}
scenario=usa-malaysia
mark_every=5 # seconds
drain_s=600  # for the marks still on the way when the load has ended

main() {
  local part=${1:-all} round variant
  if [[ $part != all && $part != quick ]]; then
    echo "bench/replication.sh: say quick, or nothing for all" >&2
    exit 2
  fi
  if [[ -z ${LASTBYTE_BENCH_INSIDE:-} ]]; then
    exec bench/isolated.py --result "bench/results/replication${1:+-$1}.txt" --needs "$lastbyte" \
      --needs mariadbd --needs mariadb --needs mariadb-install-db --needs ss bench/replication.sh "$@"
  fi
  how_much "$part"
  about_this_machine "$@"
  make_template
  echo
  echo "round variant  binlog Mbit/s  marks  lag p50 s  p95 s  most s  sent by, segments sent again"
  for ((round = 1; round <= rounds; round++)); do
    for variant in "${variants[@]}"; do one_run "$variant" "$round"; done
  done
  echo
  echo "all rounds     marks  lag p50 s  p95 s   most s"
  for variant in "${variants[@]}"; do
    printf '%-14s %s\n' "$variant" "$(summary "/run/lags.$variant".*)"
  done
}

how_much() {
  load=${LOAD:-25}
  read -ra variants <<< "${VARIANTS:-control cubic gate}"
  if [[ $1 == quick ]]; then
    rounds=${ROUNDS:-1} seconds=${SECONDS_PER_RUN:-60}
  else
    rounds=${ROUNDS:-2} seconds=${SECONDS_PER_RUN:-180}
  fi
  marks=$((seconds / mark_every))
  if ! "$lastbyte" gate --help > /dev/null 2>&1; then
    echo "NOT MEASURED: this lastbyte has no gate"
    read -ra variants <<< "${variants[*]/gate/}"
  fi
}

about_this_machine() {
  echo "# MariaDB replication over $scenario"
  echo "$(date -u '+%Y-%m-%d %H:%M UTC'); Linux $(uname -r), $(nproc) processors;" \
    "bench/replication.sh $*; load $(cut -d ' ' -f 1-3 /proc/loadavg) at the beginning"
  echo "$("$lastbyte" --version); $(mariadbd --version 2> /dev/null | sed 's/^[^ ]* *//; s/ for .*//')"
  cat << WORDS
The master is at the far end, the replica at the near end. For $seconds s the master writes $load
Mbit/s of row-based binlog, and marks a row with its time every $mark_every s. Lag: from that time until the
replica's table has the mark, looked at every 20 ms, one clock for both. What is late is waited for
after the load, so that the lag of every mark is known. Every run has fresh databases, in memory, and
a fresh link; those of a round have the same losses to expect (one seed).

control  both servers on one loopback interface, without a link
cubic    the replica connects to the master; both hosts send by cubic
bbr      the same, both hosts send by bbr: what can be had where the master's host may be changed
gate     the replica connects to a gate beside the master, which sends by bbr; all else as before
WORDS
}

# --- one run -------------------------------------------------------------------------------------

one_run() {
  local variant=$1 round=$2 lags=/run/lags.$1.$2 sender=loopback servers=()
  if [[ $variant == control ]]; then
    at_master=() at_replica=() master_address=127.0.0.1 master_port=3306
  else
    make_link "$round" "$([[ $variant == bbr ]] && echo bbr || echo cubic)"
  fi
  start_server master 3306 "${at_master[@]}"
  start_server replica 3316 "${at_replica[@]}"
  if [[ $variant == gate ]]; then start_gate; fi
  replicate

  ask replica bench <<< "CALL watch($marks, $((seconds + drain_s)))" > "$lags" &
  local watching=$!
  ask master bench <<< "CALL mark($marks, $mark_every)" &
  local marking=$!
  ask master bench <<< "CALL write_load($seconds, $((load * 125000)))"
  local binlog
  binlog=$(binlog_mbits)
  if [[ $variant != control ]]; then sender=$(who_sends); fi
  wait "$marking" "$watching"
  printf '%-5s %-8s %-14s %s  %s\n' "$round" "$variant" "$binlog" "$(summary "$lags")" "$sender"
  check_replica

  ask replica <<< "SHUTDOWN"
  ask master <<< "SHUTDOWN"
  wait "${servers[@]}"
  if [[ $variant == gate ]]; then stop_gate; fi
  if [[ $variant != control ]]; then take_link_down; fi
  rm -rf /run/master /run/replica
}

# Numbers of marks and quantiles of their lags, nearest rank. A mark that was never seen is the latest.
summary() {
  cat "$@" | cut -f 2 | sort -n | awk -v marks="$marks" -v runs=$# '
    { lag[NR] = sprintf("%.3f", $1 / 1e6) }
    function rank(share,  at) {
      at = int(marks * runs * share)
      if (at < marks * runs * share) at++
      return at in lag ? lag[at] : "unseen"
    }
    END { printf "%3d/%-3d  %8s %7s %7s", NR, marks * runs, rank(0.5), rank(0.95), rank(1) }'
}

# --- the link ------------------------------------------------------------------------------------

# A link with losses of this seed, whose hosts send by this congestion control.
make_link() {
  "$lastbyte" link up bed "$scenario" --seed "$1" > /dev/null
  at_master=("$lastbyte" link exec bed far --) at_replica=("$lastbyte" link exec bed near --)
  local host
  for host in near far; do
    "$lastbyte" link exec bed "$host" -- "$BASH" -euc "$(declare -f send_by); send_by $2"
  done
  master_address=$(address_of far) master_port=3306
}

# A namespace may not make a congestion control its default that the machine does not allow
# everybody; its routes may ask for any.
send_by() {
  local route
  ip -4 route show | while read -ra route; do ip -4 route change "${route[@]}" congctl "$1"; done
}

address_of() {
  "${at_replica[@]}" getent ahostsv4 "$1" | awk '{ print $1; exit }'
}

# What it says of itself matters where the run is not to be believed.
take_link_down() {
  "$lastbyte" link down bed 2>&1 | sed -n 's/^bed: \(do not believe .*\)/      \1/p'
}

# The congestion control of the connection that carries the binlog over the path, and what it had to
# send again.
who_sends() {
  "${at_master[@]}" ss -tinHO state established dst "$(address_of near)" sport = ":$master_port" |
    awk '{ again = 0
      for (i = 1; i <= NF; i++) {
        if ($i ~ /^wscale:/) by = $(i - 1)
        if ($i ~ /^retrans:/) { sub(/.*\//, "", $i); again = $i }
      }
      print by ", " again }'
}

# --- the gate ------------------------------------------------------------------------------------

# By `ip netns exec`, which becomes the gate: signals reach it.
start_gate() {
  master_port=3307
  : > /run/gate
  ip netns exec lastbyte-bed-far "$lastbyte" gate --log text \
    "$master_address:$master_port=127.0.0.1:3306" --allow "$(address_of near)" --congestion bbr \
    > /run/accounts 2> /run/gate &
  gate=$!
  until grep -q 'listening on' /run/gate; do
    if ! kill -0 "$gate" 2> /dev/null; then
      cat /run/gate
      exit 2
    fi
    sleep 0.02
  done
}

# The last flow is the one that carried the binlog.
stop_gate() {
  kill -TERM "$gate"
  wait "$gate" || echo "NOT AS IT SHOULD BE: the gate ended with $?"
  tail -n 1 /run/accounts | sed 's/^/      the gate: /'
}

# --- the servers ---------------------------------------------------------------------------------

# Databases without anything in them, to be copied.
make_template() {
  if ! mariadb-install-db --no-defaults --user=root --datadir=/run/template --skip-test-db \
    --auth-root-authentication-method=normal > /run/install 2>&1; then
    cat /run/install
    exit 2
  fi
}

# Starts a server on this port, by the words that lead to its host. What it writes to its disk it
# writes when it likes: the disk is not what is measured.
start_server() {
  local name=$1 port=$2
  shift 2
  cp -a /run/template "/run/$name"
  "$@" mariadbd --no-defaults --user=root --datadir="/run/$name" --socket="/run/$name.sock" \
    --pid-file="/run/$name.pid" --bind-address=0.0.0.0 --port="$port" --server-id="$port" \
    --skip-name-resolve --log-bin=binlog --binlog-format=ROW --binlog-row-image=MINIMAL \
    --sync-binlog=0 --innodb-flush-log-at-trx-commit=0 --innodb-buffer-pool-size=64M \
    --max-allowed-packet=16M --slave-net-timeout=600 > "/run/$name.log" 2>&1 &
  servers+=($!)
  until ask "$name" <<< 'DO 1' 2> /dev/null; do
    if ! kill -0 "${servers[-1]}" 2> /dev/null; then
      cat "/run/$name.log"
      exit 2
    fi
    sleep 0.1
  done
}

# Asks a server what comes on stdin. Its socket is a file, so that no link is in between.
ask() {
  local name=$1
  shift
  mariadb --no-defaults --user=root --socket="/run/$name.sock" -N -B --unbuffered "$@"
}

# The replica begins with what the master has, and the run with both the same.
replicate() {
  ask master < bench/replication/schema.sql
  ask master <<< "GRANT REPLICATION SLAVE ON *.* TO repl@'%' IDENTIFIED BY 'repl'"
  ask replica << SQL
CHANGE MASTER TO MASTER_HOST = '$master_address', MASTER_PORT = $master_port, MASTER_USER = 'repl',
  MASTER_PASSWORD = 'repl', MASTER_CONNECT_RETRY = 1, MASTER_USE_GTID = slave_pos;
START SLAVE;
SQL
  local tries
  for ((tries = 0; tries < 300; tries++)); do
    if ask replica <<< "CALL bench.watch(0, 0)" > /dev/null 2>&1; then return; fi
    sleep 0.1
  done
  ask replica <<< 'SHOW SLAVE STATUS\G'
  exit 2
}

binlog_mbits() {
  ask master <<< 'SHOW BINARY LOGS' | awk -v s="$seconds" '{ all += $2 } END { printf "%.1f", all * 8 / s / 1e6 }'
}

# Both have the same rows, and the connection was not lost on the way.
check_replica() {
  local rows='CHECKSUM TABLE bench.ring, bench.marker'
  ask replica <<< "SELECT MASTER_GTID_WAIT('$(ask master <<< 'SELECT @@gtid_binlog_pos')', 60)" > /dev/null
  if [[ $(ask master <<< "$rows") != "$(ask replica <<< "$rows")" ]]; then
    echo "NOT THE SAME: the replica's rows are not the master's"
    exit 1
  fi
}

main "$@"
