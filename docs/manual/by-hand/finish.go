// Ends a connection by hand and says how far the bytes came.
//
//	go build -o finish finish.go
//	./finish HOST PORT BYTES SECONDS [closed | read]
//
// Writes BYTES bytes to a server whose greeting it never reads, and finishes within SECONDS. With
// `read` it reads to the end instead, and says what that end was. Linux, Go 1.21 or later.
// Exit code 0: acked, closed where that was asked for, or read to a FIN. 1: less. 2: misuse.
package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

// --- on the page ---

// End is how the peer ended.
type End string

const (
	Open, FIN, Reset, Unknown End = "open", "FIN", "RST", "unknown"

	established, closed = 1, 7 // of tcpi_state
	soProtocol          = 38
)

// Finished is what Finish knows.
type Finished struct {
	Unacked int64 // of the bytes written; -1: it cannot be known
	Closed  bool  // all acked, and the peer's FIN came after ours was acked
	Peer    End
}

// sample asks the kernel for the state, the bytes not acked (our FIN included), and the bytes
// received (a FIN counts as one).
func sample(fd uintptr) (state byte, queue int32, received uint64) {
	var info [256]byte
	length := uint32(len(info))
	syscall.Syscall6(syscall.SYS_GETSOCKOPT, fd, syscall.IPPROTO_TCP, syscall.TCP_INFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&length)), 0)
	syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCOUTQ, uintptr(unsafe.Pointer(&queue)))
	return info[0], queue, binary.NativeEndian.Uint64(info[128:])
}

// isPlainTCP: and not MPTCP, which counts otherwise.
func isPlainTCP(fd uintptr) bool {
	protocol, err := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, soProtocol)
	return err == nil && protocol == syscall.IPPROTO_TCP
}

// ended says how the peer ended, once a read has returned 0 bytes. Ask before Close; from outside,
// by SyscallConn().Control. bytesRead counts all that was ever read from this connection, which has
// had SO_OOBINLINE since before the first read.
func ended(fd uintptr, bytesRead uint64) End {
	_, _, received := sample(fd)
	switch {
	case isPlainTCP(fd) && received == bytesRead+1:
		return FIN
	case isPlainTCP(fd) && received == bytesRead:
		return Reset
	}
	return Unknown
}

// drain reads and throws away what is there, up to the limit.
func drain(fd uintptr, bytesRead, limit *uint64) End {
	var block [65536]byte
	for *limit > 0 {
		n, err := syscall.Read(int(fd), block[:min(*limit, uint64(len(block)))])
		switch {
		case err == syscall.EAGAIN || err == syscall.EINTR:
			return Open
		case err != nil:
			return Reset
		case n == 0:
			return ended(fd, *bytesRead)
		}
		*bytesRead += uint64(n)
		*limit -= uint64(n)
	}
	return Open // what is unread now turns Close into a reset
}

// finish ends our direction and waits until the peer's kernel has it all; with waitForFIN until the
// peer has ended its own too. The caller closes conn afterwards, never before.
func finish(conn *net.TCPConn, bytesRead uint64, within time.Duration, waitForFIN bool) Finished {
	f := Finished{Unacked: -1, Peer: Open}
	until := time.Now().Add(within)
	limit := uint64(1 << 20)
	raw, err := conn.SyscallConn()
	if err != nil {
		return f
	}
	state, plain := byte(0), false
	raw.Control(func(fd uintptr) {
		state, _, _ = sample(fd)
		plain = isPlainTCP(fd)
	})
	earlyFIN := state != established
	queued := conn.CloseWrite() == nil // ENOTCONN: reset before, so no FIN of ours is queued
	if !plain {
		return f
	}

	var queue int32
	look := func(fd uintptr) bool {
		state, _, _ = sample(fd)
		wasOpen := f.Peer == Open
		if wasOpen {
			f.Peer = drain(fd, &bytesRead, &limit)
		}
		_, queue, _ = sample(fd)
		earlyFIN = earlyFIN || wasOpen && f.Peer == FIN && queue > 0
		return state == closed || queue == 0 && (f.Peer != Open || !waitForFIN)
	}
	over := false
	for !over && time.Until(until) > 0 {
		// Go's poller is edge-triggered: the ACK of our FIN calls look again. An edge may be missed.
		conn.SetWriteDeadline(time.Now().Add(min(time.Until(until), time.Second)))
		raw.Write(func(fd uintptr) bool { over = look(fd); return over })
	}
	raw.Control(func(fd uintptr) { look(fd) })

	if f.Peer == Open && state == closed {
		f.Peer = Unknown // the limit kept us from its end
	}
	f.Unacked = int64(queue)
	if queued && queue > 0 {
		f.Unacked-- // our FIN
	}
	f.Closed = queue == 0 && f.Peer == FIN && !earlyFIN
	return f
}

// --- off the page ---

// writeAll writes until all is written, the connection fails, or the deadline passes.
func writeAll(conn *net.TCPConn, size uint64) uint64 {
	block := make([]byte, 251*256) // byte number n of the stream is n modulo 251
	for i := range block {
		block[i] = byte(i % 251)
	}
	written := uint64(0)
	for written < size {
		at := written % 251
		n, err := conn.Write(block[at:min(uint64(len(block)), at+size-written)])
		written += uint64(n)
		if err != nil {
			fmt.Fprintf(os.Stderr, "finish: writing ended after %d bytes: %v\n", written, err)
			break
		}
	}
	return written
}

func readToTheEnd(conn *net.TCPConn) int {
	bytesRead, err := io.Copy(io.Discard, conn)
	peer := Reset
	if errors.Is(err, os.ErrDeadlineExceeded) {
		peer = Open
	} else if raw, failed := conn.SyscallConn(); err == nil && failed == nil {
		raw.Control(func(fd uintptr) { peer = ended(fd, uint64(bytesRead)) })
	}
	fmt.Printf("read: %d bytes, peer %s\n", bytesRead, peer)
	if peer == FIN {
		return 0
	}
	return 1
}

func connect(host, port string, within time.Duration) (*net.TCPConn, error) {
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(host, port), within)
	if err != nil {
		return nil, err
	}
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return nil, err
	}
	raw.Control(func(fd uintptr) {
		syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_OOBINLINE, 1)
	})
	return conn.(*net.TCPConn), nil
}

func run(host, port string, size uint64, within time.Duration, level string) int {
	conn, err := connect(host, port, within+time.Second)
	if err != nil {
		return misuse(err.Error())
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(within + time.Second))
	written := writeAll(conn, size)
	fmt.Fprintf(os.Stderr, "finish: written %d\n", written)
	if level == "read" {
		return readToTheEnd(conn)
	}
	f := finish(conn, 0, within, level == "closed")

	complete := f.Unacked == 0 && written == size
	reached, acked := "written", "?"
	if complete && f.Closed {
		reached = "closed"
	} else if complete {
		reached = "acked"
	}
	if f.Unacked >= 0 {
		acked = strconv.FormatUint(written-uint64(f.Unacked), 10)
	}
	fmt.Printf("%s: %s of %d bytes acked, peer %s\n", reached, acked, written, f.Peer)
	if complete && (f.Closed || level == "acked") {
		return 0
	}
	return 1
}

func main() {
	words := append(os.Args[1:], "acked")
	known := len(words) == 5 || len(words) == 6 && (words[4] == "closed" || words[4] == "read")
	if !known {
		os.Exit(misuse("HOST PORT BYTES SECONDS [closed | read]"))
	}
	size, sizeErr := strconv.ParseUint(words[2], 10, 64)
	seconds, secondsErr := strconv.ParseFloat(words[3], 64)
	if err := errors.Join(sizeErr, secondsErr); err != nil {
		os.Exit(misuse(err.Error()))
	}
	os.Exit(run(words[0], words[1], size, time.Duration(seconds*float64(time.Second)), words[4]))
}

func misuse(what string) int {
	fmt.Fprintf(os.Stderr, "finish: %s\n", what)
	return 2
}
