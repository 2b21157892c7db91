// Compares the screens of a process, cell by cell, with those of xterm.js. Usage:
// node xterm.mjs <URL of the gateway> <process>; the API key is in MILLRACE_KEY.
// Every screen after an output is compared; the record must have its end.
import headless from '@xterm/headless'
import unicode11 from '@xterm/addon-unicode11'

const [url, id] = process.argv.slice(2)
const headers = { Authorization: 'Bearer ' + process.env.MILLRACE_KEY }

async function get(path) {
  const res = await fetch(`${url}/v1/processes/${id}${path}`, { headers })
  if (!res.ok) throw new Error(`${path}: ${res.status} ${await res.text()}`)
  return res.text()
}

function attributes(c) {
  return (c.isBold() && 1) | (c.isDim() && 2) | (c.isItalic() && 4) | (c.isUnderline() && 8) |
    (c.isBlink() && 16) | (c.isInverse() && 32) | (c.isInvisible() && 64) | (c.isStrikethrough() && 128)
}

function color(isDefault, isPalette, value) {
  if (isDefault) return null
  return isPalette ? value : '#' + value.toString(16).padStart(6, '0')
}

// cellsOf returns the cells of a row of the response; null is the second column of a wide one.
function cellsOf(row, cols, width) {
  const out = []
  for (const g of row) {
    const before = out.length
    for (const ch of g.t) {
      const w = width(ch.codePointAt(0))
      if (w === 0) {
        const last = out.at(-1) ?? out.at(-2)
        last.t += ch
        continue
      }
      out.push({ t: ch, f: g.f ?? null, b: g.b ?? null, a: g.a ?? 0 })
      if (w === 2) out.push(null)
    }
    const want = g.w ?? [...g.t].length
    if (out.length - before !== want) throw new Error(`a group of ${out.length - before} columns says ${want}: ${JSON.stringify(g)}`)
  }
  while (out.length < cols) out.push({ t: ' ', f: null, b: null, a: 0 })
  return out
}

// An empty cell shows no more than its background, unless it has a line.
const shown = (c) => c && (c.t === ' ' && !(c.a & (8 | 32 | 128)) ? { t: ' ', b: c.b } : c)

function compare(term, got) {
  const b = term.buffer.active
  const width = (cp) => term._core.unicodeService.wcwidth(cp)
  const cursor = { x: Math.min(b.cursorX, term.cols - 1), y: b.cursorY }
  if (got.cols !== term.cols || got.rows !== term.rows || got.lines.length !== term.rows) {
    throw new Error(`${got.cols} by ${got.rows} with ${got.lines.length} rows, want ${term.cols} by ${term.rows}`)
  }
  if (got.cursor.x !== cursor.x || got.cursor.y !== cursor.y) throw new Error(`cursor ${JSON.stringify(got.cursor)}, want ${JSON.stringify(cursor)}`)
  if (got.alt !== (b.type === 'alternate')) throw new Error(`alt ${got.alt}`)
  for (let y = 0; y < term.rows; y++) {
    const row = cellsOf(got.lines[y], term.cols, width)
    const line = b.getLine(b.baseY + y)
    for (let x = 0; x < term.cols; x++) {
      const c = line.getCell(x)
      const want = c.getWidth() === 0 ? null : {
        t: c.getChars() || ' ',
        f: color(c.isFgDefault(), c.isFgPalette(), c.getFgColor()),
        b: color(c.isBgDefault(), c.isBgPalette(), c.getBgColor()),
        a: attributes(c),
      }
      const [one, other] = [JSON.stringify(shown(row[x])), JSON.stringify(shown(want))]
      if (one !== other) throw new Error(`row ${y}, column ${x}: ${one}, want ${other}`)
    }
  }
  return term.rows * term.cols
}

let term
let cells = 0
let screens = 0
try {
  for (const line of (await get('/events?follow=0')).split('\n')) {
    if (line === '') continue
    const e = JSON.parse(line)
    if (e.type === 'accepted') {
      // Rows are not reflowed when the size changes, as in a Windows console.
      term = new headless.Terminal({
        cols: e.pty?.cols ?? 80, rows: e.pty?.rows ?? 24, scrollback: 0, allowProposedApi: true,
        convertEol: !e.pty, windowsPty: { backend: 'conpty', buildNumber: 19000 },
      })
      term.loadAddon(new unicode11.Unicode11Addon())
      term.unicode.activeVersion = '11'
    }
    if (e.type === 'resized') term.resize(e.cols, e.rows)
    if (!['pty', 'stdout', 'stderr'].includes(e.type)) continue
    const data = e.data_b64 === undefined ? Buffer.from(e.data) : Buffer.from(e.data_b64, 'base64')
    await new Promise((done) => term.write(data, done))
    const got = JSON.parse(await get('/screen?seq=' + e.seq))
    try {
      cells += compare(term, got)
      screens++
    } catch (err) {
      throw new Error(`after event ${e.seq}: ${err.message}`)
    }
  }
  process.stdout.write(JSON.stringify({ name: `${screens} screens, ${cells} cells`, ok: screens > 0, error: 'no output' }) + '\n')
} catch (err) {
  process.stdout.write(JSON.stringify({ name: id, ok: false, error: String(err?.stack ?? err) }) + '\n')
}
