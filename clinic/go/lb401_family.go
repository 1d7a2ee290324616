// LB401: tries the IPv6 address first and waits for its time-out, though the IPv4 address answers within
// milliseconds. Mended: begins the next attempt a quarter of a second later and takes the first that
// connects (RFC 8305). The addresses are given in place of the host, with commas between them.

package main

import (
	"net"
	"os"
	"strings"
	"time"
)

func main() {
	sick := isSick()
	addresses := strings.Split(os.Args[2], ",")
	start := time.Now()
	connected := make(chan net.Conn)
	attempt := func(address string) {
		conn, err := net.DialTimeout("tcp", net.JoinHostPort(address, os.Args[3]), 2*time.Second)
		if err == nil {
			connected <- conn
		}
	}
	go func() {
		for _, address := range addresses {
			if sick {
				attempt(address)
				continue
			}
			go attempt(address)
			time.Sleep(250 * time.Millisecond)
		}
	}()
	conn := (<-connected).(*net.TCPConn)
	took := time.Since(start).Milliseconds()
	written, _ := conn.Write(make([]byte, 1000))
	say(known{"written": written, "read": finish(conn), "connect_ms": took})
}
