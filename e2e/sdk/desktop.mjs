// Runs the released desktop SDK of E2B, unmodified, against a gateway and prints the result
// of each case as a JSON line. E2B_API_KEY, E2B_API_URL and E2B_SANDBOX_URL select the
// gateway, which must have a template "desktop".
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { request } from 'node:http'
import { Sandbox } from '@e2b/desktop'

function report(result) {
  process.stdout.write(JSON.stringify(result) + '\n')
}

const cases = {
  async 'has the requested screen size'(s) {
    assert.deepEqual(await s.getScreenSize(), { width: 1024, height: 768 })
  },
  async 'takes screenshots'(s) {
    const png = Buffer.from(await s.screenshot())
    assert.equal(png.subarray(1, 4).toString(), 'PNG')
    assert.deepEqual([png.readUInt32BE(16), png.readUInt32BE(20)], [1024, 768])
  },
  async 'moves the pointer'(s) {
    await s.moveMouse(321, 123)
    assert.deepEqual(await s.getCursorPosition(), { x: 321, y: 123 })
  },
  async 'types into a window'(s) {
    await s.commands.run('xfce4-terminal --title typed-here', { background: true })
    const [window] = await until(() => s.commands.run('xdotool search --onlyvisible --name typed-here').then((r) => r.stdout.trim().split('\n')))
    await s.commands.run(`xdotool windowactivate --sync ${window}`)
    await s.write('echo written > /tmp/by-keyboard')
    await s.press('enter')
    assert.equal(await until(() => s.files.read('/tmp/by-keyboard')), 'written\n')
  },
  async 'launches the browser'(s) {
    await s.launch('google-chrome', 'about:blank')
    const [window] = await until(() => s.getApplicationWindows('chromium').then((w) => (w.length ? w : Promise.reject(new Error('none')))))
    assert.match(await until(() => s.getWindowTitle(window)), /Chromium/)
  },
  async 'streams the desktop to a browser'(s) {
    await s.stream.start()
    const headers = { 'E2b-Sandbox-Id': s.sandboxId, 'E2b-Sandbox-Port': '6080' }
    const page = await until(async () => {
      const res = await fetch(process.env.E2B_SANDBOX_URL + '/vnc.html', { headers })
      return res.ok ? res.text() : Promise.reject(new Error(`status ${res.status}`))
    })
    assert.match(page, /noVNC/)
    const hello = await firstFrame(process.env.E2B_SANDBOX_URL + '/websockify', headers)
    assert.match(hello, /^RFB 003/)
    await s.stream.stop()
  },
}

// firstFrame opens a WebSocket and returns the payload of the first frame.
function firstFrame(url, headers) {
  return new Promise((resolve, reject) => {
    const key = randomBytes(16).toString('base64')
    const upgrade = { Connection: 'Upgrade', Upgrade: 'websocket', 'Sec-WebSocket-Version': '13', 'Sec-WebSocket-Key': key }
    const upgraded = request(url, { headers: { ...headers, ...upgrade } }).on('error', reject).on('response', (r) => reject(new Error(`status ${r.statusCode}`)))
    upgraded.on('upgrade', (_, socket, head) => {
      const received = (data) => {
        resolve(data.subarray(2).toString()) // behind a short frame's header
        socket.destroy()
      }
      if (head.length) received(head)
      else socket.once('data', received)
    })
    upgraded.end()
  })
}

// until retries for a minute.
async function until(attempt) {
  for (const end = Date.now() + 60_000; ; ) {
    try {
      return await attempt()
    } catch (err) {
      if (Date.now() > end) throw err
      await new Promise((resolve) => setTimeout(resolve, 300))
    }
  }
}

const desktop = await Sandbox.create({ resolution: [1024, 768], timeoutMs: 600_000 })
for (const [name, check] of Object.entries(cases)) {
  try {
    await check(desktop)
    report({ name, ok: true })
  } catch (err) {
    report({ name, ok: false, error: String(err?.stack ?? err) })
  }
}
await desktop.kill()
report({ name: 'done', ok: true })
process.exit(0)
