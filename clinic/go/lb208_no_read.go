// LB208: the receiver's program does not read: it is busy for five seconds with what it has, while its window is
// closed. Mended: reads what is there.

package main

import "time"

func main() {
	sick := isSick()
	conn := reach()
	start := time.Now()
	got, _ := conn.Read(make([]byte, 1000))
	if sick {
		time.Sleep(5 * time.Second)
	}
	rest := take(conn)
	say(known{"written": 0, "read": int64(got) + rest, "seconds": time.Since(start).Seconds()})
	finish(conn)
}
