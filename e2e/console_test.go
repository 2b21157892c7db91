package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/millrace/millrace/e2e/rig"
	"github.com/millrace/millrace/events/attachment"
)

// shifts adds up the layout shifts of a page that its user did not cause.
const shifts = `window.shifted = 0; new PerformanceObserver(l => l.getEntries().forEach(e => { if (!e.hadRecentInput) window.shifted += e.value })).observe({type: 'layout-shift', buffered: true})`

// signIn opens the console and enters the key.
func (b *tab) signIn(url, key string) {
	b.t.Helper()
	b.run(early(shifts))
	b.visit(url)
	b.until(`document.querySelector('#key')`)
	b.shot("sign-in")
	b.run(chromedp.SendKeys("#key", key+kb.Enter, chromedp.ByID))
	b.until(`document.querySelector('main .empty, main table')`)
}

// A person signs in, runs a command, types in a terminal, moves through its record, and goes on
// when the gateway is killed.
func TestConsole(t *testing.T) {
	t.Parallel()
	s := rig.NewSplit(t, rig.Topology{Gateways: 2})
	front := newBalancer(t, s.APIs[0].URL)
	b := newBrowser(t)
	b.signIn(front.URL, rig.SplitKey)
	if url := value[string](b, "location.href"); strings.Contains(url, rig.SplitKey) {
		t.Errorf("the key is in the URL: %s", url)
	}
	b.shot("no-sandboxes")

	b.press("Create")
	b.until(`document.querySelector('dialog[open]')`)
	b.shot("create")
	b.run(chromedp.Evaluate(`document.querySelector('dialog button.primary').click()`, nil))
	b.until(`document.querySelector('td .badge.running')`)
	b.shot("sandboxes")
	b.run(chromedp.Evaluate(`document.querySelector('td a.mono').click()`, nil))
	b.until(`document.querySelector('[name=cmd]')`)
	sandbox := strings.TrimPrefix(value[string](b, "location.hash"), "#/sandboxes/")
	b.run(chromedp.SendKeys("[name=cmd]", "echo console-$((40+2))"+kb.Enter, chromedp.ByQuery))
	b.until(`document.querySelector('[data-test=output]')?.innerText.includes('console-42') && document.querySelector('dd .badge.ended')`)
	b.shot("output")

	b.visit(front.URL + "/#/sandboxes/" + sandbox)
	b.press("Open a terminal")
	b.until(`document.querySelector('[data-test=mode]')?.textContent === 'typing'`)
	b.typesInVim()
	link := b.scrubs()
	b.goesOn(s, front)
	b.shares()
	second := b.handsOver(front.URL)
	b.opensPages(front.URL, sandbox)
	second.keepsTyping()
	b.killsSandbox(front.URL, sandbox)

	b.visit(link) // the record is there after the sandbox
	b.until(`document.querySelector('[data-test=screen]')?.dataset.seq === %q`, link[strings.LastIndexByte(link, '/')+1:])
	if moved := value[float64](b, "window.shifted"); moved != 0 {
		t.Errorf("layout shift of the permalink's page: %.3f, want 0", moved)
	}
	if all := b.mistakes(); len(all) > 0 {
		t.Errorf("the pages caused %q", all)
	}
}

// typesInVim edits a file, resizes the terminal with the window, and leaves the editor.
func (b *tab) typesInVim() {
	b.t.Helper()
	b.until(`%s.includes('$')`, screen)
	b.run(chromedp.KeyEvent("vim -u NONE note.txt\r"))
	b.until(`%s.split('\n').filter(l => l.trim() === '~').length > 3`, screen)
	b.run(chromedp.KeyEvent("ihello console"), chromedp.KeyEvent(kb.Escape))
	b.until(`%s.includes('hello console')`, screen)
	b.shot("vim")
	before := value[string](b, `document.querySelector('[data-test=screen]').getAttribute('aria-label')`)
	b.run(chromedp.EmulateViewport(900, 700))
	b.until(`document.querySelector('[data-test=screen]').getAttribute('aria-label') !== %q && %s.includes('hello console')`, before, screen)
	b.run(chromedp.EmulateViewport(1280, 860), chromedp.KeyEvent(":wq\r"))
	b.until(`%s.trimEnd().endsWith('$')`, screen)
	b.run(chromedp.KeyEvent("cat note.txt; echo wrote-$((1+1))\r"))
	b.until(`%s.includes('hello console\nwrote-2')`, screen)
}

// scrubs moves the slider into the past, replays to the end, and returns a permalink.
func (b *tab) scrubs() string {
	b.t.Helper()
	last := value[string](b, `document.querySelector('[data-test=screen]').dataset.seq`)
	b.run(chromedp.Evaluate(`{ const s = document.querySelector('[data-test=slider]'); s.value = 3; s.dispatchEvent(new Event('input')) }`, nil))
	b.until(`document.querySelector('[data-test=screen]').dataset.seq === '3' && !%s.includes('wrote-2') && location.hash.endsWith('/3')`, screen)
	link := value[string](b, "location.href")
	b.run(chromedp.SetValue(`[aria-label=Speed]`, "64", chromedp.ByQuery), chromedp.Evaluate(`document.querySelector('[aria-label=Speed]').dispatchEvent(new Event('change'))`, nil))
	b.press("Play")
	b.until(`Number(document.querySelector('[data-test=screen]').dataset.seq) >= %s && %s.includes('wrote-2')`, last, screen)
	b.shot("past")
	b.run(chromedp.SendKeys("[name=q]", "hello console"+kb.Enter, chromedp.ByQuery))
	b.until(`document.querySelector('[data-test=hit]')`)
	hit := value[string](b, `document.querySelector('[data-test=hit]').textContent`)
	b.run(chromedp.Evaluate(`document.querySelector('[data-test=hit]').click()`, nil))
	b.until(`document.querySelector('[data-test=screen]').dataset.seq === %q`, strings.Fields(hit)[0])
	b.press("Live")
	b.until(`document.querySelector('[data-test=mode]').textContent === 'watching'`)
	return link
}

// shares opens the terminal in a fresh profile with a link, and revokes the link.
func (b *tab) shares() {
	b.t.Helper()
	b.press("Share")
	b.press("Create link")
	b.until(`document.querySelector('[data-test=link]')?.value.includes('/#/s/') && document.querySelector('[data-test=revoke]')`)
	b.shot("share")
	link := value[string](b, `document.querySelector('[data-test=link]').value`)
	onlooker := newBrowser(b.t)
	onlooker.visit(link)
	onlooker.until(`document.querySelector('.grid')?.innerText.includes('after-2') && document.querySelector('[data-test=mode]').textContent === 'watching'`)
	if value[bool](onlooker, `!!document.querySelector('[data-test=type], [data-test=share], nav.side')`) {
		b.t.Error("an onlooker can type, share or navigate")
	}
	onlooker.shot("shared")
	b.press("Revoke")
	b.press("Revoke now?")
	b.until(`!document.querySelector('[data-test=revoke]')`)
	b.press("Close")
	onlooker.visit(link)
	onlooker.until(`document.querySelector('main [role=alert]') && !document.querySelector('.grid')`)
}

// goesOn kills the gateway of the page and types on through the other one.
func (b *tab) goesOn(s *rig.Split, front *balancer) {
	b.t.Helper()
	b.press("Type")
	b.until(`document.querySelector('[data-test=mode]').textContent === 'typing'`)
	front.Switch(s.APIs[1].URL)
	s.Program("gateway-1").Kill9()
	b.run(chromedp.KeyEvent("echo after-$((1+1))\r"))
	b.until(`%s.includes('after-2')`, screen)
}

// name returns the name of the page, by which others know its writer.
func (b *tab) name() string {
	b.t.Helper()
	b.until(`document.querySelector('[data-test=page-name]')?.textContent.includes(' ')`)
	return value[string](b, `document.querySelector('[data-test=page-name]').textContent`)
}

// handsOver opens the terminal in a second browser, which asks for the keys and receives them. It returns that browser.
func (b *tab) handsOver(url string) *tab {
	b.t.Helper()
	second := newBrowser(b.t)
	second.signIn(url, rig.SplitKey)
	second.visit(value[string](b, "location.href"))
	first, other := b.name(), second.name()
	if first == other || !strings.HasPrefix(first, "key ") {
		b.t.Errorf("the pages are called %q and %q", first, other)
	}
	second.until(`document.querySelector('[data-test=other]')?.textContent === %q`, first+" types")
	second.press("Type")
	second.until(`document.querySelector('[data-test=type]').textContent === 'Stop waiting'`)
	b.until(`document.querySelector('[data-test=other]').textContent === %q`, other+" asks to type")
	second.press("Stop waiting")
	b.until(`document.querySelector('[data-test=other]').textContent === ''`)
	second.press("Type")
	b.press("Hand over")
	b.until(`document.querySelector('[data-test=mode]').textContent === 'watching' && document.querySelector('[data-test=other]').textContent === %q`, other+" types")
	second.until(`document.querySelector('[data-test=mode]').textContent === 'typing'`)
	second.run(chromedp.Evaluate(`window.begun = performance.now()`, nil), chromedp.KeyEvent("echo second-$((1+1))\r"))
	b.until(`%s.includes('second-2')`, screen)
	return second
}

// keepsTyping types again when the lease would have ended without its renewals.
func (b *tab) keepsTyping() {
	b.t.Helper()
	b.until(`performance.now() - window.begun > %d`, attachment.WriterTTL.Milliseconds())
	b.run(chromedp.KeyEvent("echo renewed-$((1+1))\r"))
	b.until(`%s.includes('renewed-2') && document.querySelector('[data-test=mode]').textContent === 'typing'`, screen)
	b.run(chromedp.KeyEvent("e", chromedp.KeyModifiers(input.ModifierCtrl, input.ModifierShift)))
	b.until(`document.activeElement.dataset.test === 'type'`) // the keyboard alone leaves the terminal
	b.run(chromedp.KeyEvent(kb.Enter))
	b.until(`document.querySelector('[data-test=mode]').textContent === 'watching'`)
}

// unnamed is an expression for the controls that a screen reader cannot name, and for a heading that is not alone.
const unnamed = `[...document.querySelectorAll('button, a[href], input:not([hidden]), select, textarea, table, meter, nav, svg[role=img]')]
	.filter(x => !x.hidden && !(x.textContent.trim() && !x.matches('select, textarea, nav, table')) && !x.getAttribute('aria-label') && !x.labels?.length && !x.title && !x.caption)
	.map(x => x.outerHTML.slice(0, 120)).concat(document.querySelectorAll('h1').length === 1 ? [] : ['h1'])`

// opensPages opens the other pages.
func (b *tab) opensPages(url, sandbox string) {
	b.t.Helper()
	for name, shown := range map[string]string{
		"processes": "td a.mono", "events": "tbody tr", "hosts": "meter", "templates": ".empty, table", "templates/new": "textarea",
		"keys": "table", "usage": "dl", "audit": ".empty, table", "sandboxes/" + sandbox + "/files?path=/etc": "td a.mono", "sandboxes/" + sandbox: "ol.marks li",
	} {
		b.visit(url + "/#/" + name)
		b.until(`document.querySelector(%q)`, "main :is("+shown+")")
		if alert := value[string](b, `document.querySelector('[role=alert]')?.innerText || ''`); alert != "" {
			b.t.Errorf("page %s: %s", name, alert)
		}
		for _, width := range []int64{1280, 400} {
			b.run(chromedp.EmulateViewport(width, 860))
			if wide := value[string](b, `String(document.documentElement.scrollWidth > innerWidth)`); wide != "false" {
				b.t.Errorf("page %s is wider than a window of %d pixels", name, width)
			}
		}
		b.run(chromedp.EmulateViewport(1280, 860))
		if got := value[[]string](b, unnamed); len(got) > 0 {
			b.t.Errorf("page %s has controls without a name: %q", name, got)
		}
		page, _, _ := strings.Cut(strings.ReplaceAll(name, sandbox, "one"), "?")
		b.shot(strings.ReplaceAll(page, "/", "-"))
	}
}

// killsSandbox ends a sandbox, after the question.
func (b *tab) killsSandbox(url, sandbox string) {
	b.t.Helper()
	b.visit(fmt.Sprintf("%s/#/sandboxes/%s", url, sandbox))
	b.press("Kill")
	b.until(`document.querySelector('dialog[open] [data-test=confirm]')`)
	b.shot("kill")
	b.run(chromedp.Evaluate(`document.querySelector('[data-test=confirm]').click()`, nil))
	b.until(`document.querySelector('dd .badge.ended')`)
}
