#!/bin/sh
# Runs a program in a network namespace of its own: .config/nextest.toml has each test started by this, so that none
# meets another's ports, connections or counters. Like a machine's, it has a loopback interface, and one with an
# address and a default route of each family; behind that nobody answers.
#
#   scripts/own-network.sh PROGRAM [WORD...]
#
# Whoever may make none runs it where they are: in a user namespace they would be a root that may do less than the
# tests take root to be able to.
set -eu

# A kernel without IPv6 refuses those lines alone: the tests say what they miss.
# shellcheck disable=SC2016
in_namespace='
ip link set lo up
ip -force -batch - << "END" || true
link add eth0 type veth peer name outside
link set eth0 addrgenmode none
link set outside addrgenmode none
link set outside up
link set eth0 up
address add 192.0.2.2/24 dev eth0
address add fd00::2/64 dev eth0 nodad
neighbour add 192.0.2.1 lladdr 02:00:00:00:00:01 nud permanent dev eth0
neighbour add fd00::1 lladdr 02:00:00:00:00:01 nud permanent dev eth0
route add default via 192.0.2.1
route add default via fd00::1
END
exec "$@"
'
if [ "$(id -u)" = 0 ] && unshare --net true 2> /dev/null; then
  exec unshare --net -- sh -euc "$in_namespace" sh "$@"
fi
exec "$@"
