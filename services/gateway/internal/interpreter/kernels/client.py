# One execution: sends the code to its context's kernel and prints the results, one JSON
# object per line. They are in the execution's own record, with or without a client.
# Arguments: the context's address, the code in parts. Without parts the code is read from
# standard input. The request's variables are in the environment, as JSON.
# SIGURG, once the first line is printed, means that the client has disconnected: the
# execution is interrupted when another one waits.
import json, os, signal, socket, sys, time

context, variables = sys.argv[1], json.loads(os.environ.get("MILLRACE_EXECUTION_VARIABLES", "{}"))
code = "".join(sys.argv[2:]) if len(sys.argv) > 2 else sys.stdin.buffer.read().decode()


def emit(**line):
    sys.stdout.write(json.dumps(line, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def fail(name, value):
    emit(type="error", name=name, value=value, traceback=name + ": " + value)
    emit(type="end_of_execution")
    sys.exit(1)


def connect():
    until = time.monotonic() + 30
    while True:
        s = socket.socket(socket.AF_UNIX)
        try:
            s.connect("\0millrace-context-" + context)
            return s
        except OSError as e:
            if time.monotonic() > until:
                fail("KernelUnreachable", "the kernel does not answer: %s" % e)
        s.close()
        time.sleep(0.01)


def left(*_):
    try:
        kernel.send(b"left\n")
    except OSError:
        pass  # it has ended


with connect() as kernel:
    kernel.sendall(json.dumps({"code": code, "env_vars": variables}).encode() + b"\n")
    signal.signal(signal.SIGURG, left)
    emit(type="keepalive")
    last, half = b"", []
    while True:
        try:
            part = kernel.recv(1 << 16)
        except ConnectionError:
            part = b""
        if not part:
            break
        end = part.rfind(b"\n") + 1
        if end:
            last = b"".join(half + [part[:end]]).replace(b"\n\n", b"\n").lstrip(b"\n")
            half = []
            sys.stdout.buffer.write(last)
            sys.stdout.buffer.flush()
        half.append(part[end:])
if not last.endswith(b'{"type":"end_of_execution"}\n'):
    fail("KernelDied", "the kernel ended before the code did")
