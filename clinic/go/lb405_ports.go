// LB405: a new connection for each request, none of them closed, until connect() fails with EADDRNOTAVAIL: local
// ports towards one destination are few. Mended: one connection for all requests.

package main

import (
	"errors"
	"net"
	"os"
	"syscall"
)

func main() {
	const requests = 40
	sick := isSick()
	conns := []*net.TCPConn{reach()}
	written, refused, got := 0, 0, int64(0)
	for i := 0; i < requests; i++ {
		if sick && i > 0 {
			conn, err := net.Dial("tcp", net.JoinHostPort(os.Args[2], os.Args[3]))
			if errors.Is(err, syscall.EADDRNOTAVAIL) {
				refused++
				continue
			}
			must(err)
			conns = append(conns, conn.(*net.TCPConn))
		}
		count, _ := conns[len(conns)-1].Write(make([]byte, 10))
		written += count
	}
	for _, conn := range conns {
		got += finish(conn)
	}
	say(known{"written": written, "read": got, "refused": refused})
}
