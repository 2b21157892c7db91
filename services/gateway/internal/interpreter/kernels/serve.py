# The kernel of one context, after output.py: runs the code that it receives, one execution
# after the other, and keeps what the code defines. The next file has the language's class
# Kernel: run(code, count, variables) is a coroutine that sends the results of the code and
# raises its error; error(e) returns the traceback of that.
# Arguments: the address of the context first, its language last. It prints "ready" when it
# accepts code.


class Missing(Exception):
    """The template lacks a program that the language requires."""


def die_with(parent):
    """Ends this process with its parent."""
    import ctypes

    pdeathsig = 1
    ctypes.CDLL(None).prctl(pdeathsig, signal.SIGKILL)
    if os.getppid() != parent:  # the parent has already ended
        os._exit(1)


def child(argv, **options):
    """A program in its own session that ends with the kernel."""
    kernel = os.getpid()
    return subprocess.Popen(argv, start_new_session=True, preexec_fn=lambda: die_with(kernel), **options)


def words(e):
    try:
        return str(e)
    except Exception:
        return "<an exception whose str() fails>"


class Guard:
    """Supervises the kernel from its own process, which no code can block. It accepts
    executions and passes them to the kernel one by one. Code is interrupted if the process
    of its execution has ended, or if its client has disconnected while another execution
    waits. A kernel that ignores its interrupts is killed. A kernel that ends is replaced by
    one without its definitions, which gets the waiting executions."""

    PATIENCE = 10  # seconds between the first interrupt and the end of the kernel

    def __init__(self, listener):
        self.listener, self.announced, self.next = listener, False, None
        self.ended, w = os.pipe()
        os.set_blocking(w, False)
        for number in (signal.SIGCHLD, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(w, warn_on_full_buffer=False)

    def run_kernel(self):
        """Runs one kernel to its end. Returns whether it was ever ready."""
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        guard = os.getpid()
        self.kernel = os.fork()
        if self.kernel == 0:
            os.close(signal.set_wakeup_fd(-1))
            os.close(self.ended)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for f in (self.channel, self.listener, self.next):
                if f is not None:
                    f.close()
            begin(theirs, guard)
        theirs.close()
        self.conn, self.due, self.tries, self.idle, self.ready = None, None, 0, False, False
        self.poll = select.poll()
        for f in (self.ended, self.channel):
            self.poll.register(f, select.POLLIN)
        if self.next is None:
            self.poll.register(self.listener, select.POLLIN)
        while (status := self.next_event()) is None:
            pass
        self.channel.close()
        if self.conn is not None:
            self.report_end(status)
            self.conn.close()
        return self.ready

    def next_event(self):
        """Waits for the next event. Returns the kernel's status when it has ended."""
        wait = None if self.due is None else max(0, self.due - time.monotonic()) * 1000
        happened = dict(self.poll.poll(wait))
        if self.channel.fileno() in happened:
            self.receive()
        elif self.conn is not None and self.conn.fileno() in happened:
            self.left = happened[self.conn.fileno()] == select.POLLIN and has_data(self.conn)
            self.poll.unregister(self.conn)
            if not self.left or self.next is not None:
                self.interrupt()
        elif self.listener.fileno() in happened:
            self.accept()
        elif self.ended in happened:
            os.read(self.ended, 64)
            pid, status = os.waitpid(self.kernel, os.WNOHANG)
            return status if pid else None
        elif self.due is not None and not happened:
            self.interrupt()
        return None

    def receive(self):
        """Receives a message of the kernel: it is ready, it has read an execution's request,
        or the execution has ended."""
        what = self.channel.recv(16)
        if what == b"begun":
            with contextlib.suppress(FileNotFoundError):  # the execution has ended
                self.poll.modify(self.conn, select.POLLIN)
        elif what == b"end":
            with contextlib.suppress(KeyError):
                self.poll.unregister(self.conn)
            self.conn.close()
            self.conn, self.due, self.tries, self.idle = None, None, 0, True
            self.pass_on()
        elif what == b"ready":
            if not self.announced:
                os.write(1, b"ready\n")
            self.ready = self.announced = self.idle = True
            self.pass_on()
        else:
            self.poll.unregister(self.channel)

    def accept(self):
        """Accepts the next execution: one waits here, the others in the listener's queue."""
        self.next = self.listener.accept()[0]
        self.poll.unregister(self.listener)
        if self.idle:
            self.pass_on()
        elif self.conn is not None and self.left and self.due is None:
            self.interrupt()

    def pass_on(self):
        """Passes the waiting execution to the kernel, unless it has ended."""
        if self.next is None:
            return
        conn, self.next = self.next, None
        self.poll.register(self.listener, select.POLLIN)
        if gone(conn):
            conn.close()
            return
        self.conn, self.left, self.idle = conn, False, False
        self.poll.register(conn, 0)  # reports the end of its process
        with contextlib.suppress(OSError):  # the kernel has just ended
            self.channel.sendmsg([b"run"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, conn.fileno().to_bytes(4, sys.byteorder))])

    def interrupt(self):
        """Interrupts the code, again after half the time, and then kills the kernel."""
        self.tries += 1
        self.due = time.monotonic() + self.PATIENCE / 2 if self.tries < 3 else None
        os.kill(self.kernel, signal.SIGINT if self.tries < 3 else signal.SIGKILL)

    def report_end(self, status):
        """Reports to an execution that its kernel has ended."""
        how = "by signal %d" % os.WTERMSIG(status) if os.WIFSIGNALED(status) else "with code %d" % os.WEXITSTATUS(status)
        why = "the code ignored its interrupt" if self.tries > 2 else "the kernel ended before the code did, " + how
        value = why + ": its context starts again without its definitions"
        lines = {"type": "error", "name": "KernelDied", "value": value, "traceback": "KernelDied: " + value}, {"type": "end_of_execution"}
        with contextlib.suppress(OSError):  # its client is gone
            # The last line of the kernel may be incomplete.
            self.conn.send("".join("\n" + encode(l) for l in lines).encode() + b"\n", socket.MSG_DONTWAIT)


def has_data(conn):
    try:
        return conn.recv(64, socket.MSG_DONTWAIT) != b""
    except OSError:
        return False


def gone(conn):
    poll = select.poll()
    poll.register(conn, 0)
    return bool(poll.poll(0))  # POLLHUP


class Interrupts:
    """Delivers interrupts to the running code only."""

    def __init__(self, serving, kernel):
        self.serving, self.kernel, self.tries = serving, kernel, 0
        self.then = getattr(kernel, "interrupt", None)
        self.running, self.task = False, None
        self.accepted, self.early = False, False

    def accept(self):
        """Keeps an interrupt of the accepted execution until its code begins."""
        self.accepted, self.early = True, False

    def begin(self):
        self.kernel.interrupted = False
        self.task, self.tries, self.running = asyncio.current_task(), 0, True
        signal.signal(signal.SIGINT, self)  # code may have set another handler
        self.accepted = False
        if self.early:
            raise KeyboardInterrupt

    def __call__(self, *args):
        if line.forked:
            return signal.default_int_handler(*args)
        if self.accepted:
            self.early = True
            return
        now = asyncio.current_task(self.serving.loop)
        self.tries += 1
        if self.running and self.then is not None:
            self.then(*args)
        elif self.running and now is self.task:
            raise KeyboardInterrupt
        else:  # the code waits, or has not begun: another task may block the loop
            if self.running:
                self.serving.loop.call_soon_threadsafe(self.task.cancel)
            if now not in (None, self.task) and self.tries > 1:
                raise KeyboardInterrupt


class Serving:
    """A running kernel. Its event loop runs as long as the kernel: the code of an execution is
    a task of the loop, and tasks that it started continue after it."""

    def __init__(self, guard):
        # poll(2) has no state in the operating system that a forked process would share.
        self.guard, self.loop, self.count = guard, asyncio.SelectorEventLoop(selectors.PollSelector()), 0
        self.context, self.conn = contextvars.copy_context(), None
        asyncio.set_event_loop(self.loop)

    def run(self, kernel):
        self.kernel, self.interrupts = kernel, Interrupts(self, kernel)
        signal.signal(signal.SIGINT, self.interrupts)
        os.register_at_fork(before=self.fork, after_in_child=self.forked)
        self.loop.add_reader(self.guard, self.start_next)
        self.send(b"ready")
        while True:
            try:
                self.loop.run_forever()
            except BaseException as e:  # of a task that code started
                if line.forked:
                    raise
                if not isinstance(e, KeyboardInterrupt):
                    print(self.kernel.error(e), end="", file=sys.stderr)

    def send(self, what):
        """Sends a message to the guard. If code has closed the socket, the kernel ends, and is
        replaced by one with a guard."""
        try:
            self.guard.send(what)
        except OSError:
            os._exit(1)

    def start_next(self):
        """Starts the execution that the guard passes on."""
        try:
            what, with_it, _, _ = self.guard.recvmsg(16, socket.CMSG_SPACE(4))
        except OSError:
            os._exit(1)
        if not what:
            os._exit(1)
        conn = socket.socket(fileno=int.from_bytes(with_it[0][2][:4], sys.byteorder))
        # The loop itself keeps no reference to a task.
        self.task = self.context.run(self.loop.create_task, self.serve(conn))

    async def serve(self, conn):
        """Runs one execution to its end."""
        with conn:
            try:
                await self.execute(conn)
            except Exception as e:
                print("invalid execution:", repr(e), file=sys.__stderr__)
            self.context = contextvars.copy_context()
            self.send(b"end")
            with contextlib.suppress(OSError):
                conn.shutdown(socket.SHUT_RDWR)  # children of the code may have it open, too

    async def execute(self, conn):
        raw, fds = bytearray(), []
        while not raw.endswith(b"\n"):
            part, with_it, _, _ = conn.recvmsg(1 << 20, socket.CMSG_SPACE(4))
            if not part:
                return
            raw += part
            fds += [int.from_bytes(data[:4], sys.byteorder) for _, _, data in with_it]
        request = json.loads(raw)
        if not request.get("turn"):
            self.interrupts.accept()
        self.send(b"begun")
        self.conn = conn
        line.begin(conn)
        if request.get("turn"):
            await self.wait_for_end(conn)
            return
        self.count += 1
        given.begin(fds)
        line.emit(type="number_of_executions", execution_count=self.count)
        failed = None
        try:
            self.interrupts.begin()
            await self.kernel.run(request["code"], self.count, request["env_vars"])
            self.interrupts.running = False
        except BaseException as e:  # also SystemExit: the kernel continues
            self.interrupts.running = False
            failed = e
        if line.forked:
            leave(self.kernel, failed)
        if failed is not None:
            if isinstance(failed, asyncio.CancelledError) and self.interrupts.tries:
                failed = KeyboardInterrupt().with_traceback(failed.__traceback__)
            flush()
            line.emit(type="error", name=getattr(failed, "name_there", type(failed).__name__), value=words(failed), traceback=self.kernel.error(failed))
            failed = None  # its traceback references this frame, which would keep objects of the code
        signal.signal(signal.SIGINT, self.interrupts)
        given.end()
        line.end()

    async def wait_for_end(self, conn):
        """Keeps other executions waiting until the client of this one disconnects: it runs
        something outside of the kernel."""
        line.emit(type="turn")
        over = self.loop.create_future()
        self.loop.add_reader(conn, lambda: over.done() or over.set_result(None))
        await over
        self.loop.remove_reader(conn)
        line.end()

    def fork(self):
        for out in outs():
            out.flush()

    def forked(self):
        """Keeps a process that code forked from acting as a kernel: it ends where the code does,
        or where the code waits for the loop, as other tasks must not run in two processes."""
        line.fork()
        for out in outs():
            out.reset()
        for d in drains:
            with contextlib.suppress(OSError):
                os.close(d.r)
        drains.clear()
        self.loop.remove_reader(self.guard)
        self.guard.close()
        if self.conn is not None:
            self.conn.close()
        self.loop._ready.clear()
        self.loop.call_soon(leave, self.kernel, None)


def leave(kernel, e):
    """Ends a process that code forked as Python does: open files are flushed."""
    if e is None or isinstance(e, SystemExit):
        raise SystemExit(e.code if e else 0)
    print(kernel.error(e), end="", file=sys.stderr)
    raise SystemExit(1)


def begin(guard, parent):
    """Runs a kernel to its end in its own process."""
    try:
        die_with(parent)
        run(guard)
    finally:
        if not line.forked:
            os._exit(1)


def run(guard):
    global moments
    moments = Moments()
    failed = os.dup(2)
    drains.extend([Drain("stdout", 1), Drain("stderr", 2)])
    serving = Serving(guard)
    try:
        kernel = Kernel()
    except Exception as e:  # standard error is already redirected
        os.write(failed, words(e).encode())
        return
    os.close(failed)
    serving.run(kernel)


def main():
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind("\0millrace-context-" + sys.argv[1])
    except OSError as e:
        sys.exit(words(e))
    listener.listen(128)
    guard = Guard(listener)
    while guard.run_kernel():
        pass
    sys.exit(1)
