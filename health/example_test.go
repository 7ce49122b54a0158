package health_test

import (
	"context"
	"fmt"

	"github.com/drainit/drainit/health"
)

func ExampleListen() {
	var gate health.Gate
	server, err := health.Listen("127.0.0.1:0", &gate, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()

	fmt.Println(gate.State())
	gate.Set(health.Ready)
	fmt.Println(gate.State())
	gate.Set(health.Draining)
	gate.Set(health.Ready) // too late
	fmt.Println(gate.State())
	// Output:
	// starting
	// ready
	// draining
}

func ExampleProbe() {
	var gate health.Gate
	server, err := health.Listen("127.0.0.1:0", &gate, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()

	ctx, cancel := context.WithTimeout(context.Background(), health.ProbeTimeout)
	defer cancel()
	fmt.Println(health.Probe(ctx, server.Addr()))
	gate.Set(health.Ready)
	fmt.Println(health.Probe(ctx, server.Addr()))
	// Output:
	// not ready: starting
	// <nil>
}
