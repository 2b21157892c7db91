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

// counter is a process that says who it is in every line it writes: a number,
// one more each time, and when it wrote it by its machine's clock. It ends with
// code 7 and the word "end" in its last line, after a number of lines, or when
// something comes in on stdin.
type counter struct {
	lines int           // 0: until something comes in
	every time.Duration // between two lines
	pad   int           // more bytes a line
	shell bool          // it needs no more than a busybox, and has neither lines nor pad
}

// counterCode is how a counter exits by itself: no code that could be a default.
const counterCode = 7

const counterScript = `$|=1; my($n,$d,$pad)=@ARGV; open(my $u,"<","/proc/uptime"); my $x=$pad?" ".("x"x$pad):"";` +
	`sub now{sysseek($u,0,0);sysread($u,my $b,64);int($b*1000)}` +
	`my $i=0; vec(my $in="",0,1)=1; while(1){ printf "%d %d%s\n",++$i,now(),$x; last if $n&&$i>=$n-1;` +
	`if($n){select(undef,undef,undef,$d) if $d}else{my $r=$in;last if select($r,undef,undef,$d)>0}}` +
	`printf "%d %d end\n",++$i,now(); exit 7`

const counterShell = `now() { read u _ </proc/uptime; echo $1 ${u%.*}${u#*.}0 $2; }; i=1; now 1; ` +
	`until read -t $1 _; do i=$((i+1)); now $i; done; now $((i+1)) end; exit 7`

// args are those of perl.
func (c counter) args() []string {
	return []string{"-e", counterScript, strconv.Itoa(c.lines), fmt.Sprint(c.every.Seconds()), strconv.Itoa(c.pad)}
}

// spec is a StartRequest.
func (c counter) spec() map[string]any {
	if c.shell {
		return map[string]any{"process": map[string]any{"cmd": "/bin/sh", "args": []string{"-c", counterShell, "sh", fmt.Sprint(c.every.Seconds())}}, "stdin": true}
	}
	return map[string]any{"process": map[string]any{"cmd": "/usr/bin/perl", "args": c.args()}, "stdin": c.lines == 0}
}

// terminal is a StartRequest with a terminal that echoes nothing.
func (c counter) terminal() map[string]any {
	if c.shell {
		args := []string{"-c", "stty -echo -onlcr; " + counterShell, "sh", fmt.Sprint(c.every.Seconds())}
		return map[string]any{"process": map[string]any{"cmd": "/bin/sh", "args": args}, "pty": pty(80, 24)}
	}
	args := append([]string{"-c", `stty -echo -onlcr; exec /usr/bin/perl "$@"`, "perl"}, c.args()...)
	return map[string]any{"process": map[string]any{"cmd": "/bin/bash", "args": args}, "pty": pty(80, 24)}
}

// command is the body of POST /commands.
func (c counter) command() map[string]any {
	return map[string]any{"cmd": "/usr/bin/perl", "args": c.args(), "stdin": c.lines == 0, "timeout_ms": 0}
}

// ledger is what one client was given of one counter, held against what it must
// be: every line once, in order, then the end.
type ledger struct {
	name    string
	process string
	lines   atomic.Uint64 // the number of the last whole line
	comes   atomic.Uint64 // how often the client came back
	cuts    atomic.Uint64 // how often it was cut off without a word

	mu      sync.Mutex
	half    []byte
	whole   bool // the counter's last line was there
	pid     uint32
	end     *ending
	wrong   error
	at      time.Time     // when the last output came
	stall   time.Duration // the longest time between two outputs, since reset
	clock   int64         // of the process, in its last line
	paused  int64         // the longest time between two lines, by the process's clock
	settled chan struct{} // closed when there is nothing more to come
	done    bool
}

// ending is how a process ended, as a surface says it.
type ending struct {
	code  *int // nil: nobody saw it
	cause string
}

func newLedger(name, process string) *ledger {
	return &ledger{name: name, process: process, settled: make(chan struct{})}
}

// wrongError is what a client must never be given.
type wrongError struct{ text string }

func (e *wrongError) Error() string { return e.text }

func wrong(format string, args ...any) error { return &wrongError{fmt.Sprintf(format, args...)} }

func isWrong(err error) bool {
	var w *wrongError
	return errors.As(err, &w)
}

// output takes the next bytes.
func (l *ledger) output(b []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if !l.at.IsZero() {
		l.stall = max(l.stall, now.Sub(l.at))
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

// line takes one line.
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

// started takes the pid, which never changes.
func (l *ledger) started(pid uint32) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if pid == 0 || l.pid != 0 && l.pid != pid {
		return wrong("a start with pid %d after one with %d", pid, l.pid)
	}
	l.pid = pid
	return nil
}

// ended takes the end, which comes once and is never a zero that nobody saw.
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

// settle says that nothing more comes.
func (l *ledger) settle(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wrong = err; !l.done {
		l.done = true
		close(l.settled)
	}
}

// stalled gives the longest silence since the last call.
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

// pause is the longest time that the process itself stood still.
func (l *ledger) pause() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Duration(l.paused) * time.Millisecond
}

// check tells what is wrong with a ledger that settled.
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

// String is the end as a failed test shows it.
func (e *ending) String() string {
	if e == nil {
		return "none"
	}
	if e.code == nil {
		return "without a code, " + e.cause
	}
	return fmt.Sprintf("%d, %s", *e.code, e.cause)
}
