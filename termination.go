package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// kubernetesTerminationLog is what kubelet mounts for a container unless terminationMessagePath says otherwise.
	kubernetesTerminationLog = "/dev/termination-log"
	// terminationLogLimit is kubelet's limit for one container's message.
	terminationLogLimit = 4096
)

// terminationLog is the file that the summary is written to at the end.
type terminationLog struct {
	path   string // "" is none
	create bool
}

// openTerminationLog takes --termination-log: auto, off, or a path. The file is opened only at the end, so that it is
// not held open; but a path that cannot work is an error now.
func openTerminationLog(value string) (*terminationLog, error) {
	switch value {
	case "off":
		return &terminationLog{}, nil
	case "auto":
		return &terminationLog{path: kubernetesTerminationLog}, nil
	}
	path, err := filepath.Abs(value) // drainit moves to /
	if err != nil {
		return nil, fmt.Errorf("cannot use --termination-log %q: %w", value, err)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("cannot use --termination-log %q: %q is not a directory", value, filepath.Dir(path))
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil, fmt.Errorf("cannot use --termination-log %q: it is a directory", value)
	}
	return &terminationLog{path: path, create: true}, nil
}

// write replaces the file's content with the line. It takes no longer than patience: the file may be on a file system
// that hangs.
func (t *terminationLog) write(line string, patience time.Duration) error {
	if t.path == "" {
		return nil
	}
	line += "\n"
	if len(line) > terminationLogLimit {
		line = line[:terminationLogLimit]
	}
	flags := os.O_WRONLY | os.O_TRUNC | unix.O_NONBLOCK // a FIFO without a reader must not hold us up
	if t.create {
		flags |= os.O_CREATE
	}
	done := make(chan error, 1)
	go func() {
		f, err := os.OpenFile(t.path, flags, 0o644)
		if err != nil {
			done <- err
			return
		}
		_, err = f.WriteString(line)
		done <- errors.Join(err, f.Close())
	}()
	select {
	case err := <-done:
		if err == nil || errors.Is(err, fs.ErrNotExist) && !t.create {
			return nil
		}
		return fmt.Errorf("cannot write the termination log: %w", err)
	case <-time.After(patience):
		return fmt.Errorf("cannot write the termination log %s: it takes longer than %v", t.path, patience)
	}
}
