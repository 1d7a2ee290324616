// What Go's net.Dialer takes and costs: bench/dial.sh builds and runs it.
//
//	peer times HOST PORT [COUNT]
//	peer cost HOST PORT,PORT,... TOTAL AT_ONCE
//
// A line of JSON for each dial; each after the first waits for a line on stdin. 20 s for a dial.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

var dialer = net.Dialer{Timeout: 20 * time.Second}

func main() {
	if len(os.Args) > 3 && os.Args[1] == "times" {
		times(os.Args[2], os.Args[3], os.Args[4:])
	} else if len(os.Args) == 6 && os.Args[1] == "cost" {
		cost(os.Args[2], strings.Split(os.Args[3], ","), number(os.Args[4]), number(os.Args[5]))
	} else {
		fmt.Fprintln(os.Stderr, "say: peer times HOST PORT [COUNT], or peer cost HOST PORTS TOTAL AT_ONCE")
		os.Exit(2)
	}
}

func times(host, port string, rest []string) {
	count := 1
	if len(rest) > 0 {
		count = number(rest[0])
	}
	lines := bufio.NewReader(os.Stdin)
	for i := 0; i < count; i++ {
		if i > 0 {
			lines.ReadString('\n')
		}
		began := time.Now()
		connection, err := dialer.Dial("tcp", net.JoinHostPort(host, port))
		ms := float64(time.Since(began).Nanoseconds()) / 1e6
		if err != nil {
			say(map[string]any{"ms": ms, "error": err.Error()})
			continue
		}
		say(map[string]any{"ms": ms, "peer": connection.RemoteAddr().(*net.TCPAddr).IP.String()})
		connection.Close()
	}
}

func cost(host string, ports []string, total, atOnce int) {
	completed, failed := 0, 0
	began := time.Now()
	for first := 0; first < total; first += atOnce {
		size := atOnce
		if size > total-first {
			size = total - first
		}
		connections := make([]net.Conn, size)
		var all sync.WaitGroup
		all.Add(size)
		for i := 0; i < size; i++ {
			go func(i int) {
				defer all.Done()
				port := ports[(first+i)%len(ports)]
				connection, err := dialer.Dial("tcp", net.JoinHostPort(host, port))
				if err == nil {
					connections[i] = connection
				}
			}(i)
		}
		all.Wait()
		for _, connection := range connections {
			if connection == nil {
				failed++
				continue
			}
			completed++
			connection.Close()
		}
	}
	ms := float64(time.Since(began).Nanoseconds()) / 1e6
	say(map[string]any{"ms": ms, "completed": completed, "failed": failed, "peak_kb": peak()})
}

func peak() int {
	status, _ := os.ReadFile("/proc/self/status")
	for _, line := range strings.Split(string(status), "\n") {
		if strings.HasPrefix(line, "VmHWM:") {
			return number(strings.Fields(line)[1])
		}
	}
	return 0
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	return value
}

func say(what map[string]any) {
	line, _ := json.Marshal(what)
	fmt.Println(string(line))
}
