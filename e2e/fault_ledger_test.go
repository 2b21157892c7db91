package e2e_test

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// counter is a process that writes lines with a number, one more each time, and the time
// by its machine's clock. After a number of lines, or on input, it ends with code 7 and the
// word "end" in its last line.
type counter struct {
	lines int           // 0: until input arrives
	every time.Duration // between two lines
	pad   int           // additional bytes per line
	shell bool          // requires only a busybox, and has neither lines nor pad
}

// counterCode is the exit code of a counter; it cannot be a default.
const counterCode = 7

const counterScript = `$|=1; my($n,$d,$pad)=@ARGV; open(my $u,"<","/proc/uptime"); my $x=$pad?" ".("x"x$pad):"";` +
	`sub now{sysseek($u,0,0);sysread($u,my $b,64);int($b*1000)}` +
	`my $i=0; vec(my $in="",0,1)=1; while(1){ printf "%d %d%s\n",++$i,now(),$x; last if $n&&$i>=$n-1;` +
	`if($n){select(undef,undef,undef,$d) if $d}else{my $r=$in;last if select($r,undef,undef,$d)>0}}` +
	`printf "%d %d end\n",++$i,now(); exit 7`

const counterShell = `now() { read u _ </proc/uptime; echo $1 ${u%.*}${u#*.}0 $2; }; i=1; now 1; ` +
	`until read -t $1 _; do i=$((i+1)); now $i; done; now $((i+1)) end; exit 7`

// args returns the arguments of perl.
func (c counter) args() []string {
	return []string{"-e", counterScript, strconv.Itoa(c.lines), fmt.Sprint(c.every.Seconds()), strconv.Itoa(c.pad)}
}

// spec returns a StartRequest.
func (c counter) spec() map[string]any {
	if c.shell {
		return map[string]any{"process": map[string]any{"cmd": "/bin/sh", "args": []string{"-c", counterShell, "sh", fmt.Sprint(c.every.Seconds())}}, "stdin": true}
	}
	return map[string]any{"process": map[string]any{"cmd": "/usr/bin/perl", "args": c.args()}, "stdin": c.lines == 0}
}

// terminal returns a StartRequest with a terminal without echo.
func (c counter) terminal() map[string]any {
	if c.shell {
		args := []string{"-c", "stty -echo -onlcr; " + counterShell, "sh", fmt.Sprint(c.every.Seconds())}
		return map[string]any{"process": map[string]any{"cmd": "/bin/sh", "args": args}, "pty": pty(80, 24)}
	}
	args := append([]string{"-c", `stty -echo -onlcr; exec /usr/bin/perl "$@"`, "perl"}, c.args()...)
	return map[string]any{"process": map[string]any{"cmd": "/bin/bash", "args": args}, "pty": pty(80, 24)}
}

// command returns the body of POST /commands.
func (c counter) command() map[string]any {
	return map[string]any{"cmd": "/usr/bin/perl", "args": c.args(), "stdin": c.lines == 0, "timeout_ms": 0}
}

// ledger checks what one client receives of one counter: every line once, in order, then
// the end.
type ledger struct {
	name       string
	process    string
	lines      atomic.Uint64 // the number of the last whole line
	reconnects atomic.Uint64 // number of reconnects
	cuts       atomic.Uint64 // number of streams cut off without a reconnect event

	mu      sync.Mutex
	why     []error // reasons of the first cuts
	half    []byte
	whole   bool // received the counter's last line
	pid     uint32
	end     *ending
	wrong   error
	at      time.Time     // time of the last output
	stall   time.Duration // the longest time between two outputs, since reset
	most    time.Duration // the longest time between two outputs
	clock   int64         // time of the last line by the process's clock
	paused  int64         // the longest time between two lines, by the process's clock
	settled chan struct{} // closed when nothing more can arrive
	done    bool
}

// ending is a process's end as a surface reports it.
type ending struct {
	code  *int // nil: unknown
	cause string
}

func newLedger(name, process string) *ledger {
	return &ledger{name: name, process: process, settled: make(chan struct{})}
}

// wrongError reports data that a client must never receive.
type wrongError struct{ text string }

func (e *wrongError) Error() string { return e.text }

func wrong(format string, args ...any) error { return &wrongError{fmt.Sprintf(format, args...)} }

func isWrong(err error) bool {
	var w *wrongError
	return errors.As(err, &w)
}

// output checks the next bytes of output.
func (l *ledger) output(b []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if !l.at.IsZero() {
		l.stall, l.most = max(l.stall, now.Sub(l.at)), max(l.most, now.Sub(l.at))
	}
	l.at = now
	if l.end != nil {
		return wrong("%d bytes after the end", len(b))
	}
	l.half = append(l.half, b...)
	rest := l.half
	for {
		i := bytes.IndexByte(rest, '\n')
		if i < 0 {
			break
		}
		if err := l.line(rest[:i]); err != nil {
			return err
		}
		rest = rest[i+1:]
	}
	l.half = append(l.half[:0], rest...)
	return nil
}

// line checks one line.
func (l *ledger) line(b []byte) error {
	words := bytes.Fields(b)
	if len(words) < 2 {
		return wrong("after line %d: %.80q", l.lines.Load(), b)
	}
	n, err := strconv.ParseUint(string(words[0]), 10, 64)
	if want := l.lines.Load() + 1; err != nil || n != want {
		return wrong("line %.80q where line %d should be", b, want)
	}
	clock, err := strconv.ParseInt(string(words[1]), 10, 64)
	if err != nil || l.whole {
		return wrong("line %.80q", b)
	}
	if l.clock != 0 {
		l.paused = max(l.paused, clock-l.clock)
	}
	l.clock = clock
	l.whole = len(words) > 2 && string(words[2]) == "end"
	l.lines.Store(n)
	return nil
}

// started checks the pid, which never changes.
func (l *ledger) started(pid uint32) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if pid == 0 || l.pid != 0 && l.pid != pid {
		return wrong("a start with pid %d after one with %d", pid, l.pid)
	}
	l.pid = pid
	return nil
}

// ended checks the end, which comes once, and never with 0 for an unknown exit status.
func (l *ledger) ended(code *int, cause string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.end != nil {
		return wrong("a second end (%s)", cause)
	}
	l.end = &ending{code, cause}
	if code != nil && *code == 0 {
		return wrong("exit code 0 (%s)", cause)
	}
	if code != nil && *code == counterCode && (!l.whole || len(l.half) > 0) {
		return wrong("the end came after line %d and %q", l.lines.Load(), l.half)
	}
	return nil
}

// cut counts a stream that ended without a reconnect event.
func (l *ledger) cut(why error) {
	l.cuts.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.why) < 10 {
		l.why = append(l.why, why)
	}
}

// settle ends the ledger with the reader's error.
func (l *ledger) settle(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wrong = err; !l.done {
		l.done = true
		close(l.settled)
	}
}

// stalled returns the longest silence since the last call.
func (l *ledger) stalled() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.stall
	if !l.at.IsZero() {
		d = max(d, time.Since(l.at))
	}
	l.stall = 0
	return d
}

// longest returns the longest silence.
func (l *ledger) longest() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.most
}

// pause returns the longest pause of the process itself.
func (l *ledger) pause() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Duration(l.paused) * time.Millisecond
}

// check returns the error of a settled ledger, or nil.
func (l *ledger) check(code int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.wrong != nil:
		return fmt.Errorf("%s: after line %d: %w", l.name, l.lines.Load(), l.wrong)
	case l.end == nil:
		return fmt.Errorf("%s: no end after line %d", l.name, l.lines.Load())
	case l.end.code == nil || *l.end.code != code:
		return fmt.Errorf("%s: the end is %s, want code %d", l.name, l.end, code)
	case code == counterCode && !l.whole:
		return fmt.Errorf("%s: no last line after line %d", l.name, l.lines.Load())
	}
	return nil
}

// String returns the end for a failed test.
func (e *ending) String() string {
	if e == nil {
		return "none"
	}
	if e.code == nil {
		return "without a code, " + e.cause
	}
	return fmt.Sprintf("%d, %s", *e.code, e.cause)
}
