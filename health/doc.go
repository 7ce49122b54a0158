// Package health tells a balancer, kubelet or docker whether traffic may be sent to this container.
//
// A [Gate] holds the state. [Listen] answers probes from it over HTTP, on TCP or a Unix socket. [Probe] is the other
// end, for HEALTHCHECK and exec probes in images that have neither a shell nor curl.
//
// What the endpoint promises:
//
//   - /readyz is 200 "ready" in state Ready, and 503 with the state as its text in any other. /livez is 200 "ok" as
//     long as the main loop answers, draining or not: a container that is draining must not be restarted for it.
//   - No answer other than those two is below 400. In particular there are no redirects, because kubelet takes 200
//     to 399 as success.
//   - While the state is not Ready every answer closes its connection, so that a prober with pooled connections lets
//     go of them.
//   - It goes on answering until [Server.Close]. To a balancer a refused connection is a crash, a 503 is a drain.
//   - It needs no more memory for many clients than for a few, a client that is slow or silent cannot keep an honest
//     one out, and while nobody is connected it holds no timer and does not run.
//   - Nothing but the state is revealed: no version, no process, no path.
package health
