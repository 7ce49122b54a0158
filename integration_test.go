package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/drainit/drainit/signals"
)

func init() {
	// print-signals prints "ready", then each signal it gets. It ends on TERM or QUIT with 0.
	helpers["print-signals"] = func([]string) {
		c := make(chan os.Signal, 64)
		signal.Notify(c)
		fmt.Printf("ready pid=%d ppid=%d\n", os.Getpid(), os.Getppid())
		for s := range c {
			sig := s.(syscall.Signal)
			if sig == syscall.SIGURG || sig == syscall.SIGCHLD {
				continue
			}
			fmt.Println("got", signals.Name(sig))
			if sig == syscall.SIGTERM || sig == syscall.SIGQUIT {
				os.Exit(0)
			}
		}
	}
}

func TestStopInOrder(t *testing.T) {
	t.Parallel()
	p := start(t, world{helper: "print-signals"}, "--drain-delay", "300ms", "--stop-signal", "QUIT")
	p.line(t, `^ready pid=\d+ ppid=1$`)
	p.waitReady(200)
	p.signal(syscall.SIGTERM)
	p.waitReady(503)
	require.Zero(t, p.count("^got"), "nothing is sent while it drains")
	p.line(t, "^got SIGQUIT$")
	require.Equal(t, 0, p.exit())
	p.line(t, `^drainit: .*stopped as SIGTERM asked: .* exited with 0; draining 0\.[3-9].*; exit code 0$`)
}
