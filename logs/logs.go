package logs

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Level says how much a line matters.
type Level string

const (
	Debug Level = "debug" // only with --verbose
	Info  Level = "info"
	Warn  Level = "warn"
)

// Format is the form of a line.
type Format string

const (
	Text Format = "text"
	JSON Format = "json"
)

// Line is one line of the log.
type Line struct {
	Level   Level
	Phase   string
	Message string
	// Offset is the time since the stop request, shown as t=+5.000s so that a log reads like a plan; nil before
	// there is one.
	Offset *time.Duration
	// Fields are what only JSON shows; nil is none.
	Fields any
}

// queued is how many lines wait for a slow reader before the next ones are lost. A whole stop writes about ten.
const queued = 256

// Logger queues lines for its writer goroutine. Make one with New.
type Logger struct {
	format Format
	lines  chan item
	lost   atomic.Int64
}

// item is a line to write, or a barrier to close once everything before it is written.
type item struct {
	text    []byte
	barrier chan struct{}
}

// New starts a logger that writes to descriptor fd. The descriptor stays open and is used until the process ends.
func New(fd int, format Format) *Logger {
	l := &Logger{format: format, lines: make(chan item, queued)}
	go l.write(fd)
	return l
}

// Log queues a line, or counts it as lost where the queue is full.
func (l *Logger) Log(line Line) {
	select {
	case l.lines <- item{text: l.render(time.Now(), line)}:
	default:
		l.lost.Add(1)
	}
}

// Lost is how many lines have not been written and not been reported as lost either.
func (l *Logger) Lost() int64 { return l.lost.Load() }

// Flush waits until every line so far is written, for at most d.
func (l *Logger) Flush(d time.Duration) {
	patience := time.NewTimer(d)
	defer patience.Stop()
	done := make(chan struct{})
	select {
	case l.lines <- item{barrier: done}:
	case <-patience.C:
		return
	}
	select {
	case <-done:
	case <-patience.C:
	}
}

func (l *Logger) write(fd int) {
	if _, err := unix.IoctlGetTermios(fd, unix.TCGETS); err == nil {
		// The app's process group is in the foreground, so this is a background write, which a terminal set to
		// TOSTOP answers with SIGTTOU. A thread that blocks SIGTTOU is let through (tty_check_change in the
		// kernel); with a handler the write would be restarted for ever.
		runtime.LockOSThread()
		var ttou unix.Sigset_t
		ttou.Val[0] = 1 << (uint(unix.SIGTTOU) - 1)
		_ = unix.PthreadSigmask(unix.SIG_BLOCK, &ttou, nil)
	}
	for it := range l.lines {
		if it.barrier != nil {
			close(it.barrier)
			continue
		}
		if lost := l.lost.Load(); lost > 0 && writeAll(fd, l.render(time.Now(), lostLine(lost))) {
			l.lost.Add(-lost)
		}
		if !writeAll(fd, it.text) {
			l.lost.Add(1)
		}
	}
}

func lostLine(n int64) Line {
	return Line{Level: Warn, Message: fmt.Sprintf("%d log lines lost: stderr did not take them", n)}
}

// writeAll says whether all of b was written.
func writeAll(fd int, b []byte) bool {
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		switch err {
		case nil:
			b = b[n:]
		case unix.EINTR:
		case unix.EAGAIN:
			// Somebody who shares the description has set O_NONBLOCK. Waiting here holds nobody up.
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, -1)
		default:
			return false
		}
	}
	return true
}

func (l *Logger) render(now time.Time, line Line) []byte {
	if l.format == JSON {
		return renderJSON(now, line)
	}
	b := []byte("drainit: ")
	if line.Offset != nil {
		b = append(b, "t=+"...)
		b = strconv.AppendFloat(b, line.Offset.Seconds(), 'f', 3, 64)
		b = append(b, "s "...)
	}
	if line.Phase != "" {
		b = append(b, line.Phase...)
		b = append(b, ": "...)
	}
	return append(append(b, line.Message...), '\n')
}

func renderJSON(now time.Time, line Line) []byte {
	out := struct {
		Time    string   `json:"time"`
		Level   Level    `json:"level"`
		Phase   string   `json:"phase,omitempty"`
		Offset  *float64 `json:"since_stop_request_s,omitempty"`
		Message string   `json:"msg"`
		Fields  any      `json:"summary,omitempty"`
	}{Time: now.UTC().Format(time.RFC3339Nano), Level: line.Level, Phase: line.Phase, Message: line.Message, Fields: line.Fields}
	if line.Offset != nil {
		seconds := line.Offset.Seconds()
		out.Offset = &seconds
	}
	b, err := json.Marshal(out)
	if err != nil {
		b = []byte(strconv.Quote(err.Error()))
	}
	return append(b, '\n')
}
