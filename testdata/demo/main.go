// Command demo shows a stop as it happens: a small HTTP app under drainit, a balancer that probes /readyz and sends
// requests, and a stop in the middle of it. It exits with 1 when a request was lost.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	rate       = 20 * time.Millisecond // between requests
	probeEvery = time.Second           // the balancer's health check
	probeFails = 2                     // failures until it stops sending
	stopAfter  = 2 * time.Second       // of traffic
	slow       = 4 * time.Second       // a request that is still being answered when the stop signal comes
)

func main() {
	drainit := flag.String("drainit", "./drainit", "the binary to show")
	app := flag.String("app", "", "be the app, on this address")
	flag.Parse()
	if *app != "" {
		serve(*app)
		return
	}
	if err := show(*drainit); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// serve is the app: it answers, and on SIGTERM it closes its port and finishes what it has begun, like any good server.
func serve(addr string) {
	var open atomic.Int64
	server := &http.Server{Addr: addr, ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		open.Add(1)
		defer open.Add(-1)
		if r.URL.Path == "/slow" {
			time.Sleep(slow)
		}
		fmt.Fprintln(w, "hello")
	})}
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	finished := make(chan struct{})
	go func() {
		<-stop.Done()
		fmt.Printf("app:     got SIGTERM, closing the port, finishing %d requests\n", open.Load())
		_ = server.Shutdown(context.Background())
		close(finished)
	}()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		fmt.Fprintln(os.Stderr, "app:", err)
		os.Exit(1)
	}
	<-finished
}

// balancer sends requests as long as its health check lets it.
type balancer struct {
	app, health     string
	served, failed  atomic.Int64
	sending         atomic.Bool
	state           atomic.Value // what the last probe said
	requests        sync.WaitGroup
	client, probing http.Client
}

func show(drainit string) error {
	appAddr, err := freeAddress()
	if err != nil {
		return err
	}
	healthAddr, err := freeAddress()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	args := []string{"--drain-delay", "3s", "--grace-period", "15s", "--health-listen", healthAddr, "--", self, "-app", appAddr}
	fmt.Printf("$ drainit %s\n", strings.Join(append(args[:len(args)-3:len(args)-3], "app"), " "))
	cmd := exec.Command(drainit, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot start %s: %w", drainit, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()

	b := &balancer{app: "http://" + appAddr, health: "http://" + healthAddr + "/readyz"}
	b.client.Timeout, b.probing.Timeout = 10*time.Second, time.Second
	b.state.Store("")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for {
		if conn, err := net.Dial("tcp", appAddr); err == nil { // the app serves
			_ = conn.Close()
			break
		}
		select {
		case err := <-ended:
			return fmt.Errorf("the app did not start: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
	go b.probe(ctx)
	go b.send(ctx)

	start := time.Now()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	stop := time.After(stopAfter)
	slowRequest := time.After(stopAfter + 2*time.Second) // 1 s before the stop signal
	var before int64
	status := func() {
		served := b.served.Load()
		sending := "sends"
		if !b.sending.Load() {
			sending = "has stopped sending"
		}
		fmt.Printf("t=%+3.0fs   /readyz: %-9s balancer %s, %3d answered in this second, %d failed in all\n",
			time.Since(start.Add(stopAfter)).Seconds(), b.state.Load(), sending, served-before, b.failed.Load())
		before = served
	}
	for {
		select {
		case <-tick.C:
			status()
		case <-stop:
			fmt.Println("         --- docker stop: SIGTERM ---")
			_ = cmd.Process.Signal(syscall.SIGTERM)
		case <-slowRequest:
			fmt.Printf("         (a request that takes %v comes in)\n", slow)
			b.request("/slow")
		case err := <-ended:
			b.requests.Wait()
			cancel()
			fmt.Printf("         drainit ended with exit code %d, %.1fs after SIGTERM; %d requests answered, %d failed\n",
				cmd.ProcessState.ExitCode(), time.Since(start.Add(stopAfter)).Seconds(), b.served.Load(), b.failed.Load())
			if err != nil {
				return err
			}
			if n := b.failed.Load(); n > 0 {
				return fmt.Errorf("%d requests were lost", n)
			}
			return nil
		}
	}
}

func (b *balancer) probe(ctx context.Context) {
	for fails := 0; ctx.Err() == nil; time.Sleep(probeEvery) {
		response, err := b.probing.Get(b.health)
		if err != nil {
			b.state.Store("gone")
			fails++
		} else {
			body, _ := io.ReadAll(response.Body)
			_ = response.Body.Close()
			b.state.Store(strings.TrimSpace(string(body)))
			if fails++; response.StatusCode == http.StatusOK {
				fails = 0
			}
		}
		b.sending.Store(fails < probeFails)
	}
}

func (b *balancer) send(ctx context.Context) {
	for ; ctx.Err() == nil; time.Sleep(rate) {
		if b.sending.Load() {
			b.request("/")
		}
	}
}

// request sends one request in the background and counts what becomes of it.
func (b *balancer) request(path string) {
	b.requests.Go(func() {
		response, err := b.client.Get(b.app + path)
		if err != nil {
			b.failed.Add(1)
			fmt.Println("         LOST:", err)
			return
		}
		_, err = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK {
			b.failed.Add(1)
			fmt.Println("         LOST:", response.Status, err)
			return
		}
		b.served.Add(1)
	})
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
