#!/usr/bin/env bash
# Measures what an emulated link is judged by: how fast it is, how true, and what it leaves behind.
#
#   make bench-link                everything, about 35 minutes on a machine that does nothing else
#   bench/link.sh throughput       one part: throughput, packets, limits, rattan, left-behind, many
#                                  or programs
#
# Needs root, iperf3, python3 and tmux. It runs in namespaces of its own (mounts, processes,
# network), so that all it finds there is its own, and nothing of it stays. What it prints is kept
# in bench/results/link.txt.
#
# ROUNDS, SECONDS_PER_RUN (at least 4), RUNS, LINKS and SEED change what their names say; LASTBYTE
# and RATTAN name the binaries.
set -euo pipefail

cd "$(dirname "$0")/.."
lastbyte=${LASTBYTE:-$PWD/target/release/lastbyte}
seconds=${SECONDS_PER_RUN:-10}
rounds=${ROUNDS:-3}
seed=${SEED:-$(date +%s)}
parts=(throughput packets limits rattan left-behind many programs)

main() {
  local part=${1:-all} each
  if [[ $part != all && " ${parts[*]} " != *" $part "* ]]; then
    echo "bench/link.sh: say one of ${parts[*]}, or nothing for all" >&2
    exit 2
  fi
  case ${BENCH_LINK_WORLD:-} in
    '') enter_a_world "$@" ;;
    new)
      if [[ $part != all ]]; then parts=("$part"); fi
      settle_in
      # A process for each part: one that fails does not stop the others.
      for each in "${parts[@]}"; do
        "$BASH" bench/link.sh "$each" || echo "$each: FAILED, see above"
        echo
      done
      ;;
    settled)
      scratch=$(mktemp -d)
      "measure_${part//-/_}"
      ;;
  esac
}

# Starts this script again in namespaces of its own, and keeps what it prints.
enter_a_world() {
  if [[ $(id -u) != 0 ]]; then
    echo "bench/link.sh: needs root" >&2
    exit 2
  fi
  mkdir -p bench/results
  BENCH_LINK_WORLD=new unshare --mount --propagation private --net --pid --fork --kill-child \
    --mount-proc -- "$BASH" bench/link.sh "$@" 2>&1 | tee "bench/results/link${1:+-$1}.txt"
}

# The first process of the new namespaces: it has to say itself that signals end it.
settle_in() {
  trap 'exit 130' INT TERM
  mount -t tmpfs tmpfs /run
  mkdir /run/netns /run/state /run/tmp
  ip link set lo up
  export BENCH_LINK_WORLD=settled LASTBYTE_STATE_DIR=/run/state TMPDIR=/run/tmp
}

# --- running and reading -------------------------------------------------------------------------

# Runs a program; $scratch/cpu then has the processor seconds of its own threads, not of what it
# started. They are sampled, so it has to be idle for a moment before it ends.
watch_cpu() {
  "$@" &
  local pid=$! task ns last=0 now
  exec {pause}<> <(:)
  while [[ -d /proc/$pid/task/$pid && $(< "/proc/$pid/stat") != *") Z "* ]]; do
    now=0
    for task in "/proc/$pid/task/"*/schedstat; do
      if { read -r ns _ < "$task"; } 2> /dev/null; then now=$((now + ns)); fi
    done
    # Threads that end take theirs with them.
    if ((now > last)); then last=$now; fi
    read -r -t 0.1 -u "$pause" || true
  done 2> /dev/null
  exec {pause}>&-
  awk -v ns="$last" 'BEGIN { print ns / 1e9 }' > "$scratch/cpu"
  wait "$pid"
}

# Processor seconds that the whole machine was busy, so far.
machine_cpu() {
  awk -v tick="$(getconf CLK_TCK)" '/^cpu / { print ($2 + $3 + $4 + $7 + $8) / tick }' /proc/stat
}

# iperf3 from near to far over a link. The path's options are one word, the rest goes to iperf3.
# The server has a moment to count. Leaves iperf.json, link.json and snmp (the far host's counters
# of datagrams). Where send_buffer is set, the near kernel may size its buffers up to that.
iperf3_over_link() {
  local path server
  read -ra path <<< "$1"
  shift
  server="iperf3 -s -1 > /dev/null; cat /proc/net/snmp > $scratch/snmp"
  # shellcheck disable=SC2016 # the inner shell's words
  "$lastbyte" link run "${path[@]}" --quiet --report "$scratch/link.json" --far "$server" -- \
    sh -c 'if [ -n "$1" ]; then echo "4096 16384 $1" > /proc/sys/net/ipv4/tcp_wmem; fi
      shift; iperf3 -c far -4 -J "$@" > "$0"; sleep 0.4' \
    "$scratch/iperf.json" "${send_buffer:-}" "$@" 2> /dev/null
}

# What a link says that it did, by its place in the JSON: from_report up lost_packets
from_report() {
  python3 -c 'import functools, json, sys
value = functools.reduce(lambda at, key: at[key], sys.argv[2:], json.load(open(sys.argv[1])))
print("" if value is None else value)' "$scratch/link.json" "$@"
}

# What the link says against a run, with the run's name before it.
doubts() {
  local why
  why=$(from_report broken_promise)
  if [[ -n $why ]]; then echo "$1: do not believe this run: $why"; fi
}

# A figure of iperf3, by its place in the JSON: from_iperf3 end sum_received bits_per_second
from_iperf3() {
  python3 -c '
import json, sys
value = json.load(open(sys.argv[1]))
if "error" in value: sys.exit("iperf3: " + value["error"])
for key in sys.argv[2:]:
    value = value[int(key) if isinstance(value, list) else key]
print(value)' "$scratch/iperf.json" "$@"
}

# Median, min and max.
spread() {
  printf '%s\n' "$@" | sort -g |
    awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)], v[1], v[NR] }'
}

# The arithmetic of a line: calc 'a / b' a=1 b=2
calc() {
  local formula=$1
  shift
  local given=() word
  for word; do given+=(-v "$word"); done
  awk "${given[@]}" "BEGIN { printf \"%.6g\n\", $formula }"
}

about_this_machine() {
  echo "Linux $(uname -r | cut -d- -f1), $(nproc) processors, $(iperf3 --version | head -n 1 |
    cut -d' ' -f1,2), busy before: load $(cut -d' ' -f1 /proc/loadavg)"
}

# --- throughput ----------------------------------------------------------------------------------

# What the figures stand beside: the kernel alone. A veth pair carries up to 64 KiB in one piece;
# with `veth-split` the sending kernel cuts that into packets before the device, as it does before
# a link that has to decide about each one.
declare -A path_of=(
  [nothing]="--rtt 0ms"
  [lossy]="--loss 0.01%"
  [split]="--rate 100gbit --queue 100MB"
  [reorder]="--rate 100gbit --queue 100MB --set jitter=1ns --set reorder=true"
)

measure_throughput() {
  echo "# TCP through a link: $rounds rounds of $seconds s in turn, iperf3's receiver, Gbit/s"
  about_this_machine
  make_veth veth
  make_veth veth-split
  for side in near far; do
    ip netns exec "veth-split-$side" ethtool -K v0 tso off gso off gro off > /dev/null
  done
  local round congestion way side
  declare -A rates=() links=() machines=()
  for ((round = 1; round <= rounds; round++)); do
    for congestion in cubic bbr; do
      for way in veth veth-split nothing lossy split reorder; do
        throughput_of "$way" "$congestion" "$round"
      done
    done
  done
  throughput_table
}

throughput_of() {
  local way=$1 congestion=$2 before bytes gigabytes
  before=$(machine_cpu)
  if [[ -n ${path_of[$way]:-} ]]; then
    iperf3_over_link "${path_of[$way]} --seed $3" -C "$congestion" -t "$seconds"
  else
    iperf3_over_veth "$way" -C "$congestion" -t "$seconds"
  fi
  bytes=$(from_iperf3 end sum_received bytes)
  gigabytes=$(calc 'b / 1e9' b="$bytes")
  rates[$way $congestion]+=" $(calc 'r / 1e9' r="$(from_iperf3 end sum_received bits_per_second)")"
  machines[$way $congestion]+=" $(calc '(n - o) / g' n="$(machine_cpu)" o="$before" g="$gigabytes")"
  if [[ -n ${path_of[$way]:-} ]]; then
    links[$way $congestion]+=" $(calc 'c / g' c="$(from_report cpu_s)" g="$gigabytes")"
    doubts "$way $congestion"
  fi
}

throughput_table() {
  local way congestion base rate low high link machine ratio
  printf '%-10s  %-5s  %7s %7s %7s  %7s  %12s  %15s\n' \
    over with median min max 'of veth' 'link, s/GB' 'machine, s/GB'
  for congestion in cubic bbr; do
    for way in veth veth-split nothing lossy split reorder; do
      # shellcheck disable=SC2086 # lists of figures
      {
        read -r rate low high <<< "$(spread ${rates[$way $congestion]})"
        read -r link _ <<< "$(spread ${links[$way $congestion]:--})"
        read -r machine _ <<< "$(spread ${machines[$way $congestion]})"
      }
      if [[ $way == veth ]]; then base=$rate; fi
      ratio=$(calc 'r / b' r="$rate" b="$base")
      printf '%-10s  %-5s  %7.2f %7.2f %7.2f  %7.2f  %12.4s  %15.2f\n' \
        "$way" "$congestion" "$rate" "$low" "$high" "$ratio" "$link" "$machine"
    done
  done
  echo "veth: two namespaces and no emulator; veth-split: the same, one packet at a time."
  for way in nothing lossy split reorder; do echo "$way: link run ${path_of[$way]}"; done
  echo "link: processor seconds of the link's process; machine: of everything, sender and"
  echo "receiver included, and of other programs if the machine is not quiet; both per 1e9 bytes."
}

# A veth pair between two namespaces.
make_veth() {
  local name=$1
  ip netns add "$name-near"
  ip netns add "$name-far"
  ip link add name v0 netns "$name-near" type veth peer name v0 netns "$name-far"
  ip -n "$name-near" addr add 198.18.1.1/24 dev v0
  ip -n "$name-far" addr add 198.18.1.2/24 dev v0
  ip -n "$name-near" link set v0 up
  ip -n "$name-far" link set v0 up
}

iperf3_over_veth() {
  local name=$1
  shift
  ip netns exec "$name-far" iperf3 -s -1 > /dev/null &
  local server=$!
  wait_for "the server" ip netns exec "$name-far" sh -c "ss -Htln | grep -q :5201"
  ip netns exec "$name-near" iperf3 -c 198.18.1.2 -J "$@" > "$scratch/iperf.json"
  wait "$server"
}

# Looks every 50 ms, at most for 10 s, whether a command succeeds.
wait_for() {
  local what=$1 looks
  shift
  for ((looks = 0; looks < 200; looks++)); do
    if "$@" > /dev/null 2>&1; then return; fi
    sleep 0.05
  done
  echo "waited 10 s in vain for $what" >&2
  return 1
}

# --- packets -------------------------------------------------------------------------------------

# iperf3 wakes up each millisecond and sends what is due, 100 packets at once: a link that keeps up
# with that keeps up with an even stream. What the far kernel got and its socket had no room for is
# the receiving program's loss (it was not scheduled in time), not the link's, and is counted apart.
measure_packets() {
  echo "# 100,000 packets/s of 64 bytes for $seconds s, RTT 2 ms, $rounds rounds"
  about_this_machine
  printf '%7s  %8s  %9s  %7s  %7s  %9s %8s  %8s  %s\n' sent 'link got' delivered unasked \
    read 'socket full' no-port 'link CPU' 'late p50, p99, max (ms)'
  local round sent read strange overflow
  for ((round = 1; round <= rounds; round++)); do
    iperf3_over_link "--rtt 2ms --seed $round" -u -l 64 -b 51.2M -t "$seconds" -w 4M
    sent=$(from_iperf3 end sum_sent packets)
    read -r read strange overflow <<< "$(awk '/^Udp: [0-9]/ { print $2, $3, $6 }' "$scratch/snmp")"
    printf '%7d  %8d  %9d  %7d  %7d  %9d  %9d  %7.2fs  %s, %s, %s\n' "$sent" \
      "$(from_report up packets)" "$(from_report up delivered_packets)" \
      "$(from_report device_drops_packets)" "$read" "$overflow" "$strange" \
      "$(from_report cpu_s)" "$(from_report late_p50_ms)" "$(from_report late_p99_ms)" \
      "$(from_report late_max_ms)"
  done
  echo "sent: datagrams of the test; link got, delivered: with the few of its control connection;"
  echo "unasked: drops that nobody asked the link for. At the far kernel: read by the program,"
  echo "found its socket full, found none. What is missing there lay unread in the program's socket"
  echo "when it closed that."
}

# --- limits --------------------------------------------------------------------------------------

measure_limits() {
  about_this_machine
  limit_of_loss
  echo
  limit_of_window
  echo
  limit_of_rate
}

# Reno against the models. Mathis et al. 1997: rate = MSS / RTT * C / sqrt(p). Their C is 1.22 for
# periodic losses and an acknowledgement of each segment, 0.87 for one of every second; 1.31 and
# 0.94 for random losses (their simulations). Linux counts the segments that an acknowledgement
# covers, not the acknowledgements, so its window grows by one segment per round trip however they
# are delayed: the models hold with b = 1, and C = 1.22 is what we are judged by. Padhye et al.
# 1998 (equation 30, b = 1, no window limit) adds the time-outs of a Reno without SACK; Linux has
# SACK, RACK and tail loss probes, so it should lie above, and near Mathis. T0 is Linux's least:
# RTT + 200 ms. p is what the link says it lost, of all that it got; the RTT is the sender's own
# mean.
limit_of_loss() {
  local flows=10 time=$((seconds * 4)) share round rate rtt p lost mathis padhye ratio
  echo "# reno at a loss, RTT 50 ms, no rate: $rounds rounds of $time s, $flows flows; Mbit/s a flow"
  printf '%6s  %7s  %8s  %7s  %7s  %7s  %12s  %8s  %s\n' loss lost p 'RTT ms' got Mathis \
    'got/Mathis' Padhye 'got/Padhye'
  for share in 0.1% 0.3% 1%; do
    for ((round = 1; round <= rounds; round++)); do
      # No queue, no rate: the flows do not meet. The first 5 s are slow start, and left out.
      iperf3_over_link "--rtt 50ms --loss $share --seed $round" -C reno -P "$flows" -O 5 -t "$time"
      doubts "loss $share"
      rate=$(calc 'r / n / 1e6' r="$(from_iperf3 end sum_received bits_per_second)" n="$flows")
      rtt=$(mean_rtt)
      lost=$(from_report up lost_packets)
      p=$(calc 'l / n' l="$lost" n="$(from_report up packets)")
      mathis=$(calc '1448 * 8 / t * sqrt(3 / 2 / p) / 1e6' t="$rtt" p="$p")
      padhye=$(padhye "$rtt" "$p")
      ratio=$(calc 'r / m' r="$rate" m="$mathis")
      printf '%6s  %7d  %8.5f  %7.2f  %7.2f  %7.2f  %5.2f %6s  %8.2f  %.2f\n' "$share" \
        "$lost" "$p" "$(calc 't * 1e3' t="$rtt")" "$rate" "$mathis" "$ratio" \
        "$(verdict "$ratio" 0.25)" "$padhye" "$(calc 'r / m' r="$rate" m="$padhye")"
    done
  done
}

# Equation 30 of Padhye et al. for RTT and p, in Mbit/s.
padhye() {
  awk -v t="$1" -v p="$2" 'BEGIN {
    t0 = t + 0.2; q = 3 * sqrt(3 * p / 8); if (q > 1) q = 1
    print 1448 * 8 / 1e6 / (t * sqrt(2 * p / 3) + t0 * q * p * (1 + 32 * p * p)) }'
}

# The mean of the flows' mean round trips, in seconds.
mean_rtt() {
  python3 -c '
import json, sys
streams = json.load(open(sys.argv[1]))["end"]["streams"]
print(sum(s["sender"]["mean_rtt"] for s in streams) / len(streams) / 1e6)' "$scratch/iperf.json"
}

# Whether a ratio is as near to 1 as it should be.
verdict() {
  calc 'r' r="$1" | awk -v w="$2" '{ print ($1 >= 1 - w && $1 <= 1 + w) ? "inside" : "SHORT" }'
}

# The window over the round trip. What is provable is the window that the receiver announces: a
# clamp on its listening socket (TCP_WINDOW_CLAMP) decides the scale of the connection, and a
# window is at most 65535 << scale. The clamp itself does not hold: the kernel lifts it when it
# learns how its segments are packed, so the clamps here are half of the windows that they lead to.
# The sender says what it was told (tcpi_snd_wnd). A send buffer would not do: the kernel doubles
# SO_SNDBUF and then counts its own bookkeeping against it, by an amount that depends on how
# segments are packed. Reno, because without a loss its slow start ends at the window and nowhere
# else. Whole segments of 1448 bytes are in flight.
limit_of_window() {
  local window round got told rtt whole ratio program=$scratch/window.py
  echo "# a receive window over RTT 50 ms: $rounds rounds of $seconds s without the first 2, Mbit/s"
  write_window_program > "$program"
  printf '%9s  %9s  %8s  %7s  %10s  %s\n' clamped told 'srtt ms' got window/RTT ratio
  for window in 32768 131072 524288; do
    for ((round = 1; round <= rounds; round++)); do
      "$lastbyte" link run -q --rtt 50ms --report "$scratch/link.json" --far "python3 $program far $window $seconds" -- \
        python3 "$program" near "$seconds" > "$scratch/window" 2> /dev/null
      doubts "window $window"
      read -r told rtt <<< "$(sed -n 's/^near //p' "$scratch/window")"
      got=$(sed -n 's/^far //p' "$scratch/window")
      whole=$(calc 'int(w / 1448) * 1448 * 8 / 0.05 / 1e6' w="$told")
      ratio=$(calc 'g / w' g="$got" w="$whole")
      printf '%9d  %9d  %8.2f  %7.2f  %10.2f  %.3f %s\n' "$window" "$told" "$rtt" "$got" "$whole" \
        "$ratio" "$(verdict "$ratio" 0.05)"
    done
  done
}

write_window_program() {
  cat << 'PYTHON'
import socket, struct, sys, time

TCP_WINDOW_CLAMP, RCVBUFFORCE, SNDBUFFORCE, LEAVE_OUT = 10, 33, 32, 2.0

def far(window, seconds):
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, RCVBUFFORCE, 8 << 20)
    server.setsockopt(socket.IPPROTO_TCP, TCP_WINDOW_CLAMP, window)
    server.bind(("", 7000))
    server.listen()
    peer, _ = server.accept()
    start, count, begun = time.monotonic(), 0, None
    while data := peer.recv(1 << 18):
        now = time.monotonic()
        if begun is not None:
            count += len(data)
            last = now
        elif now - start > LEAVE_OUT:
            begun = now
        if now - start > seconds:
            break
    print("far", count * 8 / (last - begun) / 1e6, flush=True)
    peer.close()

def near(seconds):
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, SNDBUFFORCE, 16 << 20)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
    sock.connect(("198.18.0.2", 7000))
    start, data, told = time.monotonic(), bytes(1 << 16), None
    try:
        while True:
            sock.send(data)
            if told is None and time.monotonic() - start > seconds - 1:
                info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 240)
                field = lambda place: struct.unpack_from("I", info, place)[0]
                told = field(228), field(68) / 1e3  # tcpi_snd_wnd, tcpi_rtt
    except OSError:  # the far end has seen enough
        print("near", *told, flush=True)
    time.sleep(0.3)

far(int(sys.argv[2]), float(sys.argv[3])) if sys.argv[1] == "far" else near(float(sys.argv[2]))
PYTHON
}

# 1448 of every 1500 bytes are payload. The first 2 s are left out: what the first round trips
# cost. The queue is a time, because one bandwidth-delay product of 1 Mbit/s would be less than two
# packets. The kernel's own 4 MB of send buffer would be the limit at 1 Gbit/s.
limit_of_rate() {
  local rate congestion round got ratio length send_buffer=67108864
  echo "# a rate, RTT 20 ms, queue 100 ms, no loss: $rounds rounds of $seconds s in turn, Mbit/s"
  declare -A got_of=()
  for ((round = 1; round <= rounds; round++)); do
    for rate in 1 10 100 1000; do
      for congestion in cubic bbr; do
        length=$((rate < 100 ? 4096 : 131072))
        iperf3_over_link "--rtt 20ms --rate ${rate}mbit --queue 100ms --seed $round" \
          -C "$congestion" -O 2 -t "$seconds" -l "$length"
        doubts "$rate Mbit/s $congestion"
        got=$(from_iperf3 end sum_received bits_per_second)
        got_of[$rate $congestion]+=" $(calc 'g / 1e6' g="$got")"
      done
    done
  done
  local median low high limit
  printf '%5s  %-5s  %8s %8s %8s  %8s  %s\n' rate with median min max limit ratio
  for rate in 1 10 100 1000; do
    limit=$(calc 'r * 1448 / 1500' r="$rate")
    for congestion in cubic bbr; do
      # shellcheck disable=SC2086 # a list of figures
      read -r median low high <<< "$(spread ${got_of[$rate $congestion]})"
      ratio=$(calc 'm / l' m="$median" l="$limit")
      printf '%5d  %-5s  %8.3f %8.3f %8.3f  %8.3f  %.3f %s\n' "$rate" "$congestion" "$median" \
        "$low" "$high" "$limit" "$ratio" "$(verdict "$ratio" 0.05)"
    done
  done
}

# --- rattan --------------------------------------------------------------------------------------

# The nearest rival: rattan, of crates.io (0.1.1 builds in 5 minutes as it is, without clang or
# libbpf). It runs a program behind a link whose other end is the namespace that it was started in.
# Its loss comes after its rate, ours before; its queue counts IP bytes, as ours. `rattan link` loses
# the same packets in each run (its seed is fixed), so its words are made into a configuration, in
# which the loss becomes a kind of cell that takes a seed.
measure_rattan() {
  local rattan=${RATTAN:-$(type -P rattan || true)}
  echo "# lastbyte and rattan, in turn: $rounds rounds of $((seconds * 2)) s"
  if [[ -z $rattan ]]; then
    echo "NOT MEASURED: there is no rattan in PATH, and RATTAN does not name it"
    return
  fi
  echo "$("$rattan" --version | head -n 1), $("$lastbyte" --version)"
  about_this_machine
  declare -A values=()
  local round case congestion
  for ((round = 1; round <= rounds; round++)); do
    for case in usa-malaysia slow wireless; do
      for congestion in cubic bbr; do
        send_over_lastbyte "$case" "$congestion" "$round"
        send_over_rattan "$case" "$congestion" "$round"
      done
      ping_over_both "$case" "$round"
    done
  done
  rattan_table
}

# The same paths in the words of both; rattan takes each direction by itself.
declare -A ours_of=(
  [usa-malaysia]="--rtt 217ms --loss 0.034% --rate 95mbit --queue 2576875B"
  [slow]="--rtt 30ms --rate 20mbit --queue 250000B"
  [wireless]="--rtt 8ms --loss 1% --rate 40mbit --queue 500000B"
)
declare -A rate_of=([usa-malaysia]=95 [slow]=20 [wireless]=40)
declare -A rtt_of=([usa-malaysia]=217 [slow]=30 [wireless]=8)

words_for_rattan() {
  local delay loss queue way
  case $1 in
    usa-malaysia) delay=108500us loss=0.00034 queue=2576875 ;;
    slow) delay=15ms loss=0 queue=250000 ;;
    wireless) delay=4ms loss=0.01 queue=500000 ;;
  esac
  for way in uplink downlink; do
    echo "--$way-bandwidth ${rate_of[$1]}Mbps --$way-queue droptail --$way-queue-args" \
      "{\"byte_limit\":$queue} --$way-delay $delay"
    if [[ $loss != 0 ]]; then echo "--$way-loss $loss"; fi
  done
}

send_over_lastbyte() {
  iperf3_over_link "${ours_of[$1]} --seed $3" -C "$2" -t $((seconds * 2))
  note_sending lastbyte "$1" "$2" "$(from_report cpu_s)"
  doubts "$1 $2"
}

send_over_rattan() {
  configure_rattan "$1" "$3"
  iperf3 -s -1 > /dev/null &
  local server=$!
  wait_for "the server" sh -c "ss -Htln | grep -q :5201"
  # A word that begins with a dash would be taken for an option of its own, so these are in a file.
  cat > "$scratch/near.sh" << SHELL
iperf3 -c "\$RATTAN_BASE" -4 -J -C $2 -t $((seconds * 2)) > "$scratch/iperf.json"
sleep 0.4
SHELL
  watch_cpu "$rattan" run --config "$scratch/rattan.toml" --left sh "$scratch/near.sh" \
    > "$scratch/rattan" 2>&1 || true
  kill "$server" 2> /dev/null || true
  wait "$server" || true
  note_sending rattan "$1" "$2" "$(< "$scratch/cpu")"
}

# Writes what rattan is to run: a path with losses by this seed, another one each way.
configure_rattan() {
  local words
  read -r -d '' -a words < <(words_for_rattan "$1") || true
  "$rattan" link "${words[@]}" --generate 2> /dev/null | sed '/^\[commands\]/,$d' |
    awk -v seed="$2" -v trace="$scratch/loss.toml" '
      /^type = "Loss"/ {
        printf "type = \"LossReplay\"\ntrace = \"%s\"\nseed = %d\n", trace, seed
        seed += 1000
        next
      }
      /^pattern = / {
        printf "[StaticLossConfig]\nloss = %s\nduration = \"1h\"\n", $3 > trace
        close(trace)
        next
      }
      { print }' > "$scratch/rattan.toml"
}

note_sending() {
  local who=$1 key="$2 $3" gigabytes
  gigabytes=$(calc 'b / 1e9' b="$(from_iperf3 end sum_received bytes)")
  values[$who rate $key]+=" $(calc 'r / 1e6' r="$(from_iperf3 end sum_received bits_per_second)")"
  values[$who cpu $key]+=" $(calc 'c / g' c="$4" g="$gigabytes")"
}

# 100 of a ping's round trips; the first may have to find its neighbour.
ping_over_both() {
  local words
  read -ra words <<< "${ours_of[$1]}"
  "$lastbyte" link run -q "${words[@]}" -- ping -n -c 100 -i 0.02 far > "$scratch/ping" || true
  note_pings lastbyte "$1"
  configure_rattan "$1" "$2"
  # shellcheck disable=SC2016 # the inner shell's words
  echo 'ping -n -c 100 -i 0.02 "$RATTAN_BASE"' > "$scratch/near.sh"
  "$rattan" run --config "$scratch/rattan.toml" --left sh "$scratch/near.sh" \
    > "$scratch/ping" 2> /dev/null || true
  note_pings rattan "$1"
}

note_pings() {
  values[$1 ping $2]+=" $(ping_times "$scratch/ping" | tr '\n' ' ')"
  values[$1 mean $2]+=" $(ping_mean "$scratch/ping")"
}

# Each round trip that ping printed, in ms.
ping_times() {
  sed -n 's/.*time=\([0-9.]*\) ms.*/\1/p' "$1"
}

# The mean of what ping found, in ms. From 100 ms on it says single ones without decimals.
ping_mean() {
  sed -n 's|^rtt min/avg/max/mdev = [0-9.]*/\([0-9.]*\)/.*|\1|p' "$1"
}

# Median and 99th percentile of standard input.
p50_p99() {
  sort -g | awk '{ v[NR] = $1 } END {
    if (NR) print v[int((NR + 1) / 2)], v[int(NR * 0.99 + 0.999)]; else print "-", "-" }'
}

rattan_table() {
  local case congestion who rate low high cpu base p50 p99
  printf '%-12s  %-5s  %-8s  %7s %7s %7s  %8s  %12s\n' \
    path with over median min max 'of limit' 'link, s/GB'
  for case in usa-malaysia slow wireless; do
    for congestion in cubic bbr; do
      for who in lastbyte rattan; do
        # shellcheck disable=SC2086 # lists of figures
        {
          read -r rate low high <<< "$(spread ${values[$who rate $case $congestion]})"
          read -r cpu _ <<< "$(spread ${values[$who cpu $case $congestion]})"
        }
        printf '%-12s  %-5s  %-8s  %7.2f %7.2f %7.2f  %8.3f  %12.2f\n' "$case" "$congestion" \
          "$who" "$rate" "$low" "$high" \
          "$(calc 'r / l / 1448 * 1500' r="$rate" l="${rate_of[$case]}")" "$cpu"
        if [[ $who == lastbyte ]]; then base=$rate; fi
      done
      echo "              lastbyte / rattan = $(calc 'b / r' b="$base" r="$rate")"
    done
  done
  local mean
  echo "round trips of an idle link, ms: asked; mean (the rounds' median), median and 99 % of ping"
  for case in usa-malaysia slow wireless; do
    for who in lastbyte rattan; do
      # shellcheck disable=SC2086 # a list of figures
      read -r mean _ <<< "$(spread ${values[$who mean $case]:--})"
      read -r p50 p99 <<< "$(tr ' ' '\n' <<< "${values[$who ping $case]}" | sed '/^$/d' | p50_p99)"
      printf '%-12s  %-8s  %5d  %8s %8s %8s\n' "$case" "$who" "${rtt_of[$case]}" "$mean" "$p50" \
        "$p99"
    done
  done
}

# --- left behind ---------------------------------------------------------------------------------

# 100 runs of four kinds, each fifth killed at a random moment. After each it is compared, for up to
# 5 s, with what there was at first. A killed `link up` is taken back with undo, as its words say.
measure_left_behind() {
  local runs=${RUNS:-100} number kind killed=0 hit=0 failed=0 dirty=0
  echo "# $runs runs, each fifth killed with -9 at a random moment: what is left, SEED=$seed"
  about_this_machine
  RANDOM=$((seed % 32768))
  findings > "$scratch/first"
  show_that_it_counts
  for ((number = 0; number < runs; number++)); do
    kind=$((number % 4))
    if ((number % 5 == 0)); then
      killed=$((killed + 1))
      kill_one "$kind" "$number"
    elif ! finish_one "$kind" "$number" > "$scratch/said" 2>&1; then
      failed=$((failed + 1))
      echo "run $number of kind $kind failed:"
      sed 's/^/  /' "$scratch/said"
    fi
    if ! is_as_at_first; then
      dirty=$((dirty + 1))
      echo "run $number of kind $kind left:"
      sed 's/^/  /' "$scratch/difference"
      cp "$scratch/now" "$scratch/first"
    fi
  done
  "$lastbyte" undo --all > /dev/null
  echo "$runs runs: $killed to be killed, of which $hit had not ended before; $failed of the others"
  echo "failed; $dirty left something behind"
  echo "after undo --all: $("$lastbyte" changes)"
  echo "lines of networks, kept ones, interfaces, routes, mounts, processes, temporary files:" \
    "$(wc -l < "$scratch/first") at first, $(wc -l < "$scratch/now") now"
}

# A count that never sees anything would prove nothing.
show_that_it_counts() {
  "$lastbyte" link up control --rtt 1ms > /dev/null
  findings > "$scratch/now"
  echo "for comparison, a link that is up: $(diff "$scratch/first" "$scratch/now" | grep -c '^>')" \
    "lines more"
  "$lastbyte" link down control > /dev/null
}

# The words of each kind, which end by themselves within half a second or so.
words_of_kind() {
  case $1 in
    0) words=(link run -q --rtt 5ms -- ping -q -c 3 -i 0.1 far) ;;
    1) words=(link run -q --rtt 5ms --far 'iperf3 -s -1 > /dev/null' -- iperf3 -c far -n 4M) ;;
    2) words=(lab --rtt 5ms --bytes 1MB --rounds 2 --congestion cubic) ;;
    up) words=(link up "n$2" --rtt 5ms) ;;
    near) words=(link exec "n$2" near -- ping -q -c 3 -i 0.1 far) ;;
    down) words=(link down "n$2") ;;
  esac
}

finish_one() {
  local step steps=("$1") words
  if [[ $1 == 3 ]]; then steps=(up near down); fi
  for step in "${steps[@]}"; do
    words_of_kind "$step" "$2"
    timeout -k 1 30 "$lastbyte" "${words[@]}" < /dev/null || return
  done
}

# A link that stays is killed on its way up, in use, or on its way down.
kill_one() {
  local step steps=("$1") words victim=$1
  if [[ $1 == 3 ]]; then
    steps=(up near down)
    victim=${steps[RANDOM % 3]}
  fi
  for step in "${steps[@]}"; do
    words_of_kind "$step" "$2"
    if [[ $step == "$victim" ]]; then
      kill_at_a_moment
      if [[ $step == up ]]; then break; fi
    else
      timeout -k 1 30 "$lastbyte" "${words[@]}" < /dev/null > /dev/null 2>&1 || true
    fi
  done
  if [[ $1 == 3 ]]; then undo_until_gone; fi
}

# As late as each takes about, so that most are hit while they do something.
kill_at_a_moment() {
  local most=200 pid
  case ${words[1]} in
    up) most=15 ;;
    down) most=60 ;;
  esac
  "$lastbyte" "${words[@]}" < /dev/null > /dev/null 2>&1 &
  pid=$!
  sleep "$(calc 'm * r / 32768 / 1000' m="$most" r=$RANDOM)"
  kill -9 "$pid" 2> /dev/null || true
  wait "$pid" 2> /dev/null || if [[ $? == 137 ]]; then hit=$((hit + 1)); fi
}

# The carrier of a link whose `link up` was killed goes on until it has entered itself.
undo_until_gone() {
  local looks
  for ((looks = 0; looks < 30; looks++)); do
    "$lastbyte" undo --all > /dev/null 2>&1 || true
    findings > "$scratch/now"
    if cmp -s "$scratch/first" "$scratch/now"; then return; fi
    sleep 0.1
  done
}

# The kernel ends namespaces some time after their last process.
is_as_at_first() {
  local looks
  for ((looks = 0; looks < 50; looks++)); do
    findings > "$scratch/now"
    if diff "$scratch/first" "$scratch/now" > "$scratch/difference"; then return; fi
    sleep 0.1
  done
  return 1
}

# All that can be left behind in this world, a line each.
findings() {
  ip -o link | awk '{ print "interface", $2 }'
  ip -4 route show table all | sed 's/^/route /'
  ip -6 route show table all | sed 's/^/route /'
  python3 - << 'PYTHON'
import glob, os
lines = ["mount " + line.strip() for line in open("/proc/self/mountinfo")]
lines += ["kept " + name for name in os.listdir("/run/netns")]
lines += ["temporary " + name for name in os.listdir("/run/tmp")]
mine = {os.getpid(), os.getppid()}
for process in glob.glob("/proc/[0-9]*"):
    try:
        words = open(process + "/cmdline").read().replace("\0", " ").strip()
        zombie = ") Z" in open(process + "/stat").read()
        links = glob.glob(process + "/task/*/ns/net") + glob.glob(process + "/fd/*")
        for link in links:
            target = os.readlink(link)
            if target.startswith("net:["):
                lines.append("network " + target)
    except OSError:
        continue
    # Ours are the shells of this script; what has ended is gone when somebody collects it.
    if int(process[6:]) not in mine and words and not zombie and "bench/link.sh" not in words:
        lines.append("process " + words)
print("\n".join(sorted(set(lines))))
PYTHON
}

# --- many ----------------------------------------------------------------------------------------

measure_many() {
  local count=${LINKS:-50}
  echo "# $count links of usa-malaysia (217 ms) at once"
  about_this_machine
  many_that_stay "$count"
  many_that_run "$count"
}

many_that_stay() {
  local count=$1 number begun pids=() before after
  begun=$EPOCHREALTIME
  for ((number = 0; number < count; number++)); do
    "$lastbyte" link up "n$number" usa-malaysia --seed "$number" > /dev/null
  done
  echo "link up, one after the other: $(calc 'n - b' n="$EPOCHREALTIME" b="$begun") s;" \
    "their carriers: $(memory_of link-carry)"
  before=$(cpu_of link-carry)
  sleep 5
  after=$(cpu_of link-carry)
  echo "idle: $(calc '(a - b) / 5 * 100' a="$after" b="$before") % of a processor, all together"
  before=$after
  begun=$EPOCHREALTIME
  for ((number = 0; number < count; number++)); do
    "$lastbyte" link exec "n$number" near -- ping -n -c 20 -i 0.2 far > "$scratch/ping$number" &
    pids+=($!)
  done
  wait_for_all "${pids[@]}"
  after=$(cpu_of link-carry)
  echo "a ping each, 5 a second: $(calc '(a - b) / (n - t) * 100' a="$after" b="$before" \
    n="$EPOCHREALTIME" t="$begun") % of a processor, all together"
  say_pings "$count"
  promises_of_those_that_stay "$count"
  begun=$EPOCHREALTIME
  for ((number = 0; number < count; number++)); do
    "$lastbyte" link down "n$number" > /dev/null 2>&1
  done
  echo "link down, one after the other: $(calc 'n - b' n="$EPOCHREALTIME" b="$begun") s;" \
    "$("$lastbyte" link list)"
}

promises_of_those_that_stay() {
  local number kept=0
  for ((number = 0; number < $1; number++)); do
    "$lastbyte" link stats "n$number" --json > "$scratch/stats"
    if grep -q '"broken_promise":null' "$scratch/stats"; then kept=$((kept + 1)); fi
  done
  echo "promises: $kept of $1 kept"
}

many_that_run() {
  local count=$1 number pids=() kept=0
  for ((number = 0; number < count; number++)); do
    "$lastbyte" link run usa-malaysia --seed "$number" -- ping -n -c 5 far \
      > "$scratch/ping$number" 2> "$scratch/report$number" &
    pids+=($!)
  done
  sleep 3
  echo "link run, all begun together, 2 processes each: $(memory_of "$lastbyte link run|link-init")"
  wait_for_all "${pids[@]}"
  say_pings "$count"
  for ((number = 0; number < count; number++)); do
    if grep -q 'kept its promise' "$scratch/report$number"; then kept=$((kept + 1)); fi
  done
  echo "promises: $kept of $count kept; worst 99 %: $(sed -n 's/.* \([0-9.]*\) ms at 99 %.*/\1/p' \
    "$scratch"/report[0-9]* | sort -g | tail -n 1) ms late"
}

# Those that failed are counted, not followed.
wait_for_all() {
  local pid failed=0
  for pid; do wait "$pid" || failed=$((failed + 1)); done
  if ((failed > 0)); then echo "$failed of $# FAILED"; fi
}

say_pings() {
  local number p50 p99 sent mean least most
  for ((number = 0; number < $1; number++)); do
    ping_mean "$scratch/ping$number"
  done > "$scratch/means"
  cat "$scratch"/ping[0-9]* > "$scratch/all"
  read -r p50 p99 <<< "$(ping_times "$scratch/all" | p50_p99)"
  sent=$(awk '/packets transmitted/ { s += $1 } END { print s }' "$scratch/all")
  read -r mean least most <<< "$(spread "$(< "$scratch/means")")"
  echo "round trips: $(ping_times "$scratch/all" | wc -l) of $sent pings answered; $p50 ms at the" \
    "median, $p99 at 99 %, $(ping_times "$scratch/all" | sort -g | tail -n 1) at most"
  echo "each link's mean: $mean ms at the median, $least to $most"
  rm "$scratch"/ping[0-9]*
}

# Processes whose words match, in MB: each one's pages, and its share of them.
memory_of() {
  local pid
  for pid in $(pgrep -f -- "$1"); do
    cat "/proc/$pid/smaps_rollup" 2> /dev/null || true
  done | awk '/^Rss:/ { n++; rss += $2 } /^Pss:/ { pss += $2 } END {
    printf "%d processes, RSS %.1f MB, PSS %.1f MB in all", n, rss / 1e3, pss / 1e3 }'
}

# Their processor seconds, so far.
cpu_of() {
  local pid
  for pid in $(pgrep -f -- "$1"); do
    cat "/proc/$pid/task/"*/schedstat 2> /dev/null || true
  done | awk '{ s += $1 } END { print s / 1e9 }'
}

# --- programs ------------------------------------------------------------------------------------

measure_programs() {
  echo "# programs in a link: exit codes, terminals, signals, and what outlives its parent"
  about_this_machine
  failures=0 asked=0 screens=0
  programs_without_a_terminal
  programs_that_outlive
  programs_with_a_terminal
  signals_of_a_terminal
  echo "$failures failed"
  [[ $failures == 0 ]]
}

# Says whether a command succeeded.
expect() {
  local what=$1
  shift
  if "$@" > /dev/null 2>&1; then
    echo "ok    $what"
  else
    echo "FAIL  $what"
    failures=$((failures + 1))
  fi
}

in_link() { "$lastbyte" link run -q lan "$@"; }

# Its exit code, as a command's success.
gives() {
  local expected=$1 code=0
  shift
  "$@" < /dev/null || code=$?
  [[ $code == "$expected" ]]
}

# shellcheck disable=SC2016 # the inner shell's words
programs_without_a_terminal() {
  expect "exit code 0 is kept" gives 0 in_link -- true
  expect "exit code 42 is kept" gives 42 in_link -- sh -c 'exit 42'
  expect "a program ended by TERM gives 143" gives 143 in_link -- sh -c 'kill -TERM $$'
  expect "a program that is not there gives 127" gives 127 in_link -- no-such-program
  expect "standard input goes through" test "$(printf 'a\nb\n' | in_link -- wc -l)" = 2
  expect "a pipe closed early ends it quietly" test "$(in_link -- seq 1000000 | head -n 1)" = 1
  expect "100 MB of output go through" \
    test "$(in_link -- head -c 100000000 /dev/zero | wc -c)" = 100000000
}

# shellcheck disable=SC2016 # the inner shell's words
programs_that_outlive() {
  local long=86417
  expect "a parent's exit code is kept where its child goes on" gives 3 in_link -- \
    sh -c "setsid nohup sleep $long > /dev/null 2>&1 & exit 3"
  expect "a daemon on the near end has ended with the link" wait_for "its end" no_process "$long"
  in_link --far "(setsid nohup sleep $long > /dev/null 2>&1 &); sleep 0.2; exec iperf3 -s" -- true \
    > /dev/null
  expect "a daemon on the far end has ended with the link" wait_for "its end" no_process "$long"
  "$lastbyte" link up daemons lan > /dev/null
  "$lastbyte" link exec daemons near -- sh -c "setsid nohup sleep $long > /dev/null 2>&1 &"
  expect "a daemon in a link that stays has ended with its command" wait_for "its end" \
    no_process "$long"
  "$lastbyte" link down daemons > /dev/null
}

no_process() { ! pgrep -f "sleep $1"; }

on_screen() { TMUX_TMPDIR=$scratch tmux -L "screen$screens" -f /dev/null "$@"; }

# A terminal of 20 by 6 with a shell in it. Each has a server of its own: the one before may still
# be ending.
open_terminal() {
  screens=$((screens + 1))
  on_screen new-session -d -x 20 -y 6 "PS1='> ' bash --norc --noprofile -i"
  on_screen set-option -g window-size manual
  on_screen resize-window -x 20 -y 6
  wait_for "the shell" shows '>'
}

close_terminal() { on_screen kill-server 2> /dev/null || true; }

# Types a line into it; `keys` sends single keys.
types() { on_screen send-keys -l -- "$1" && on_screen send-keys Enter; }
keys() { on_screen send-keys "$@"; }
shows() { on_screen capture-pane -p -J | grep -qE -- "$1"; }
soon_shows() { wait_for "the screen to show $1" shows "$1"; }
# The exit code of the program before; each asking has its number, because the screen scrolls.
code_is() {
  asked=$((asked + 1))
  types "echo $asked:\$?" && soon_shows "^$asked:$1\$"
}
lines_shown() { (($(on_screen capture-pane -p | grep -c .) >= $1)); }

programs_with_a_terminal() {
  local file=$scratch/text
  seq 1 500 > "$file"
  # The words are short: the screen is narrow.
  cat > "$scratch/l" << SHELL
#!/bin/sh
exec "$lastbyte" link run -q lan -- "\$@"
SHELL
  cat > "$scratch/e" << SHELL
#!/bin/sh
exec "$lastbyte" link exec screens near -- "\$@"
SHELL
  chmod +x "$scratch/l" "$scratch/e"
  open_terminal
  types "cd $scratch; clear"
  types "./l stty size"
  expect "the terminal's size is seen" soon_shows '^6 20'
  types "./l top"
  expect "top draws on 20 by 6" soon_shows '^top - '
  on_screen resize-window -x 60 -y 20
  expect "top fills the screen after a resize to 60 by 20" wait_for "more lines" lines_shown 8
  keys q
  expect "top quits at q with code 0" code_is 0
  on_screen resize-window -x 20 -y 6
  types "clear; ./l less text"
  expect "less shows the beginning" soon_shows '^5$'
  keys G
  expect "less goes to the end" soon_shows '^500$'
  keys q
  expect "less quits at q with code 0" code_is 0
  if command -v vim > /dev/null; then
    # What it says of a file is longer than the screen is wide, and would have to be answered.
    local vim="./l vim -u NONE --cmd 'set shm+=F' new"
    types "clear; $vim"
    expect "vim draws" soon_shows '^~'
    keys i hello Escape C-z
    expect "vim is suspended by Ctrl-Z" soon_shows 'Stopped'
    types "clear; fg"
    expect "and is back with its text" soon_shows '^hello'
    types ":wq"
    expect "vim ends with code 0" code_is 0
    expect "vim wrote its file" grep -qx hello "$scratch/new"
    types "clear; $vim"
    soon_shows '^hello' || true
    types ":cq"
    expect "vim ends with code 1 at :cq" code_is 1
  else
    echo "NOT TESTED: there is no vim"
  fi
  close_terminal
}

signals_of_a_terminal() {
  open_terminal
  types "cd $scratch; clear"
  types "./l sleep 86418"
  wait_for "the sleeper" pgrep -f "^sleep 86418" || true
  keys C-c
  expect "Ctrl-C ends a sleep with 130" code_is 130
  types "clear; ./l ping -i.2 far"
  soon_shows 'icmp_seq' || true
  keys C-c
  expect "Ctrl-C is ping's to handle: it ends with 0" code_is 0
  types "clear; ./l ping -i.2 far"
  soon_shows 'icmp_seq' || true
  keys C-z
  expect "Ctrl-Z gives the shell back" soon_shows 'Stopped'
  types "clear; fg"
  expect "fg lets it go on" soon_shows 'icmp_seq'
  keys C-c
  expect "and Ctrl-C then ends it with 0" code_is 0
  types "clear; ./l sleep 86418"
  wait_for "the sleeper" pgrep -f "^sleep 86418" || true
  keys "C-\\"
  expect "Ctrl-\\ ends a sleep with 131" code_is 131
  "$lastbyte" link up screens lan > /dev/null
  types "clear; ./e ping -i.2 far"
  soon_shows 'icmp_seq' || true
  keys C-z
  expect "Ctrl-Z gives the shell back from a link that stays" soon_shows 'Stopped'
  types "clear; fg"
  expect "fg lets it go on there" soon_shows 'icmp_seq'
  keys C-c
  expect "Ctrl-C ends it there" code_is 0
  types "clear; ./l sleep 86418"
  wait_for "the sleeper" pgrep -f "^sleep 86418" || true
  close_terminal
  expect "a terminal that is closed ends all of it" wait_for "its end" no_process 86418
  expect "but a link that stays" "$lastbyte" link exec screens near -- ping -q -c 1 far
  "$lastbyte" link down screens > /dev/null
}

main "$@"
