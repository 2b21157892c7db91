package processes

import (
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// press feeds a detacher the reads, then the end of the terminal, and returns the input
// of the process.
func press(between time.Duration, reads ...string) (got string, left bool) {
	d := &detacher{keys: make(chan keys), leave: func() { left = true }}
	done := make(chan struct{})
	var typist sync.WaitGroup
	typist.Go(func() {
		all := make([]keys, len(reads), len(reads)+1)
		for i, r := range reads {
			all[i] = keys{b: []byte(r)}
		}
		for _, k := range append(all, keys{err: io.EOF}) {
			select {
			case d.keys <- k:
			case <-done:
				return
			}
			<-time.After(between)
		}
	})
	defer typist.Wait()
	defer close(done)
	buf := make([]byte, 2)
	for {
		n, err := d.Read(buf)
		got += string(buf[:n])
		if err != nil {
			return got, left
		}
	}
}

func TestDetachKeys(t *testing.T) {
	fast, slow := 10*time.Millisecond, time.Minute
	for _, tt := range []struct {
		name    string
		between time.Duration
		reads   []string
		want    string
	}{
		{"at once", fast, []string{"ab\x10\x11cd"}, "ab"},
		{"in separate reads", fast, []string{"ab", "\x10", "\x11", "cd"}, "ab"},
		{"a slow Ctrl-Q detaches too", slow, []string{"ab", "\x10", "\x11", "cd"}, "ab\x10"},
		{"Ctrl-P with another key reaches the process", fast, []string{"a\x10b"}, "a\x10b"},
		{"Ctrl-P alone reaches the process", slow, []string{"\x10", "b"}, "\x10b"},
		{"Ctrl-P twice", fast, []string{"a\x10\x10b"}, "a\x10\x10b"},
		{"Ctrl-P twice, then Ctrl-Q", fast, []string{"a\x10\x10\x11b"}, "a\x10"},
		{"Ctrl-Q alone", fast, []string{"\x11"}, "\x11"},
		{"as kitty reports keys", slow, []string{"a\x1b[112;5u", "\x1b[113;5u", "b"}, "a\x1b[112;5u"},
		{"at once, with Num Lock", fast, []string{"a\x1b[112;133u\x1b[113;133ub"}, "a"},
		{"with reports of releases", fast, []string{"\x1b[112;5u", "\x1b[112;5:3u", "\x1b[113;5u", "b"}, "\x1b[112;5u\x1b[112;5:3u"},
		{"as xterm reports keys", fast, []string{"a\x1b[27;5;112~", "\x1b[27;5;113~b"}, "a"},
		{"other sequences", fast, []string{"\x1b[A\x1b[112;6u\x1b[113;5u\x1b[3~\x1b[<0;1;2M\x1b", "\x1b["}, "\x1b[A\x1b[112;6u\x1b[113;5u\x1b[3~\x1b[<0;1;2M\x1b\x1b["},
		{"the terminal closes", fast, []string{"a", "b"}, "ab"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if got, left := press(tt.between, tt.reads...); got != tt.want || !left {
					t.Errorf("%q reached the process, detached %v; want %q", got, left, tt.want)
				}
			})
		})
	}
}
