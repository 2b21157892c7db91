package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// browserTimeout bounds a wait for a condition in a page.
const browserTimeout = 2 * time.Minute

// shotsVariable names a directory for screenshots of the console and of templates; without it none are taken.
const shotsVariable = "MILLRACE_E2E_SHOTS"

// tab is a tab of a real browser.
type tab struct {
	t    *testing.T
	ctx  context.Context
	mu   sync.Mutex
	seen []string // exceptions and violations of the page's policy
}

// newBrowser starts Chromium with an empty profile until the end of the test.
func newBrowser(t *testing.T) *tab {
	t.Helper()
	opts := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.Flag("headless", "new"), chromedp.NoSandbox, chromedp.Flag("hide-scrollbars", true),
		chromedp.WindowSize(1280, 860), chromedp.UserDataDir(t.TempDir()), chromedp.WSURLReadTimeout(browserTimeout))
	alloc, stop := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, leave := chromedp.NewContext(alloc)
	b := &tab{t: t, ctx: ctx}
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // lets the browser write its profile before that is removed
		leave()
		stop()
		if c := chromedp.FromContext(ctx); c.Allocator != nil {
			c.Allocator.Wait()
		}
	})
	chromedp.ListenTarget(ctx, b.watch)
	b.run(cdplog.Enable())
	return b
}

// watch records what a page without mistakes never causes.
func (b *tab) watch(ev any) {
	var text string
	switch e := ev.(type) {
	case *runtime.EventExceptionThrown:
		text = e.ExceptionDetails.Error()
	case *cdplog.EventEntryAdded:
		if strings.Contains(e.Entry.Text, "Content Security Policy") {
			text = e.Entry.Text
		}
	}
	if text != "" {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.seen = append(b.seen, text)
	}
}

func (b *tab) mistakes() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seen
}

// run runs actions; each run has browserTimeout.
func (b *tab) run(actions ...chromedp.Action) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, browserTimeout)
	defer cancel()
	if b.ctx.Err() == nil && chromedp.FromContext(b.ctx).Target == nil {
		ctx = b.ctx // the first run starts the browser, which ends with its context
	}
	if err := chromedp.Run(ctx, actions...); err != nil {
		b.t.Fatalf("browser: %v\n%s\n%v", err, b.text(), b.mistakes())
	}
}

// text returns the text of the page.
func (b *tab) text() string {
	ctx, cancel := context.WithTimeout(b.ctx, 5*time.Second)
	defer cancel()
	var s string
	_ = chromedp.Run(ctx, chromedp.Evaluate(`document.body.innerText`, &s)) // for a failed test only
	return s
}

// until waits until a JavaScript expression is true.
func (b *tab) until(format string, args ...any) {
	b.t.Helper()
	b.run(chromedp.Poll(fmt.Sprintf(format, args...), nil, chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(browserTimeout)))
}

// value returns the value of a JavaScript expression.
func value[T any](b *tab, expression string) T {
	b.t.Helper()
	var v T
	b.run(chromedp.Evaluate(expression, &v))
	return v
}

// press clicks the first visible button with a label.
func (b *tab) press(label string) {
	b.t.Helper()
	button := fmt.Sprintf(`[...document.querySelectorAll('dialog[open] button, main button')].find(x => x.textContent === %q && !x.disabled && x.offsetParent)`, label)
	b.until("%s", button)
	b.run(chromedp.Evaluate(button+".click()", nil))
}

// screen is an expression for the text of the terminal.
const screen = `document.querySelector('.grid').innerText`

// shot takes screenshots of the page at the width of a desk and of a phone, light and dark.
func (b *tab) shot(name string) {
	dir := os.Getenv(shotsVariable)
	if dir == "" {
		return
	}
	b.t.Helper()
	for _, width := range []int64{1280, 400} {
		for _, theme := range []string{"light", "dark"} {
			var png []byte
			b.run(chromedp.EmulateViewport(width, 860),
				emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}),
				chromedp.CaptureScreenshot(&png))
			must(b.t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%d-%s.png", name, width, theme)), png, 0o600))
		}
	}
	b.run(chromedp.EmulateViewport(1280, 860), emulation.SetEmulatedMedia())
}

// balancer is an address that forwards connections to one of several gateways.
type balancer struct {
	URL string
	mu  sync.Mutex
	to  string
}

func newBalancer(t *testing.T, to string) *balancer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	b := &balancer{URL: "http://" + ln.Addr().String(), to: strings.TrimPrefix(to, "http://")}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go b.forward(c)
		}
	}()
	return b
}

// Switch forwards new connections to another gateway.
func (b *balancer) Switch(to string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.to = strings.TrimPrefix(to, "http://")
}

func (b *balancer) forward(c net.Conn) {
	defer c.Close()
	b.mu.Lock()
	to := b.to
	b.mu.Unlock()
	up, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer up.Close()
	go func() {
		io.Copy(up, c)
		up.Close()
	}()
	io.Copy(c, up)
}

// visit opens a page. A change of the fragment alone is no new page for the browser.
func (b *tab) visit(url string) {
	b.t.Helper()
	b.run(chromedp.Navigate("about:blank"), chromedp.Navigate(url))
}

// early installs a script that runs before those of each page.
func early(script string) chromedp.Action {
	return chromedp.ActionFunc(func(ctx context.Context) error {
		_, err := page.AddScriptToEvaluateOnNewDocument(script).Do(ctx)
		return err
	})
}
