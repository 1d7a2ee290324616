// LB104: Close with the tail still under way to a peer that has something to say. Its next byte is answered by a
// reset, and the tail is thrown away. Nothing was unread at Close. Mended: CloseWrite, read to the end.

package main

import "time"

func main() {
	sick := isSick()
	conn := reach()
	written, got := fill(conn, 1<<20), int64(0)
	if sick {
		conn.Close()
		say(known{"written": written})
		time.Sleep(600 * time.Millisecond) // the program goes on with other work
	} else {
		say(known{"written": written})
		got = finish(conn)
	}
	say(known{"read": got})
}
