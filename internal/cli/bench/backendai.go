package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/cli/backendclient"
	"github.com/millrace/millrace/internal/cli/client"
)

// backendBench has the scenarios of Backend.AI's protocol, with a key pair and a session of its own.
type backendBench struct {
	*bench
	api     *backendclient.Client
	session string
}

// byBackendBench returns what runs one of them.
func byBackendBench(run func(*backendBench, context.Context) error) func(*bench, context.Context) error {
	return func(b *bench, ctx context.Context) error {
		x, done, err := b.backend(ctx)
		if err != nil {
			return err
		}
		defer done()
		return run(x, ctx)
	}
}

// benchPort is a port of the session that is a service.
const benchPort = 8000

// backend creates a key pair and a session, which done removes.
func (b *bench) backend(ctx context.Context) (x *backendBench, done func(), err error) {
	key, err := b.c.CreateKey(ctx, "bench", true)
	if err != nil {
		return nil, nil, err
	}
	revoke := func() {
		if _, err := b.c.Call(context.WithoutCancel(ctx), &client.Request{Method: "DELETE", Path: "/api-keys/" + key.ID}, nil); err != nil {
			b.Notef("revoke key: %v", err)
		}
	}
	api, err := backendclient.New(b.c.Base(), key.AccessKey, key.SecretKey)
	if err != nil {
		revoke()
		return nil, nil, err
	}
	x = &backendBench{bench: b, api: api, session: "bench-" + strconv.FormatInt(time.Now().UnixNano(), 36)}
	if err := x.create(ctx, x.session); err != nil {
		revoke()
		return nil, nil, err
	}
	return x, func() {
		x.destroy(ctx, x.session)
		revoke()
	}, nil
}

// create creates a session.
func (b *backendBench) create(ctx context.Context, name string) error {
	return b.api.Do(ctx, "POST", "/session", map[string]any{
		"image": "base", "name": name, "idleTimeout": int64(benchLifetime / time.Second), "config": map[string]any{"preopen_ports": []int{benchPort}},
	}, nil)
}

func (b *backendBench) destroy(ctx context.Context, name string) {
	if err := b.api.Do(context.WithoutCancel(ctx), "DELETE", "/session/"+name, nil, nil); err != nil {
		b.Notef("end session: %v", err)
	}
}

// creates measures the creation of sessions, one after another.
func (b *backendBench) creates(ctx context.Context) error {
	var all []time.Duration
	for i := range b.f.creates {
		name := fmt.Sprintf("%s-%d", b.session, i)
		begun := time.Now()
		if err := b.create(ctx, name); err != nil {
			return err
		}
		all = append(all, time.Since(begun))
		defer b.destroy(ctx, name)
	}
	b.spread("1 at once", all)
	return nil
}

// result is a result of a run.
type result struct {
	Status  string  `json:"status"`
	Console [][]any `json:"console"`
}

// runs measures runs of echo on WebSocket connections.
func (b *backendBench) runs(ctx context.Context) error {
	limited, cancel := b.limit(ctx)
	defer cancel()
	var opened, first, last []time.Duration
	for n := 0; n < b.f.count+warmUp && limited.Err() == nil && b.f.paused(limited); n++ {
		begun := time.Now()
		c, err := b.api.Dial(ctx, "/stream/session/"+b.session+"/execute")
		if err != nil {
			return err
		}
		open := time.Now()
		if err := c.SendJSON(map[string]any{"mode": "query", "code": "echo x"}); err != nil {
			return err
		}
		var r result
		var toFirst time.Duration
		for r.Status != "finished" {
			raw, err := c.Read()
			if err != nil {
				return err
			}
			if r = (result{}); json.Unmarshal(raw, &r) != nil {
				return fmt.Errorf("the run sent %.200s", raw)
			}
			if toFirst == 0 && len(r.Console) > 0 {
				toFirst = time.Since(open)
			}
		}
		c.Close()
		if n >= warmUp {
			opened, first, last = append(opened, open.Sub(begun)), append(first, toFirst), append(last, time.Since(open))
		}
	}
	b.spread("upgrade", opened)
	b.spread("first result", first)
	b.spread("finished", last)
	return nil
}

// run runs a command of the session to its end.
func (b *backendBench) run(ctx context.Context, code string) error {
	request := map[string]any{"mode": "query", "code": code}
	for {
		var r struct {
			Result struct {
				result
				RunID string `json:"runId"`
			} `json:"result"`
		}
		if err := b.api.Do(ctx, "POST", "/session/"+b.session, request, &r); err != nil {
			return err
		}
		if r.Result.Status == "finished" {
			return nil
		}
		request = map[string]any{"mode": "continue", "code": "", "runId": r.Result.RunID}
	}
}

// throughput is a server of a tunnel: a client sends a line with a number of bytes, and gets as many, or
// sends as many after "-" and gets a line.
const throughput = `import os, socket, threading
s = socket.create_server(("127.0.0.1", PORT))
def serve(c):
    n = int(c.makefile("rb", buffering=0).readline())
    data = bytes(1 << 20)
    if n < 0:
        buf = bytearray(1 << 20)
        while n < 0:
            n += c.recv_into(buf)
        c.sendall(b"x")
    while n > 0:
        n -= c.send(data[:min(n, len(data))])
    c.close()
while True:
    threading.Thread(target=serve, args=(s.accept()[0],)).start()
`

// tunnel measures the bytes per second of a tunnel in both directions.
func (b *backendBench) tunnel(ctx context.Context) error {
	server := strings.ReplaceAll(throughput, "PORT", strconv.Itoa(benchPort))
	if err := b.run(ctx, "cat > server.py <<'END'\n"+server+"END\nsetsid python3 server.py >/dev/null 2>&1 </dev/null &"); err != nil {
		return err
	}
	size := int64(b.f.mib) << 20
	begun := time.Now()
	c, got, err := b.tunnelTo(ctx, size)
	if err != nil {
		return err
	}
	for got < size {
		n, err := c.Discard()
		if err != nil {
			return err
		}
		got += n
	}
	b.add("down", float64(size)/1e6/time.Since(begun).Seconds(), "MB/s")
	c.Close()
	if c, err = b.api.Dial(ctx, b.service()); err != nil {
		return err
	}
	defer c.Close()
	if err := c.Send([]byte(strconv.FormatInt(-size, 10) + "\n")); err != nil {
		return err
	}
	begun = time.Now()
	chunk := make([]byte, 64<<10)
	for sent := int64(0); sent < size; sent += int64(len(chunk)) {
		if err := c.Send(chunk); err != nil {
			return err
		}
	}
	if _, err := c.Discard(); err != nil {
		return err
	}
	b.add("up", float64(size)/1e6/time.Since(begun).Seconds(), "MB/s")
	return nil
}

func (b *backendBench) service() string {
	return "/stream/session/" + b.session + "/tcpproxy?app=" + strconv.Itoa(benchPort)
}

// tunnelTo connects to the server as soon as it listens, requests a number of bytes, and reads the
// first message, whose length it returns.
func (b *backendBench) tunnelTo(ctx context.Context, size int64) (c *backendclient.Conn, got int64, err error) {
	for {
		c, err := b.api.Dial(ctx, b.service())
		if err != nil {
			return nil, 0, err
		}
		if err := c.Send([]byte(strconv.FormatInt(size, 10) + "\n")); err != nil {
			return nil, 0, err
		}
		n, err := c.Discard()
		switch {
		case err == nil && n > 0:
			return c, n, nil
		case backendclient.Refused(err) && ctx.Err() == nil:
			c.Close()
		default:
			return nil, 0, err
		}
	}
}
