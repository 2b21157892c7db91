package interpreter

import (
	"strings"
	"testing"
)

// check runs code and compares the results.
func (c *testContext) check(codes [][2]string) {
	c.t.Helper()
	for _, tt := range codes {
		if got := c.run(tt[0]); got != tt[1] {
			c.t.Errorf("%q: got %.300q, want %.300q", tt[0], got, tt[1])
		}
	}
}

// recorded waits until the kernel's record has a line.
func (c *testContext) recorded(want string) {
	c.t.Helper()
	for {
		switch l, err := c.record.ReadString('\n'); {
		case err != nil:
			c.t.Fatalf("the kernel's record ends without %q: %v", want, err)
		case strings.TrimSpace(l) == want:
			return
		}
	}
}

// A process that code forks ends where the code does: the kernel, its results and its
// output belong to the parent.
func TestForkedProcessesDoNotActAsKernels(t *testing.T) {
	t.Parallel()
	c := newContext(t, newSandbox(), "one", "python")
	const fork = "import os, sys, time\nsys.stdout.write('before ')\n"
	c.check([][2]string{
		{fork + "pid = os.fork()\nif pid: os.waitpid(pid, 0)\nprint('child' if pid == 0 else 'parent')\n'value'", "before child\nparent\n=value"},
		{fork + "pid = os.fork()\nif pid == 0:\n  raise ValueError('bad')\nos.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])", "before Traceback (most recent call last):\n  File \"<cell 2>\", line 5, in <module>\n    raise ValueError('bad')\nValueError: bad\n=1"},
		{fork + "pid = os.fork()\nif pid == 0: sys.exit(3)\nos.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])", "before =3"},
		{fork + "pid = os.fork()\nif pid == 0:\n  print('out'); os._exit(4)\nos.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])", "before out\n=4"},
		// Its open files are flushed when it ends.
		{fork + "import tempfile; name = tempfile.mktemp()\npid = os.fork()\nif pid == 0: f = open(name, 'w'); f.write('text')\nelse: os.waitpid(pid, 0); print(open(name).read())", "before text\n"},
		// The same in a thread, in a task, and in a function of multiprocessing.
		{"import multiprocessing as mp, asyncio\nasync def one(): return 7\ndef f(n): print('in', n); return n * asyncio.run(one())\nwith mp.get_context('fork').Pool(1) as pool: got = pool.map(f, [1, 2])\ngot", "in 1\nin 2\n=[7, 14]"},
		{"import threading\ndef g():\n  pid = os.fork()\n  if pid: os.waitpid(pid, 0)\nt = threading.Thread(target=g); t.start(); t.join()\n8", "=8"},
		{"async def h():\n  pid = os.fork()\n  await asyncio.sleep(0)\n  return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])\nawait asyncio.create_task(h())", "=0"},
		{"import subprocess\nsubprocess.run(['echo', 'hi'], preexec_fn=lambda: print('pre')).returncode", "pre\nhi\n=0"},
	})
}

// Code has the indent of its first line removed, as IPython does it.
func TestIndentedCode(t *testing.T) {
	t.Parallel()
	c := newContext(t, newSandbox(), "one", "python")
	c.check([][2]string{
		{"\n        x = 1\n        x", "=1"},
		{"   \n\tif x:\n\t\tx = 2\n\n\tx", "=2"},
		{"    s = '''\n      a\n   b'''\n    s", "=\\n  a\\n   b"},
		{"    !echo hi\n    3", "hi\n=3"},
		{"x = 4\n  x", "!IndentationError"},
		{"", ""},
		{"  \n ", ""},
		{"'\x0c'\n!echo four", "four\n"},
	})
}

// Code runs in an event loop that keeps running between executions.
func TestCodeRunsInALoop(t *testing.T) {
	t.Parallel()
	c := newContext(t, newSandbox(), "one", "python")
	c.check([][2]string{
		{"import asyncio, time, contextvars\nv = contextvars.ContextVar('v'); v.set(1)\nasync def f(n):\n  for i in range(n):\n    print('tick', i); await asyncio.sleep(.01)\n  return n\nt = asyncio.create_task(f(3)); print('made')", "made\n"},
	})
	c.recorded("tick 2")
	c.check([][2]string{
		{"await t", "=3"},
		{"v.get()", "=1"},
		{"asyncio.run(t)", "!RuntimeError"},
		{"g = f(1); g.close(); type(g).__name__", "=coroutine"},
		{"q = asyncio.Queue(); asyncio.get_running_loop().call_later(.01, q.put_nowait, 5)\nawait q.get()", "=5"},
		{"for t in asyncio.all_tasks(): t.cancel()\n6", "=6"},
		{"async def bad():\n  raise SystemExit(1)\nt = asyncio.create_task(bad())\nwhile not t.done(): await asyncio.sleep(.01)\n7", "Traceback (most recent call last):\n  File \"<cell 8>\", line 2, in bad\n    raise SystemExit(1)\nSystemExit: 1\n=7"},
		{"8", "=8"},
	})
}

// An interrupt ends code that waits as well as code that computes, and nothing else.
func TestInterruptsInALoop(t *testing.T) {
	t.Parallel()
	c := newContext(t, newSandbox(), "one", "python")
	c.check([][2]string{{"import asyncio, time\nt = asyncio.create_task(asyncio.sleep(1e6, 9)); x = 1\nasync def spin():\n  while True: time.sleep(.01)", ""}})
	for _, code := range []string{
		"print('on')\nawait asyncio.sleep(1e6)",
		"print('on')\nwhile True: pass",
		"await asyncio.sleep(0); print('on')\nwhile True: pass",
		"print('on'); await spin()",
	} {
		end(startUntil(t, c.exec(code), printed))
		c.check([][2]string{{"x, t.done()", "=(1, False)"}})
	}
	// It also ends a task that blocks the loop between two executions.
	c.check([][2]string{{"t2 = asyncio.create_task(spin())", ""}})
	end(startUntil(t, c.exec("10"), "keepalive"))
	c.check([][2]string{{"x, t.done(), t2.done()", "=(1, False, True)"}})
}

// Output of threads and children between two executions is in the kernel's record.
func TestOutputBetweenExecutions(t *testing.T) {
	t.Parallel()
	for language, codes := range map[string][2]string{
		"python":     {"import threading, os\ngo = threading.Event()\ndef late():\n  go.wait(); print('thread'); display('shown')\n  os.system('echo child')\nthreading.Thread(target=late).start()\nthreading.Timer(.3, go.set).start(); 1", "=1"},
		"javascript": {"setTimeout(() => { console.log('thread'); display('shown'); console.log('child') }, 300); 1", "=1"},
		"bash":       {"{ sleep .3; echo thread; echo shown; echo child; } &", ""},
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			c := newContext(t, newSandbox(), "one", language)
			c.check([][2]string{codes})
			for _, l := range []string{"thread", "shown", "child"} {
				c.recorded(l)
			}
		})
	}
}
