// LB202: SetReadBuffer(32768) by the receiver. The window never grows, and the sender has to wait for it once a
// round trip. Mended: it is left alone.

package main

import "time"

func main() {
	sick := isSick()
	conn := reach()
	if sick {
		conn.SetReadBuffer(32768)
	}
	start := time.Now()
	got := take(conn)
	say(known{"written": 0, "read": got, "seconds": time.Since(start).Seconds()})
	finish(conn)
}
