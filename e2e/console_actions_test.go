package e2e_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/millrace/millrace/e2e/rig"
)

// A person does with buttons what the API does: files, states of a sandbox, builds, keys and hosts.
func TestConsoleActions(t *testing.T) {
	t.Parallel()
	up := rig.NewUp(t, rig.Options{})
	box := up.Create(t)
	b := newBrowser(t)
	b.signIn(up.URL, up.Key)
	b.movesFiles(up.URL, box.ID)
	b.pausesAndResumes(up.URL, box.ID)
	b.buildsTemplate(up.URL)
	b.makesKey(up)
	b.drainsHost(up.URL)
	b.sharesSandbox(up, box.ID)
	if all := b.mistakes(); len(all) > 0 {
		t.Errorf("the pages caused %q", all)
	}
}

// confirms answers the question that the page asks before an action.
func (b *tab) confirms() {
	b.t.Helper()
	b.until(`document.querySelector('dialog[open] [data-test=confirm]')`)
	b.run(chromedp.Evaluate(`document.querySelector('[data-test=confirm]').click()`, nil))
	b.until(`!document.querySelector('dialog[open]')`)
}

// clicks clicks the element that a selector finds.
func (b *tab) clicks(selector string) {
	b.t.Helper()
	b.until(`document.querySelector(%q)`, selector)
	b.run(chromedp.Evaluate(fmt.Sprintf(`document.querySelector(%q).click()`, selector), nil))
}

// movesFiles uploads a file, views it, downloads it and deletes it.
func (b *tab) movesFiles(url, box string) {
	b.t.Helper()
	want := bytes.Repeat([]byte("grüße\x00\xff\n"), 5000)
	dir := b.t.TempDir()
	must(b.t, os.WriteFile(filepath.Join(dir, "up load.bin"), want, 0o600))
	b.visit(url + "/#/sandboxes/" + box + "/files?path=/home/user")
	b.until(`document.querySelector('input[type=file]')`)
	b.run(chromedp.SetUploadFiles("input[type=file]", []string{filepath.Join(dir, "up load.bin")}, chromedp.ByQuery))
	b.until(`document.querySelector('[aria-label="Download up load.bin"]')`)
	b.shot("files")
	b.press("up load.bin")
	b.until(`document.querySelector('dialog[open] pre')?.textContent.startsWith('grüße')`)
	b.press("Close")
	to := b.downloads()
	b.clicks(`[aria-label="Download up load.bin"]`)
	if got := saved(b.t, to, "up load.bin"); !bytes.Equal(got, want) {
		b.t.Errorf("downloaded %d bytes, want the %d uploaded", len(got), len(want))
	}
	b.clicks(`[aria-label="Delete up load.bin"]`)
	b.confirms()
	b.until(`document.querySelector('main .region:not([aria-busy])') && !document.querySelector('[aria-label="Delete up load.bin"]')`)
}

// pausesAndResumes pauses and resumes a sandbox, and takes a snapshot, which the timeline shows.
func (b *tab) pausesAndResumes(url, box string) {
	b.t.Helper()
	b.visit(url + "/#/sandboxes/" + box)
	b.press("Pause")
	b.confirms()
	b.until(`document.querySelector('dd .badge.paused')`)
	b.shot("paused")
	b.press("Resume")
	b.until(`document.querySelector('dd .badge.running')`)
	b.press("Snapshot")
	b.until(`document.querySelector('dialog[open] [name=name]')`)
	b.run(chromedp.SendKeys("dialog [name=name]", "before-lunch", chromedp.ByQuery))
	b.press("Take")
	b.until(`document.querySelector('#toast').textContent.includes('Stored snapshot')`)
	b.until(`['paused', 'running'].every(n => [...document.querySelectorAll('ol.marks strong')].some(x => x.textContent === n)) && document.querySelectorAll('.moment').length >= 3`)
	b.shot("timeline")
}

// buildsTemplate builds a template from a Dockerfile, reads its log, and deletes it. A Dockerfile that cannot be
// built is refused with its line.
func (b *tab) buildsTemplate(url string) {
	b.t.Helper()
	set := func(text string) {
		b.run(chromedp.SetValue("[name=dockerfile]", text, chromedp.ByQuery))
		b.clicks("form.build [type=submit]")
	}
	b.visit(url + "/#/templates/new")
	b.until(`document.querySelector('[name=dockerfile]')`)
	b.shot("build-form")
	b.run(chromedp.SendKeys("[name=name]", "from-console", chromedp.ByQuery))
	set("FROM base\nCOPY . .\n")
	b.until(`document.querySelector('#toast').textContent.includes('line 2: COPY needs files')`)
	set("FROM base\nRUN echo built-$((40+2)) \\\n && echo and more\nENV COLOR=blue\n")
	b.until(`document.querySelector('main .badge.ready') && document.querySelector('[role=log]').textContent.includes('built-42') && document.querySelector('[role=log]').textContent.includes('and more')`)
	b.shot("build")
	b.visit(url + "/#/templates/new")
	b.until(`document.querySelector('[name=dockerfile]')`)
	b.run(chromedp.SendKeys("[name=name]", "from-console-2", chromedp.ByQuery))
	set("FROM base\nRUN echo reason >&2; exit 7\n")
	b.until(`document.querySelector('main .badge.error') && document.querySelector('main [role=alert]')?.textContent && document.querySelector('[role=log]').textContent.includes('reason')`)
	b.visit(url + "/#/templates")
	b.until(`document.querySelector('[aria-label="Delete from-console"]')`)
	b.shot("templates")
	b.clicks(`[aria-label="Delete from-console"]`)
	b.confirms()
	b.until(`!document.querySelector('[aria-label="Delete from-console"]')`)
}

// makesKey creates a key, which works, and revokes it.
func (b *tab) makesKey(up *rig.Up) {
	b.t.Helper()
	b.visit(up.URL + "/#/keys")
	b.press("Create")
	b.until(`document.querySelector('dialog[open] [name=name]')`)
	b.run(chromedp.SendKeys("dialog [name=name]", "laptop", chromedp.ByQuery))
	b.clicks("dialog button.primary")
	b.until(`document.querySelector('dialog[open] pre')`)
	key := value[string](b, `document.querySelector('dialog pre').textContent`)
	up.Want(b.t, 200, "GET", "/sandboxes", nil, "X-API-KEY", key)
	b.until(`document.querySelector('[aria-label="Revoke laptop"]')`)
	// The next question can come before the browser has reported the end of the last dialog.
	b.run(chromedp.Evaluate(`document.querySelector('dialog button.primary').click(); document.querySelector('[aria-label="Revoke laptop"]').click()`, nil))
	b.confirms()
	b.until(`!document.querySelector('[aria-label="Revoke laptop"]')`)
	up.Want(b.t, 401, "GET", "/sandboxes", nil, "X-API-KEY", key)
}

// drainsHost drains the host after a list of what would be lost, and takes that back.
func (b *tab) drainsHost(url string) {
	b.t.Helper()
	b.visit(url + "/#/hosts")
	b.press("Drain")
	b.until(`document.querySelector('dialog[open] ul.list li')`)
	b.shot("drain")
	b.confirms()
	b.until(`document.querySelector('.badge.draining')`)
	b.press("Undrain")
	b.until(`document.querySelector('.badge.alive')`)
}

// sharesSandbox opens a sandbox with a link: its processes and timeline, and nothing that changes it.
func (b *tab) sharesSandbox(up *rig.Up, box string) {
	b.t.Helper()
	b.visit(up.URL + "/#/sandboxes/" + box)
	b.press("Share")
	b.press("Create link")
	b.until(`document.querySelector('[data-test=link]')?.value.includes('/#/s/')`)
	link := value[string](b, `document.querySelector('[data-test=link]').value`)
	b.visit(link)
	b.until(`document.querySelector('[data-test=lanes]')`)
	id := started(b.t, up.Commands(b.t, box, "echo shared-$((1+1)); sleep 600", "timeout_ms", 0)) // while it is watched
	b.until(`document.querySelector('[data-test=lanes] .lane') && document.querySelector('main td a.mono') && document.querySelector('ol.marks li')`)
	if got := value[int](b, `document.querySelectorAll('button, nav.side').length`); got != 0 {
		b.t.Errorf("the page of a shared sandbox has %d buttons", got)
	}
	b.shot("shared-sandbox")
	b.run(chromedp.Evaluate(`document.querySelector('main td a.mono').click()`, nil))
	b.until(`location.hash.endsWith(%q) && %s?.textContent.includes('shared-2')`, id, text)
	up.Want(b.t, 204, "DELETE", "/sandboxes/"+box, nil)
	b.visit(link)
	b.until(`[...document.querySelectorAll('ol.marks strong')].some(x => x.textContent === 'ended')`)
	if moved := value[float64](b, "window.shifted"); moved != 0 {
		b.t.Errorf("layout shift of a shared sandbox: %.3f, want 0", moved)
	}
	b.visit(up.URL + "/#/sandboxes/" + box + "/files")
	b.until(`document.querySelector('main [role=alert]')`)
	if got := value[string](b, `document.querySelector('main [role=alert]').textContent`); !strings.Contains(got, "sandbox was not found") || strings.Contains(got, "<") {
		b.t.Errorf("files of a sandbox that has ended: %q", got)
	}
	b.visit(up.URL + "/#/sandboxes/" + strings.Repeat("0", len(box)))
	b.until(`document.querySelector('main [role=alert]') && document.querySelectorAll('main [role=alert], main section').length === 1`)
}
