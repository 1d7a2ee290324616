// LB101: Close of a net.Conn with input unread. It is close(2): the kernel sends a reset, and what the peer
// had not taken yet is thrown away. Mended: CloseWrite, read to the peer's end, then Close.

package main

func main() {
	sick := isSick()
	conn := reach()
	say(known{"written": fill(conn, 1<<20)})
	got, _ := conn.Read(make([]byte, 1))
	left := unacked(conn)
	if sick {
		conn.Close()
	} else {
		got += int(finish(conn))
	}
	say(known{"read": got, "unacked": left})
}
