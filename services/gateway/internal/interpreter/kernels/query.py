# A run of code, after run.py. The request is the one that the kernel receives. The lines of the
# kernel are those of the run, except for its errors, which have the exit code.


def query():
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        kernel.sendmsg([request[:1]], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, theirs.fileno().to_bytes(4, sys.byteorder))])
        kernel.sendall(request[1:] + b"\n")
    except OSError:
        if interrupted:  # before the kernel has the request
            end(INTERRUPTED)
    theirs.close()
    _thread.start_new_thread(forward, (ours,))
    code = 0
    for line in lines():
        if line.startswith(PASSED):
            out.write(line + b"\n")
        elif line.startswith(b'{"type":"error",'):
            code = failed(line)
        elif line == b'{"type":"end_of_execution"}':
            end(INTERRUPTED if interrupted and code else code)
    fail("KernelDied", "the kernel ended before the code did", INTERRUPTED)


PASSED = tuple(b'{"type":"%s",' % kind for kind in (b"stdout", b"stderr", b"result", b"input"))


def lines():
    """The lines of the kernel. The output before them is flushed when there are no more."""
    held = []
    while part := kernel.recv(1 << 16):
        end = part.rfind(b"\n") + 1
        if end:
            yield from b"".join(held + [part[:end]]).split(b"\n")
            out.flush()
            held = []
        held.append(part[end:])


def failed(line):
    """Passes an error on and returns the exit code of the code that ended with it."""
    import json

    error = json.loads(line)
    name, value = error.get("name"), str(error.get("value"))
    if name == "Exit":  # of a shell's command, which has printed its own message
        return int(value.rpartition(" ")[2])
    if name == "KeyboardInterrupt" and language == "bash":  # a shell prints nothing either
        return INTERRUPTED
    out.write(line + b"\n")
    return INTERRUPTED if name in ("KeyboardInterrupt", "interrupt", "KernelDied") else 1


def forward(to):
    """Sends the input of the run to the kernel."""
    try:
        while part := os.read(0, 1 << 16):
            to.sendall(part)
        to.shutdown(_socket.SHUT_WR)
    except OSError:
        pass  # the code has ended


def await_interrupt():
    """Waits for an interrupt. A handler would not do: it would run only after a wait for the kernel
    that began just after the signal."""
    global interrupted
    _signal.sigwait([_signal.SIGINT])
    interrupted = True
    try:
        kernel.shutdown(_socket.SHUT_WR)  # the kernel interrupts the code
    except (AttributeError, OSError):
        pass  # it is not connected, or has ended


kernel = None
_signal.pthread_sigmask(_signal.SIG_BLOCK, [_signal.SIGINT])
_thread.start_new_thread(await_interrupt, ())
kernel = connect()
emit(b'{"type":"keepalive"}\n')  # the run has its place in the queue of the kernel
if interrupted:
    end(INTERRUPTED)
query()
