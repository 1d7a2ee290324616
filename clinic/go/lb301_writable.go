// LB301: an event loop of its own that asks epoll for EPOLLOUT with nothing to write: EpollWait returns at once,
// every time. Mended: asks for EPOLLIN alone.

package main

import "syscall"

func main() {
	sick := isSick()
	conn := reach()
	written, _ := conn.Write(make([]byte, 100))
	say(known{"written": written})
	file, err := conn.File()
	must(err)
	poller, err := syscall.EpollCreate1(0)
	must(err)
	event := syscall.EpollEvent{Events: syscall.EPOLLIN}
	if sick {
		event.Events |= syscall.EPOLLOUT
	}
	must(syscall.EpollCtl(poller, syscall.EPOLL_CTL_ADD, int(file.Fd()), &event))
	events, calls := make([]syscall.EpollEvent, 1), 0
	for events[0].Events&syscall.EPOLLIN == 0 {
		syscall.EpollWait(poller, events, -1)
		calls++
	}
	file.Close()
	say(known{"read": finish(conn), "calls": calls})
}
