# driven: go run: 1000 goroutines, os/exec
# packages: golang-go
export HOME=$PWD
cat > a.go <<'X'
package main
import ("fmt"; "os/exec"; "sync")
func main() { var wg sync.WaitGroup; c := make(chan int, 10); for i := 0; i < 1000; i++ { wg.Add(1); go func(i int) { defer wg.Done(); c <- i }(i) }
 go func() { wg.Wait(); close(c) }(); s := 0; for v := range c { s += v }
 out, err := exec.Command("echo", "hi").Output(); if err != nil || string(out) != "hi\n" || s != 499500 { panic(fmt.Sprint(err, s)) } }
X
go run a.go
