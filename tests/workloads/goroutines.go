// Goroutines, channels, timers, a mutex, a TCP server with its clients, and a child process, all of one Go program.
// usage: goroutines ROUNDS
package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

func must[T any](value T, err error) T {
	check(err == nil, fmt.Sprint(err))
	return value
}

func check(good bool, what string) {
	if !good {
		fmt.Println("WRONG", what)
		os.Exit(1)
	}
}

// Numbers go through a chain of goroutines, each of which adds one.
func chain(length, numbers int) int {
	first := make(chan int)
	in := first
	for i := 0; i < length; i++ {
		out := make(chan int, i%3)
		go func(in, out chan int) {
			for n := range in {
				out <- n + 1
			}
			close(out)
		}(in, out)
		in = out
	}
	go func() {
		for i := 0; i < numbers; i++ {
			first <- i
		}
		close(first)
	}()
	sum := 0
	for n := range in {
		sum += n
	}
	return sum
}

// Workers hash what they take from a queue; the collector can get the results in any order.
func workers(count, jobs int) uint64 {
	queue, results := make(chan int), make(chan uint64, 4)
	var done sync.WaitGroup
	for i := 0; i < count; i++ {
		done.Add(1)
		go func() {
			defer done.Done()
			for job := range queue {
				sum := sha256.Sum256([]byte(strconv.Itoa(job)))
				for round := 0; round < 200; round++ {
					sum = sha256.Sum256(sum[:])
				}
				results <- uint64(sum[0])<<8 | uint64(sum[1])
			}
		}()
	}
	go func() {
		for i := 0; i < jobs; i++ {
			queue <- i
		}
		close(queue)
		done.Wait()
		close(results)
	}()
	var sum uint64
	for result := range results {
		sum += result
	}
	return sum
}

func serve(listener net.Listener) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer connection.Close()
			lines := bufio.NewScanner(connection)
			for lines.Scan() {
				hash := sha256.Sum256(lines.Bytes())
				fmt.Fprintln(connection, hex.EncodeToString(hash[:]))
			}
		}()
	}
}

func client(address string, name, rounds int, done *sync.WaitGroup) {
	defer done.Done()
	connection := must(net.Dial("tcp", address))
	defer connection.Close()
	check(connection.SetDeadline(time.Now().Add(time.Minute)) == nil, "deadline")
	lines := bufio.NewScanner(connection)
	for i := 0; i < rounds; i++ {
		question := fmt.Sprintf("client %d round %d", name, i)
		must(fmt.Fprintln(connection, question))
		check(lines.Scan(), "no answer")
		hash := sha256.Sum256([]byte(question))
		check(lines.Text() == hex.EncodeToString(hash[:]), "another answer")
	}
}

// A ticker, which may be late, and a timer that fires once.
func timers() int {
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	after := time.After(20 * time.Millisecond)
	ticks, over := 0, false
	for ticks < 6 || !over {
		select {
		case <-ticker.C:
			ticks++
		case <-after:
			over = true
		}
	}
	return ticks
}

func signals() {
	came := make(chan os.Signal, 16)
	signal.Notify(came, syscall.SIGUSR1)
	for i := 0; i < 10; i++ {
		check(syscall.Kill(os.Getpid(), syscall.SIGUSR1) == nil, "kill")
		<-came
	}
}

func main() {
	rounds := 200
	if len(os.Args) > 1 {
		rounds = must(strconv.Atoi(os.Args[1]))
	}
	check(chain(20, rounds) == rounds*(rounds-1)/2+20*rounds, "chain")
	check(workers(8, rounds) == workers(3, rounds), "workers")
	check(timers() >= 6, "timers")
	signals()

	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	go serve(listener)
	var done sync.WaitGroup
	for i := 0; i < 8; i++ {
		done.Add(1)
		go client(listener.Addr().String(), i, rounds, &done)
	}
	done.Wait()
	listener.Close()

	child := exec.Command("/bin/echo", "from a child")
	check(strings.TrimSpace(string(must(child.Output()))) == "from a child", "child")
	fmt.Println("ok", rounds)
}
