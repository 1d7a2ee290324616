// LB305: out of descriptors, the loop of Accept goes on at once after each error, EMFILE among them. Mended: a limit
// that is as high as the number of clients.

package main

import (
	"net"
	"os"
	"syscall"
	"time"
)

func main() {
	sick := isSick()
	listener := listenAt(os.Args[3])
	var limit syscall.Rlimit
	must(syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	limit.Cur = 256
	if sick {
		limit.Cur = 16
	}
	must(syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	// How soon the first client comes is not its matter.
	first, err := listener.Accept()
	must(err)
	kept := []net.Conn{first}
	listener.SetDeadline(time.Now().Add(1200 * time.Millisecond))
	refused := 0
	for {
		conn, err := listener.Accept()
		if err == nil {
			kept = append(kept, conn)
		} else if late, ok := err.(net.Error); ok && late.Timeout() {
			break
		} else {
			refused++
		}
	}
	say(known{"written": 0, "accepted": len(kept), "refused": refused})
}
