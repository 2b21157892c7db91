# The beginning of a run, which a client reads step by step: code in a context's kernel (query.py
# follows) or the commands of a batch (batch.py). It prints one JSON object per line: also when a
# step of a batch ends ("step"), when the run waits for input ("input"), and last
# "end_of_execution" with the exit code. Lines of standard input are the input of the run.
# Arguments: the address of the context, its language, and the request as JSON in parts.
# SIGINT interrupts the run, which then ends by itself.
# Only modules of the interpreter itself are imported, which those of the library wrap: reading
# signal, socket, threading and json takes longer than the start of the interpreter.
import os, sys, time, _signal, _socket, _thread

address, language, request = sys.argv[1], sys.argv[2], b"".join(map(os.fsencode, sys.argv[3:]))
INTERRUPTED, NOT_RUN = 130, 127
interrupted, out = False, sys.stdout.buffer


def emit(line):
    out.write(line)
    out.flush()


def end(code):
    emit(b'{"type":"end_of_execution","code":%d}\n' % code)
    os._exit(0)


def fail(name, value, code):
    import json

    emit(json.dumps({"type": "error", "name": name, "value": value, "traceback": name + ": " + value}).encode() + b"\n")
    end(code)


def connect():
    path = "\0millrace-context-" + address
    if language in ("javascript", "typescript"):
        import tempfile

        path = os.path.join(tempfile.gettempdir(), ".millrace-context-" + address)
    until = time.monotonic() + 30
    while True:
        s = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            s.connect(path)
            return s
        except OSError as e:
            s.close()
            if time.monotonic() > until:
                fail("KernelUnreachable", "the kernel does not answer: %s" % e, INTERRUPTED)
        time.sleep(0.01)
