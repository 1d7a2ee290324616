// LB103: SetLinger(0). Close then resets the connection and throws away what is not acknowledged. Mended: it is
// left alone; CloseWrite, read to the peer's end, then Close.

package main

func main() {
	sick := isSick()
	conn := reach()
	say(known{"written": fill(conn, 1<<20)})
	got, _ := conn.Read(make([]byte, 1))
	left := unacked(conn)
	if sick {
		conn.SetLinger(0)
		conn.Close()
	} else {
		got += int(finish(conn))
	}
	say(known{"read": got, "unacked": left})
}
