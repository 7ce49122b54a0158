package supervisor

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func parseFile(t *testing.T, name string) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	return f
}

// selectors lists the names that a file takes from a package, as in time.Now.
func selectors(f *ast.File, pkg string) []string {
	var names []string
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == pkg {
				names = append(names, s.Sel.Name)
			}
		}
		return true
	})
	return names
}

// TestMachineIsPure holds that the machine and what it is made of cannot reach a clock or the system.
func TestMachineIsPure(t *testing.T) {
	allowed := []string{
		"errors", "fmt", "iter", "math", "math/bits", "path/filepath", "strconv", "strings", "syscall", "time",
		"golang.org/x/sys/unix", "github.com/drainit/drainit/logs", "github.com/drainit/drainit/signals",
	}
	for _, name := range []string{"machine.go", "plan.go", "event.go", "action.go", "schedule.go", "sigset.go"} {
		f := parseFile(t, name)
		for _, i := range f.Imports {
			path, err := strconv.Unquote(i.Path.Value)
			require.NoError(t, err)
			assert.Contains(t, allowed, path, name)
			assert.Nil(t, i.Name, "%s renames %s", name, path)
		}
		for _, pkg := range []string{"unix", "syscall"} {
			for _, sel := range selectors(f, pkg) {
				assert.Regexp(t, `^SIG[A-Z0-9]+$`, sel, "%s: %s.%s", name, pkg, sel)
			}
		}
		for _, sel := range selectors(f, "time") {
			assert.NotContains(t, []string{"Now", "Sleep", "Since", "Until", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}, sel, name)
		}
		for _, sel := range selectors(f, "logs") {
			assert.Contains(t, []string{"Level", "Debug", "Info", "Warn"}, sel, name)
		}
		for _, sel := range selectors(f, "filepath") {
			assert.Equal(t, "Base", sel, name)
		}
	}
}

// TestProcessesAreTouchedInOnePlace holds that fork, wait and kill are called by host and its terminal alone.
func TestProcessesAreTouchedInOnePlace(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	forbidden := []string{"Wait4", "Waitid", "ForkExec", "StartProcess", "Exec", "Kill", "Tgkill", "PidfdSendSignal", "Command"}
	found := map[string]bool{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f := parseFile(t, name)
		for _, pkg := range []string{"unix", "syscall", "os", "exec"} {
			for _, sel := range selectors(f, pkg) {
				if slices.Contains(forbidden, sel) {
					found[name+" "+sel] = true
				}
			}
		}
	}
	assert.Equal(t, map[string]bool{
		"os_linux.go Wait4": true, "os_linux.go ForkExec": true, "os_linux.go Kill": true, "terminal_linux.go Kill": true,
	}, found)
}
