package interpreter

import "testing"

// Code that ignores its interrupt loses its kernel. Waiting and later executions run in the
// next one. So do executions after code that ended its kernel.
func TestAKernelThatDiesIsReplaced(t *testing.T) {
	t.Parallel()
	c := newContext(t, newSandbox(), "one", "python")
	first := c.exec(`import os, signal, time
x = 1
os.kill(os.getppid(), signal.SIGINT)  # which is not for the guard
signal.signal(signal.SIGINT, lambda *_: None)
print("on")
while True: time.sleep(.01)`)
	startUntil(t, first, printed)
	end(first)
	for _, tt := range [][2]string{
		{"'x' in globals()", "=False"},
		{"import os; os._exit(3)", "!KernelDied"},
		{"import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "!KernelDied"},
		{"import os; os.closerange(3, 64); 1", "!KernelDied"},
		{"2", "=2"},
	} {
		if got := c.run(tt[0]); got != tt[1] {
			t.Errorf("%q: got %q, want %q", tt[0], got, tt[1])
		}
	}
}

// Shell commands are on lines of their own: in a string, or within an expression, the same
// characters have no special meaning.
func TestLinesForTheShell(t *testing.T) {
	t.Parallel()
	c := newContext(t, newSandbox(), "one", "python")
	for _, tt := range [][2]string{
		{"s = '''\n![a](b)\n%pip c'''\n!echo it\\'s\nif s:\n    !echo two\ns", "it's\ntwo\n=\\n![a](b)\\n%pip c"},
		{"(7\n%matplotlib)", "!NameError"},
		{"!echo one\nf(:", "!SyntaxError"},
		{"%matplotlib inline\n3", "=3"},
	} {
		if got := c.run(tt[0]); got != tt[1] {
			t.Errorf("%q: got %q, want %q", tt[0], got, tt[1])
		}
	}
}
