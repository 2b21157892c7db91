# The kernel of one context: runs the code that is handed to it, one execution
# after the other, and keeps what it defines. The file that follows this one has the
# language's class Kernel: run(code, count, variables) says what comes of the code and
# raises what it fails with, error(e) is the traceback of that. Arguments: the address of
# the context first, its language last. It prints "ready" when code may be handed to it.
import ast, asyncio, base64, builtins, codecs, contextlib, inspect, json, math, os, select, shutil, signal, socket, subprocess, sys, threading, time, traceback


def encode(line):
    try:
        return json.dumps(line, default=repr, separators=(",", ":"), allow_nan=False)
    except ValueError:  # JSON has no number for what is none
        return json.dumps(finite(line), default=repr, separators=(",", ":"))


def finite(value):
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(v) for v in value]
    return value


def unquoted(text):
    """The text of a value; of a string without its quotes, as E2B's server tells it."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


class Line:
    """Where the lines of the execution of the moment go."""

    def __init__(self):
        self.lock, self.to = threading.Lock(), None

    def say(self, **line):
        with self.lock:
            if self.to is None:
                return
            try:
                self.to.sendall((encode(line) + "\n").encode())
            except OSError:
                pass  # nobody listens: the code goes on to its end or its interrupt

    def wrote(self, stream, text):
        if text:
            self.say(type=stream, text=text, timestamp=time.time_ns())


line = Line()


class Out:
    """sys.stdout or sys.stderr: says what is written within a moment, in as few pieces as
    that allows, as Jupyter's kernels do."""

    encoding, errors, closed, newlines = "utf-8", "strict", False, None

    def __init__(self, stream, fd):
        self.stream, self.fd, self.held, self.lock = stream, fd, "", threading.RLock()
        self.name = "<%s>" % stream
        self.buffer = self.raw = Raw(self)

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError("write() argument must be str, not " + type(text).__name__)
        with self.lock:
            self.held += text
            if len(self.held) > 1 << 16 or not moments.wake():
                self.flush()
        return len(text)

    def writelines(self, lines):
        for l in lines:
            self.write(l)

    def flush(self):
        with self.lock:
            whole, self.held = self.held, ""
            line.wrote(self.stream, whole)

    def fileno(self):
        return self.fd

    def isatty(self):
        return False

    def readable(self):
        return False

    def writable(self):
        return True

    def seekable(self):
        return False


class Moments:
    """Flushes what was written a moment ago."""

    def __init__(self):
        self.due, self.pid = threading.Event(), os.getpid()
        threading.Thread(target=self.run, daemon=True).start()

    def wake(self):
        self.due.set()
        return self.pid == os.getpid()  # a fork has no such thread

    def run(self):
        while self.due.wait():
            time.sleep(0.05)
            self.due.clear()
            for out in (sys.stdout, sys.stderr):
                if isinstance(out, Out):
                    out.flush()


class Raw:
    def __init__(self, out):
        self.out = out

    def write(self, data):
        self.out.write(bytes(data).decode("utf-8", "replace"))
        return len(data)

    def flush(self):
        self.out.flush()


class Drain:
    """What children, and code below Python, write to a descriptor."""

    def __init__(self, stream, fd):
        self.stream, self.text = stream, codecs.getincrementaldecoder("utf-8")("replace")
        self.r, w = os.pipe()
        os.dup2(w, fd)
        os.close(w)
        self.turn = threading.Lock()
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while (r := self.r) is not None:
            select.select([r], [], [])
            self.take()

    def take(self, last=False):
        with self.turn:
            while self.r is not None and select.select([self.r], [], [], 0)[0]:
                before = getattr(sys, self.stream)
                if isinstance(before, Out):
                    before.flush()
                data = os.read(self.r, 1 << 16)
                line.wrote(self.stream, self.text.decode(data))
                if not data:  # code has closed the descriptor, and its children have
                    self.r = None
            if last:
                line.wrote(self.stream, self.text.decode(b"", True))


drains = []


def flush(last=False):
    sys.stdout.flush()
    sys.stderr.flush()
    for d in drains:
        d.take(last)


class Missing(Exception):
    """The template has not what the language needs."""


def die_with(parent):
    """Has this process not outlive its parent."""
    import ctypes

    pdeathsig = 1
    ctypes.CDLL(None).prctl(pdeathsig, signal.SIGKILL)
    if os.getppid() != parent:  # it is too late
        os._exit(1)


def child(argv, **options):
    """A program in a session of its own that does not outlive the kernel."""
    kernel = os.getpid()
    return subprocess.Popen(argv, start_new_session=True, preexec_fn=lambda: die_with(kernel), **options)


def words(e):
    try:
        return str(e)
    except Exception:
        return "<an exception whose str() fails>"


class Guard:
    """Watches over the kernel from a process of its own, which no code can hold up: code
    whose execution has gone, or that nobody waits for any more while another execution
    does, is interrupted, and a kernel that does not mind it is ended. A kernel that ends
    has a successor, which knows nothing of what it did, and takes who waits."""

    PATIENCE = 10  # seconds that code has to mind its interrupt

    def __init__(self, listener):
        self.listener, self.ready, self.announced = listener, False, False
        self.ended, w = os.pipe()
        os.set_blocking(w, False)
        for number in (signal.SIGCHLD, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(w, warn_on_full_buffer=False)

    def live(self):
        """One kernel's life. Returns when it has ended, whether it was ever ready."""
        self.talk, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        guard = os.getpid()
        self.kernel = os.fork()
        if self.kernel == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self.talk.close()
            begin(self.listener, theirs, guard)
        theirs.close()
        self.conn, self.due, self.stubborn, self.ready = None, None, False, False
        self.poll = select.poll()
        for f in (self.ended, self.talk):
            self.poll.register(f, select.POLLIN)
        while (status := self.look()) is None:
            pass
        self.talk.close()
        if self.conn is not None:
            self.tell(status)
            self.conn.close()
        return self.ready

    def look(self):
        """Waits for something to happen. Gives the kernel's status when it has ended."""
        wait = None if self.due is None else max(0, self.due - time.monotonic()) * 1000
        happened = dict(self.poll.poll(wait))
        if self.talk.fileno() in happened:
            self.heard()
        elif self.conn is not None and self.conn.fileno() in happened:
            if said(self.conn):
                self.poll.register(self.listener, select.POLLIN)
            else:
                self.interrupt()
        elif self.listener.fileno() in happened:
            self.interrupt()
        elif self.ended in happened:
            os.read(self.ended, 64)
            pid, status = os.waitpid(self.kernel, os.WNOHANG)
            return status if pid else None
        elif self.due is not None and not happened:
            self.due, self.stubborn = None, True
            os.kill(self.kernel, signal.SIGKILL)
        return None

    def heard(self):
        """What the kernel says: that it is ready, that an execution begins, and its end."""
        what, with_it, _, _ = self.talk.recvmsg(16, socket.CMSG_SPACE(4))
        if what == b"begin":
            self.conn = socket.socket(fileno=int.from_bytes(with_it[0][2][:4], sys.byteorder))
            self.poll.register(self.conn, select.POLLIN)
        elif what == b"end":
            self.watch_no_more()
            self.conn.close()
            self.conn, self.due = None, None
            with contextlib.suppress(OSError):
                self.talk.send(b"ok")
        elif what == b"ready":
            if not self.announced:
                os.write(1, b"ready\n")
            self.ready = self.announced = True
        else:
            self.poll.unregister(self.talk)

    def interrupt(self):
        self.watch_no_more()
        self.due = time.monotonic() + self.PATIENCE
        os.kill(self.kernel, signal.SIGINT)

    def watch_no_more(self):
        for f in (self.conn, self.listener):
            with contextlib.suppress(KeyError):
                self.poll.unregister(f)

    def tell(self, status):
        """Tells an execution that its kernel has ended."""
        how = "by signal %d" % os.WTERMSIG(status) if os.WIFSIGNALED(status) else "with code %d" % os.WEXITSTATUS(status)
        why = "the code did not mind its interrupt" if self.stubborn else "the kernel ended before the code did, " + how
        value = why + ": its context begins anew, without what was defined there"
        lines = {"type": "error", "name": "KernelDied", "value": value, "traceback": "KernelDied: " + value}, {"type": "end_of_execution"}
        with contextlib.suppress(OSError):  # nobody listens any more
            # What the kernel said last may be half a line.
            self.conn.send("".join("\n" + encode(l) for l in lines).encode() + b"\n", socket.MSG_DONTWAIT)


def said(conn):
    try:
        return conn.recv(64, socket.MSG_DONTWAIT) != b""
    except OSError:
        return False


def begin(listener, guard, parent):
    """A kernel's life, in its process."""
    try:
        die_with(parent)
        run(listener, guard)
    finally:
        os._exit(1)


def run(listener, guard):
    global moments
    moments = Moments()
    failed = os.dup(2)
    drains.extend([Drain("stdout", 1), Drain("stderr", 2)])
    try:
        kernel = Kernel()
    except Exception as e:  # standard error is a pipe of ours by now
        os.write(failed, words(e).encode())
        return
    os.close(failed)
    guard = Talk(guard)
    guard.say(b"ready")
    count = 0
    while True:
        try:
            conn = listener.accept()[0]
            count += 1
            with conn:
                serve(conn, guard, kernel, count)
        except Exception as e:
            print("an execution was not understood:", repr(e), file=sys.__stderr__)


class Talk:
    """The kernel's end of what it says to its guard. Where code has closed it, the kernel
    ends, and has a successor that is guarded."""

    def __init__(self, guard):
        self.guard = guard

    def say(self, what, *with_it):
        try:
            self.guard.sendmsg([what], with_it)
        except OSError:
            os._exit(1)

    def answer(self):
        try:
            self.guard.recv(16)
        except OSError:
            os._exit(1)


class Interrupts:
    """Has interrupts reach the code that runs, and nothing else."""

    def __init__(self, kernel):
        self.running, self.then = False, getattr(kernel, "interrupt", signal.default_int_handler)

    def __call__(self, *args):
        if self.running:
            self.then(*args)


def serve(conn, guard, kernel, count):
    asked = b""
    while not asked.endswith(b"\n"):
        part = conn.recv(1 << 16)
        if not part:
            return
        asked += part
    ask = json.loads(asked)
    line.to = conn
    line.say(type="number_of_executions", execution_count=count)
    interrupts = Interrupts(kernel)
    signal.signal(signal.SIGINT, interrupts)  # code may have put another one in its place
    guard.say(b"begin", (socket.SOL_SOCKET, socket.SCM_RIGHTS, conn.fileno().to_bytes(4, sys.byteorder)))
    try:
        interrupts.running = True
        kernel.run(ask["code"], count, ask["env_vars"])
        interrupts.running = False
    except BaseException as e:  # also SystemExit: the kernel goes on
        interrupts.running = False
        flush()
        line.say(type="error", name=getattr(e, "name_there", type(e).__name__), value=words(e), traceback=kernel.error(e))
    signal.signal(signal.SIGINT, interrupts)
    flush(last=True)
    line.say(type="end_of_execution")
    line.to = None
    guard.say(b"end")
    guard.answer()  # an interrupt that was on its way has come
    with contextlib.suppress(OSError):
        conn.shutdown(socket.SHUT_RDWR)  # children that code has left may have it, too


def main():
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind("\0millrace-context-" + sys.argv[1])
    except OSError as e:
        sys.exit(words(e))
    listener.listen(128)
    guard = Guard(listener)
    while guard.live():
        pass
    sys.exit(1)
