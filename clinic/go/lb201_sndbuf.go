// LB201: SetWriteBuffer(16384). Over a path of 50 ms only so many bytes are under way at a time. Mended: it is
// left alone, and the kernel lets the buffer grow.

package main

func main() {
	sick := isSick()
	conn := reach()
	if sick {
		conn.SetWriteBuffer(16384)
	}
	written, _ := conn.Write(make([]byte, 6000000))
	say(known{"written": written, "read": finish(conn)})
}
