package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/millrace/millrace/e2e/rig"
)

// text is an expression for the output of a process without a terminal.
const text = `document.querySelector('[data-test=output] .text')`

// downloads makes the browser save files in a directory, which it returns.
func (b *tab) downloads() string {
	b.t.Helper()
	dir := b.t.TempDir()
	b.run(chromedp.ActionFunc(func(ctx context.Context) error {
		return browser.SetDownloadBehavior(browser.SetDownloadBehaviorBehaviorAllow).WithDownloadPath(dir).Do(ctx)
	}))
	return dir
}

// saved waits for a file that the browser saves.
func saved(t *testing.T, dir, name string) []byte {
	t.Helper()
	path := filepath.Join(dir, name)
	if !rig.Poll(browserTimeout, func() bool { _, err := os.Stat(path); return err == nil }) {
		t.Fatalf("%s was not saved", name)
	}
	raw, err := os.ReadFile(path)
	must(t, err)
	return raw
}

// started returns the id of a command's process.
func started(t *testing.T, s *rig.Lines) string {
	t.Helper()
	id := s.Header.Get("X-Process-Id")
	if id == "" {
		t.Fatal("the stream names no process")
	}
	return id
}

// A process without a terminal has a live end, a past, a search, links and an export, as a terminal has.
func TestConsoleOutput(t *testing.T) {
	t.Parallel()
	up := rig.NewUp(t, rig.Options{})
	box := up.Create(t)
	stream := up.Commands(t, box.ID, "for i in $(seq 6000); do echo line $i; done; sleep 0.1; echo no such file >&2; sleep 0.1; echo done; exit 3")
	id := started(t, stream)
	drain(t, stream)
	b := newBrowser(t)
	b.signIn(up.URL, up.Key)
	b.visit(up.URL + "/#/p/" + id)
	b.until(`%s?.textContent.endsWith('done\n') && document.querySelector('[data-test=mode]').textContent === 'ended'`, text)
	b.shot("output-ended")
	b.readsAll()
	b.searchesOutput(id)
	b.exports(up.API, id)
	b.sharesOutput(up.URL, id)
	b.sendsInput(up, box.ID)
	b.waitsForLongRecord(up.URL, id)
	if all := b.mistakes(); len(all) > 0 {
		t.Errorf("the pages caused %q", all)
	}
}

// drain reads a stream to its end.
func drain(t *testing.T, s *rig.Lines) {
	t.Helper()
	for {
		l, err := s.Next()
		if err != nil {
			t.Fatal(err)
		}
		if l.Type == "end" {
			return
		}
	}
}

// readsAll reads the earlier output, until all lines are there once, and checks what stderr is.
func (b *tab) readsAll() {
	b.t.Helper()
	if got := value[string](b, text+`.querySelector('.err').textContent`); got != "no such file\n" {
		b.t.Errorf("stderr is %q", got)
	}
	b.run(chromedp.Evaluate(`{ const e = document.querySelector('[data-test=earlier]'); const more = () => { if (!e.hidden) { e.click(); setTimeout(more, 20) } }; more() }`, nil))
	b.until(`document.querySelector('[data-test=earlier]').hidden`)
	var want strings.Builder
	for i := range 6000 {
		fmt.Fprintf(&want, "line %d\n", i+1)
	}
	want.WriteString("no such file\ndone\n")
	if got := value[string](b, text+`.textContent`); got != want.String() {
		b.t.Errorf("the page has %d bytes of output, want %d", len(got), want.Len())
	}
}

// searchesOutput goes to a hit, then replays to the end, and opens the permalink of the hit.
func (b *tab) searchesOutput(id string) {
	b.t.Helper()
	b.run(chromedp.SendKeys("[name=q]", "line 40"+kb.Enter, chromedp.ByQuery))
	b.until(`document.querySelector('[data-test=hit]')`)
	b.run(chromedp.Evaluate(`document.querySelector('[data-test=hit]').click()`, nil))
	b.until(`document.querySelector('[data-test=mode]').textContent === 'past' && /^line 40$/m.test(%s.textContent) && !%s.textContent.includes('done')`, text, text)
	link := value[string](b, "location.href")
	if !strings.Contains(link, "#/p/"+id+"/") {
		b.t.Errorf("the address of a hit is %s", link)
	}
	b.shot("output-past")
	b.press("Play")
	b.until(`%s.textContent.endsWith('done\n') && document.querySelector('[data-test=play]').textContent === 'Play'`, text)
	b.visit(link)
	b.until(`document.querySelector('[data-test=output]')?.dataset.seq === %q && /^line 40$/m.test(%s.textContent)`, link[strings.LastIndexByte(link, '/')+1:], text)
	if moved := value[float64](b, "window.shifted"); moved != 0 {
		b.t.Errorf("layout shift of the permalink's page: %.3f, want 0", moved)
	}
}

// exports saves the record by button. It is the record byte for byte.
func (b *tab) exports(api *rig.API, id string) {
	b.t.Helper()
	dir := b.downloads()
	b.press("Export")
	got := saved(b.t, dir, id+".cast")
	want := api.Want(b.t, 200, "GET", "/v1/processes/"+id+"/export.cast", nil)
	if !bytes.Equal(got, want.Body) {
		b.t.Errorf("the browser saved %d bytes, and the gateway sends %d", len(got), len(want.Body))
	}
	var output strings.Builder
	for _, line := range bytes.Split(bytes.TrimSpace(got), []byte("\n"))[1:] {
		var e [3]any
		must(b.t, json.Unmarshal(line, &e))
		if e[1] == "o" {
			output.WriteString(e[2].(string))
		}
	}
	if !strings.HasPrefix(output.String(), "line 1\nline 2\n") || !strings.HasSuffix(output.String(), "no such file\ndone\n") {
		b.t.Errorf("the recording has %d bytes of output", output.Len())
	}
}

// sharesOutput opens the process with a link up to an event, which shows nothing after it.
func (b *tab) sharesOutput(url, id string) {
	b.t.Helper()
	b.visit(url + "/#/p/" + id + "/4")
	b.until(`document.querySelector('[data-test=output]')?.dataset.seq === '4'`)
	b.press("Share")
	b.until(`document.querySelector('dialog[open] [name=seq]')`)
	b.run(chromedp.SetValue("[name=seq]", "4", chromedp.ByQuery))
	b.press("Create link")
	b.until(`document.querySelector('[data-test=link]')?.value.includes('/#/s/')`)
	b.visit(value[string](b, `document.querySelector('[data-test=link]').value`))
	b.until(`document.querySelector('[data-test=output]')?.dataset.seq === '4' && document.querySelector('[data-test=mode]').textContent === 'past'`)
	if value[bool](b, `!!document.querySelector('[data-test=share], [name=stdin], nav.side') || `+text+`.textContent.includes('done') || [...document.querySelectorAll('button')].some(x => x.textContent === 'Live' && x.offsetParent)`) {
		b.t.Error("an onlooker can share, navigate, send input, or see what follows")
	}
	b.shot("output-shared")
}

// sendsInput sends lines to a running process, whose output follows.
func (b *tab) sendsInput(up *rig.Up, box string) {
	b.t.Helper()
	id := started(b.t, up.Commands(b.t, box, "while read l; do echo got $l; done; echo end of input", "stdin", true, "timeout_ms", 0))
	b.visit(up.URL + "/#/p/" + id)
	b.until(`document.querySelector('[name=stdin]')`)
	b.run(chromedp.SendKeys("[name=stdin]", "grüße"+kb.Enter, chromedp.ByQuery))
	b.until(`%s.textContent === 'got grüße\n'`, text)
	up.Want(b.t, 204, "POST", "/v1/processes/"+id+"/stdin?eof=1", nil)
	b.until(`%s.textContent.endsWith('end of input\n') && document.querySelector('[data-test=mode]').textContent === 'ended' && !document.querySelector('[name=stdin]').offsetParent`, text)
}

// busy makes a page's first requests for a record fail, as those for a long one do while the gateway reads it.
const busy = `{ const real = window.fetch; let n = 4; window.fetch = (u, o) => /\/(text|timeline)\b/.test(u) && n-- > 0
	? Promise.resolve(new Response('{"code":503,"message":"the record is still being read"}', {status: 503})) : real(u, o) }`

// waitsForLongRecord opens a record that the gateway cannot return at once.
func (b *tab) waitsForLongRecord(url, id string) {
	b.t.Helper()
	b.run(early(busy))
	b.visit(url + "/#/p/" + id)
	b.until(`%s?.textContent.endsWith('done\n') && document.querySelector('.jumps button')`, text)
}
