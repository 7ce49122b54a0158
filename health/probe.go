package health

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
	"unicode"
)

// ProbeTimeout is the longest [Probe] takes. It is below docker's HEALTHCHECK timeout (30 s), and above the 1 s of a
// kubelet exec probe, which then ends it first.
const ProbeTimeout = 3 * time.Second

// maxAnswer bounds what is read of an answer, header included; ours has about 200 bytes.
const maxAnswer = 4 << 10

// Probe asks /readyz at addr, in one of the forms of [CheckAddr], and returns nil if the answer is 200. An address
// that means "all" to a server, such as :8081, 0.0.0.0:8081 or [::]:8081, is asked on loopback. Otherwise the error
// says why: not ready and in which state, not reachable, no answer. Probe ends with ctx, or after ProbeTimeout.
func Probe(ctx context.Context, addr string) error {
	network, address, err := parseAddr(addr)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, ProbeTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, network, address) // takes an unspecified host as the local one
	if err != nil {
		return fmt.Errorf("cannot reach %s: %w", addr, reason(err))
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // in the past: wakes a blocked read
	defer stop()

	// By hand and not with an http.Client: this program is started for each probe, so start-up is all its cost.
	const request = "GET /readyz HTTP/1.1\r\nHost: localhost\r\nUser-Agent: drainit-probe\r\nConnection: close\r\n\r\n"
	// A server that closes without reading may still have answered, so a failed write is left to the read to report.
	_, _ = io.WriteString(conn, request)
	resp, err := http.ReadResponse(bufio.NewReader(io.LimitReader(conn, maxAnswer)), nil)
	if err != nil {
		var netErr net.Error
		switch {
		case ctx.Err() != nil:
			err = ctx.Err()
		case !errors.Is(err, io.ErrUnexpectedEOF) && !errors.As(err, &netErr):
			err = errors.New("not HTTP") // net/http's error would quote what came, byte for byte
		}
		return fmt.Errorf("no answer from %s: %w", addr, reason(err))
	}
	// The body is left open on purpose: its Close would read to the end first, and conn.Close is enough.
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	return fmt.Errorf("not ready: %s", why(resp))
}

// why is the state that a 503 of ours carries. Anything else may come from a stranger on that port, whose text is not
// to be trusted on a terminal or in a log.
func why(resp *http.Response) string {
	if resp.StatusCode == http.StatusServiceUnavailable {
		body, _ := io.ReadAll(resp.Body)
		text := strings.TrimSuffix(string(body), "\n")
		if text != "" && len(text) <= 80 && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return text
		}
	}
	return fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
}
