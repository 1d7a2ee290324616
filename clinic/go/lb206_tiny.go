// LB206: writes a byte at a time; Go has TCP_NODELAY on, so that each is a packet. Mended: a bufio.Writer.

package main

import (
	"bufio"
	"io"
)

func main() {
	const bytes = 60000
	sick := isSick()
	conn := reach()
	buffer := bufio.NewWriterSize(conn, 65536)
	var out io.Writer = buffer
	if sick {
		out = conn
	}
	for i := 0; i < bytes; i++ {
		out.Write([]byte{0})
	}
	buffer.Flush()
	writes := 1
	if sick {
		writes = bytes
	}
	say(known{"written": bytes, "writes": writes, "read": finish(conn)})
}
