package health

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckAddrAccepts(t *testing.T) {
	for _, addr := range []string{
		":8081", ":0", ":65535", "127.0.0.1:80", "0.0.0.0:8081", "localhost:8081", "my-pod.ns_1.svc:1",
		"[::1]:8081", "[::]:0", "[fe80::1%eth0]:8081",
		"unix:/run/drainit.sock", "unix:drainit.sock", "unix:///run/drainit.sock",
	} {
		require.NoError(t, CheckAddr(addr), addr)
	}
}

func TestCheckAddrRejects(t *testing.T) {
	for addr, want := range map[string]string{
		"":                                   "missing port",
		"8081":                               "missing port",
		"localhost":                          "missing port",
		"localhost:":                         "not a number",
		":http":                              "not a number",
		":65536":                             "not a number",
		":-1":                                "not a number",
		":+1":                                "not a number",
		": 80":                               "not a number",
		"::1:8081":                           "too many colons",
		"::1":                                "too many colons",
		"[::1]":                              "missing port",
		"[::1:80":                            "missing ']'",
		":8081/readyz":                       "a path, or a scheme",
		"/run/drainit.sock":                  "a path, or a scheme",
		"http://:8081":                       "a path, or a scheme",
		"tcp:/x":                             "a path, or a scheme",
		"my pod:80":                          "no host",
		"[a:b]:80":                           "no host",
		"user@host:80":                       "no host",
		"unix:":                              "without a file name",
		"unix:/run/":                         "without a file name",
		"unix:/" + strings.Repeat("x", 107):  "108 bytes",
		"UNIX:" + "/run/drainit.sock":        "a path, or a scheme",
		"unix:/run/" + "../" + "../tmp/dir/": "without a file name",
	} {
		err := CheckAddr(addr)
		require.ErrorContains(t, err, want, addr)
		require.ErrorContains(t, err, "accepted are", addr)
		_, lerr := Listen(addr, new(Gate), nil)
		require.EqualError(t, lerr, err.Error(), "Listen says the same")
		require.EqualError(t, Probe(t.Context(), addr), err.Error(), "Probe says the same")
	}
}

func TestUnixPathBecomesAbsolute(t *testing.T) {
	wd, err := os.Getwd()
	require.NoError(t, err)
	_, path, err := parseAddr("unix:a/../b.sock")
	require.NoError(t, err)
	require.Equal(t, filepath.Join(wd, "b.sock"), path)
	require.NoError(t, CheckAddr("unix:/"+strings.Repeat("x", 106)), "107 bytes are the kernel's limit")
}
