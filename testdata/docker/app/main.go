// Command app is a static server for images that hold nothing else. It serves on port 8080, prints each signal it gets, and
// on SIGTERM or SIGINT finishes what it serves and exits with 0.
//
//	app            serve
//	app orphan     serve, with a leftover process that has lost its parent
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	received := make(chan os.Signal, 64)
	signal.Notify(received)
	role := "serve"
	if len(os.Args) > 1 {
		role = os.Args[1]
	}
	switch role {
	case "middle":
		_, _ = run("leftover", strconv.Itoa(os.Getpid()))
		return
	case "leftover":
		for parent := os.Args[2]; strconv.Itoa(os.Getppid()) == parent; {
			time.Sleep(time.Millisecond)
		}
		fmt.Fprintf(os.Stderr, "leftover: parent is %d\n", os.Getppid())
		fmt.Fprintf(os.Stderr, "leftover: got %s\n", next(received))
		return
	case "orphan":
		middle, err := run("middle")
		if err == nil {
			err = middle.Wait()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "app:", err)
			os.Exit(1)
		}
	}
	serve(received)
}

func serve(received <-chan os.Signal) {
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	http.HandleFunc("/slow", func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(4 * time.Second)
		fmt.Fprintln(w, "finished")
	})
	http.HandleFunc("/page", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat("x", 30000)) })
	server := &http.Server{Addr: ":8080"}
	go func() {
		if err := server.ListenAndServe(); err != http.ErrServerClosed {
			fmt.Fprintln(os.Stderr, "app:", err)
			os.Exit(1)
		}
	}()
	fmt.Fprintf(os.Stderr, "app: pid %d parent %d uid %d\n", os.Getpid(), os.Getppid(), os.Getuid())
	for {
		name := next(received)
		fmt.Fprintln(os.Stderr, "app: got", name)
		if name == "SIGTERM" || name == "SIGINT" {
			_ = server.Shutdown(context.Background())
			fmt.Fprintln(os.Stderr, "app: finished")
			return
		}
	}
}

// next waits for a signal; the runtime's own and that of ended children do not count.
func next(received <-chan os.Signal) string {
	for s := range received {
		if s != unix.SIGURG && s != unix.SIGCHLD {
			return unix.SignalName(s.(syscall.Signal))
		}
	}
	return ""
}

func run(args ...string) (*exec.Cmd, error) {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Stderr = os.Stderr
	return cmd, cmd.Start()
}
