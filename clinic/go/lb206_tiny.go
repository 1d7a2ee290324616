// LB206: writes a byte at a time for four seconds; Go has TCP_NODELAY on, so that each is a packet. Mended: a
// bufio.Writer.

package main

import (
	"bufio"
	"io"
	"time"
)

func main() {
	sick := isSick()
	conn := reach()
	buffer := bufio.NewWriterSize(conn, 65536)
	var out io.Writer = buffer
	if sick {
		out = conn
	}
	bytes, end := 0, time.Now().Add(4*time.Second)
	for bytes < 60000 || (sick && time.Now().Before(end)) {
		out.Write([]byte{0})
		bytes++
	}
	buffer.Flush()
	writes := 1
	if sick {
		writes = bytes
	}
	say(known{"written": bytes, "writes": writes, "read": finish(conn)})
}
