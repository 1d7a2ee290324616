// What all patients in Go share: how they are called, how they reach their peer, how they say what they
// know. They are called as those in C are (c/patient.h). Each is built of its own file and this one.

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"
	"unsafe"
)

type known map[string]any

func isSick() bool {
	if len(os.Args) < 4 || (os.Args[1] != "sick" && os.Args[1] != "well") {
		fmt.Fprintf(os.Stderr, "usage: %s sick|well HOST PORT | serve PORT\n", os.Args[0])
		os.Exit(2)
	}
	return os.Args[1] == "sick"
}

func say(what known) {
	line, _ := json.Marshal(what)
	fmt.Println(string(line))
}

// A failure that is not part of the disease.
func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
}

func listenAt(port string) *net.TCPListener {
	listener, err := net.Listen("tcp4", ":"+port)
	must(err)
	say(known{"port": listener.Addr().(*net.TCPAddr).Port})
	return listener.(*net.TCPListener)
}

// The one connection to the peer, whichever way the arguments say.
func reach() *net.TCPConn {
	host, port := os.Args[2], os.Args[3]
	if host == "serve" {
		listener := listenAt(port)
		conn, err := listener.AcceptTCP()
		must(err)
		listener.Close()
		return conn
	}
	conn, err := net.Dial("tcp", net.JoinHostPort(host, port))
	must(err)
	return conn.(*net.TCPConn)
}

// Writes as much as the kernel takes within a moment, at most so many bytes.
func fill(conn *net.TCPConn, most int) int {
	conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	written, _ := conn.Write(make([]byte, most))
	conn.SetWriteDeadline(time.Time{})
	return written
}

// Reads to the end.
func take(conn *net.TCPConn) int64 {
	got, _ := io.Copy(io.Discard, conn)
	return got
}

// Ends a connection so that nothing is lost: half-close, read to the peer's end, close.
func finish(conn *net.TCPConn) int64 {
	conn.CloseWrite()
	got := take(conn)
	conn.Close()
	return got
}

// Bytes that the peer's kernel has not acknowledged.
func unacked(conn *net.TCPConn) int32 {
	count := int32(-1)
	raw, err := conn.SyscallConn()
	must(err)
	raw.Control(func(fd uintptr) {
		syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCOUTQ, uintptr(unsafe.Pointer(&count)))
	})
	return count
}
