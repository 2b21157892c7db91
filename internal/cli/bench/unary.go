package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/internal/cli/client"
)

// list measures a unary call of the SDKs: the processes of a sandbox without any.
func (b *bench) list(ctx context.Context) error {
	all, err := b.repeat(ctx, func() error {
		_, err := fetch(ctx, b.c, &client.Request{
			Method: http.MethodPost, Path: "/process.Process/List", Body: []byte{},
			Header: map[string]string{"Content-Type": "application/proto", "Connect-Protocol-Version": "1", "E2b-Sandbox-Id": b.sbx},
		})
		return err
	})
	b.spread("answer", all)
	return err
}

// page measures the newest page of all processes that have run.
func (b *bench) page(ctx context.Context) error {
	size := 0
	all, err := b.repeat(ctx, func() (err error) {
		size, err = fetch(ctx, b.c, &client.Request{Method: http.MethodGet, Path: "/v1/processes"})
		return err
	})
	b.spread("answer", all)
	b.add("size", float64(size)/1e6, "MB")
	return err
}

// repeat measures an operation within the bounds of a scenario, with pauses.
func (b *bench) repeat(ctx context.Context, f func() error) (all []time.Duration, err error) {
	limited, cancel := b.limit(ctx)
	defer cancel()
	before, known := b.server.usage()
	for i := 0; i < b.f.count && limited.Err() == nil && b.f.paused(limited); i++ {
		begun := time.Now()
		if err := f(); err != nil {
			return all, err
		}
		all = append(all, time.Since(begun))
	}
	b.costs(before, known, len(all))
	return all, nil
}

// fetch sends a request and returns the size of its response.
func fetch(ctx context.Context, c *client.Client, r *client.Request) (int, error) {
	resp, err := c.Open(ctx, r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	return int(n), err
}

// files measures an upload and a download of a file.
func (b *bench) files(ctx context.Context) error {
	content := bytes.Repeat([]byte("0123456789abcdef"), b.f.fileMB*1e6/16)
	to := &client.Request{
		Path: "/files", Query: url.Values{"path": {"/tmp/bench"}},
		Header: map[string]string{"E2b-Sandbox-Id": b.sbx, "Content-Type": "application/octet-stream"},
	}
	for _, way := range []struct {
		name, method string
		body         []byte
	}{{"upload", http.MethodPost, content}, {"download", http.MethodGet, nil}} {
		var rates []float64
		for range fileRounds {
			r := *to
			r.Method, r.Body = way.method, way.body
			begun := time.Now()
			size, err := fetch(ctx, b.c, &r)
			if err != nil {
				return err
			}
			if way.body == nil && size != len(content) {
				return fmt.Errorf("downloaded %d bytes of %d", size, len(content))
			}
			rates = append(rates, float64(len(content))/1e6/time.Since(begun).Seconds())
		}
		b.add(way.name, median(rates), "MB/s")
	}
	if after, ok := b.server.usage(); ok {
		b.add("server memory after", after.rss, "MiB")
	}
	return nil
}

// fileRounds is how often a file is sent each way; the result is the median.
const fileRounds = 3

// create measures the creation of sandboxes, one after another and all at once.
func (b *bench) create(ctx context.Context) error {
	for _, most := range []int{1, b.f.creates} {
		var mu sync.Mutex
		var all []time.Duration
		var made []string
		var g errgroup.Group
		g.SetLimit(most)
		for range b.f.creates {
			g.Go(func() error {
				begun := time.Now()
				sbx, err := b.c.CreateSandbox(ctx, client.SandboxSpec{TemplateID: "base", Timeout: int64(benchLifetime / time.Second)})
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					all, made = append(all, time.Since(begun)), append(made, sbx.ID)
				}
				return err
			})
		}
		err := g.Wait()
		for _, sbx := range made {
			if endErr := b.c.RemoveSandbox(ctx, sbx); err == nil {
				err = endErr
			}
		}
		if err != nil {
			return err
		}
		b.spread(strconv.Itoa(most)+" at once", all)
	}
	return nil
}
