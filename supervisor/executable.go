package supervisor

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ExecError says why a command cannot be executed. Code is CodeNotFound or CodeCannotExec.
type ExecError struct {
	Code int
	Err  error
}

func (e *ExecError) Error() string { return e.Err.Error() }
func (e *ExecError) Unwrap() error { return e.Err }

func exitCodeOf(err error) int {
	var e *ExecError
	if errors.As(err, &e) {
		return e.Code
	}
	return CodeCannotExec
}

func cannotExec(code int, format string, args ...any) error {
	return &ExecError{Code: code, Err: fmt.Errorf(format, args...)}
}

// defaultPath is what execvp(3) searches when there is no PATH.
const defaultPath = "/bin:/usr/bin"

// LookPath finds a command as a shell does: a name with a slash is a path; any other is looked up in PATH, where an empty
// element is the current directory and a match that is not executable is passed over, but remembered for the
// error. (os/exec.LookPath refuses relative elements of PATH and forgets what it passed over.)
func LookPath(name string) (string, error) {
	if name == "" {
		return "", cannotExec(CodeNotFound, "cannot execute \"\": the command is empty")
	}
	if strings.Contains(name, "/") {
		return name, checkExecutable(name)
	}
	path, set := os.LookupEnv("PATH")
	if !set {
		path = defaultPath
	}
	var passedOver error
	for _, dir := range filepath.SplitList(path) {
		if dir == "" {
			dir = "."
		}
		candidate := dir + "/" + name
		err := checkExecutable(candidate)
		if err == nil {
			return candidate, nil
		}
		// ENOTDIR: the element of PATH is no directory, which execvp(3) takes for "not here".
		if passedOver == nil && exitCodeOf(err) == CodeCannotExec && !errors.Is(err, unix.ENOTDIR) {
			passedOver = err
		}
	}
	if passedOver != nil {
		return "", passedOver
	}
	return "", cannotExec(CodeNotFound, "cannot execute %q: not found in PATH (%s)", name, path)
}

// checkExecutable says why path cannot be executed, as far as can be told without trying.
func checkExecutable(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return cannotExec(CodeNotFound, "cannot execute %q: %w", path, cause(err))
	case err != nil:
		return cannotExec(CodeCannotExec, "cannot execute %q: %w", path, cause(err))
	case info.IsDir():
		return cannotExec(CodeCannotExec, "cannot execute %q: it is a directory", path)
	}
	// AT_EACCESS: by the effective user, which is who execve(2) asks for.
	if err := unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS); err != nil {
		return cannotExec(CodeCannotExec, "cannot execute %q: %w (is it executable, on a file system mounted without noexec?)", path, err)
	}
	return nil
}

// cause strips the operation and path that package os puts around an error number.
func cause(err error) error {
	var e *fs.PathError
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

// explainExec says what an error of fork and execve(2) means for path.
func explainExec(path string, err error) error {
	interpreter, script := interpreterOf(path)
	switch {
	case errors.Is(err, unix.ENOENT) && script:
		return cannotExec(CodeNotFound, "cannot execute %q: its interpreter %q, from the #! line, does not exist%s", path, interpreter, crlfHint(interpreter))
	case errors.Is(err, unix.ENOENT):
		return cannotExec(CodeNotFound, "cannot execute %q: its dynamic loader does not exist (a program for another C library, glibc on a musl image or the reverse?)", path)
	case errors.Is(err, unix.EACCES) && script:
		return cannotExec(CodeCannotExec, "cannot execute %q: %w (itself, or its interpreter %q)", path, err, interpreter)
	case errors.Is(err, unix.ENOEXEC):
		return cannotExec(CodeCannotExec, "cannot execute %q: %w (a script without a #! line, or a program for another architecture)", path, err)
	case errors.Is(err, unix.EAGAIN):
		return cannotExec(CodeCannotExec, "cannot start %q: %w (a limit on processes: pids limit of the container, or ulimit -u)", path, err)
	}
	return cannotExec(CodeCannotExec, "cannot execute %q: %w", path, err)
}

// interpreterOf gives the interpreter that a script names.
func interpreterOf(path string) (interpreter string, script bool) {
	f, err := os.Open(path)
	if err != nil {
		return "", false
	}
	defer f.Close()
	const kernelLimit = 256 // BINPRM_BUF_SIZE: the kernel looks no further
	line, _ := bufio.NewReader(io.LimitReader(f, kernelLimit)).ReadString('\n')
	rest, script := strings.CutPrefix(line, "#!")
	if !script {
		return "", false
	}
	rest = strings.TrimLeft(strings.TrimSuffix(rest, "\n"), " \t")
	if end := strings.IndexAny(rest, " \t"); end >= 0 {
		rest = rest[:end]
	}
	return rest, true
}

func crlfHint(interpreter string) string {
	if strings.HasSuffix(interpreter, "\r") {
		return " (the script has Windows line ends)"
	}
	return ""
}
