package health

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// The kernel's sun_path has 108 bytes, one of them for the final NUL (unix(7)).
const maxUnixPath = 107

// CheckAddr reports whether addr is one that [Listen] and [Probe] accept, without binding or looking up anything:
// host:port, :port (all addresses), [ipv6]:port, or unix:/path. A port is a number from 0 to 65535; to Listen, 0 means
// any free one. The error says what is wrong and what is accepted.
func CheckAddr(addr string) error {
	_, _, err := parseAddr(addr)
	return err
}

// parseAddr splits addr into what package net takes. The path of a Unix socket comes back absolute.
func parseAddr(addr string) (network, address string, err error) {
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		network = "unix"
		address, err = absUnixPath(path)
	} else {
		network, address = "tcp", addr
		err = checkHostPort(addr)
	}
	if err != nil {
		return "", "", fmt.Errorf("invalid address %q: %w; accepted are host:port, :port, [ipv6]:port and unix:/path", addr, err)
	}
	return network, address, nil
}

func absUnixPath(path string) (string, error) {
	if path == "" || strings.HasSuffix(path, "/") {
		return "", errors.New("unix: without a file name")
	}
	path, err := filepath.Abs(path)
	if err == nil && len(path) > maxUnixPath {
		err = fmt.Errorf("the path has %d bytes, a socket's can have %d", len(path), maxUnixPath)
	}
	return path, err
}

func checkHostPort(addr string) error {
	if strings.Contains(addr, "/") {
		return errors.New("a path, or a scheme that is not unix")
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("port %q is not a number from 0 to 65535", port)
	}
	if _, err := netip.ParseAddr(host); err != nil && strings.ContainsFunc(host, notInHostName) {
		return fmt.Errorf("%q is no host", host)
	}
	return nil
}

func notInHostName(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-._", r))
}

// reason strips what package net puts in front of a cause, which the caller's message has already said.
func reason(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}
