package main

import (
	"os/exec"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEarlyIsInitializedFirst: nothing that can wait is initialized between os/signal and the first subscription.
func TestEarlyIsInitializedFirst(t *testing.T) {
	cmd := exec.Command(binary, "--version")
	cmd.Env = append(cleanEnvironment(), "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err)
	var order []string
	for _, m := range regexp.MustCompile(`(?m)^init (\S+) @`).FindAllStringSubmatch(string(out), -1) {
		order = append(order, m[1])
	}
	at := slices.Index(order, "os/signal")
	require.GreaterOrEqual(t, at, 0, "%s", out)
	require.Equal(t, "github.com/drainit/drainit/signals/early", order[at+1])
	require.Contains(t, order[at+2:], "net/http")
}
