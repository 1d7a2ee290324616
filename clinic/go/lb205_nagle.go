// LB205: SetNoDelay(false), and a request in two writes: the second waits for the acknowledgement of the first,
// which is delayed: 40 ms a request. Mended: TCP_NODELAY, which Go has on unless told otherwise.

package main

import (
	"io"
	"time"
)

func main() {
	const rounds = 40
	sick := isSick()
	conn := reach()
	conn.SetNoDelay(!sick)
	piece, got, start := make([]byte, 100), 0, time.Now()
	for i := 0; i < rounds; i++ {
		conn.Write(piece)
		conn.Write(piece)
		count, _ := io.ReadFull(conn, piece)
		got += count
	}
	say(known{"written": rounds * 200, "read": got, "seconds": time.Since(start).Seconds()})
	finish(conn)
}
