// Uses sessions with the released Backend.AI client, unmodified. Usage:
// node backendai.mjs <image> <endpoint> <another endpoint>; the keys are in BACKEND_ACCESS_KEY and
// BACKEND_SECRET_KEY. Requests alternate between the endpoints, which are gateways with one log.
import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import WebSocket from 'ws'

const { Client, ClientConfig } = createRequire(import.meta.url)('backend.ai-client/backend.ai-client-node.js')
globalThis.navigator ??= { onLine: true } // the client runs in browsers
globalThis.localStorage = { getItem: () => null, setItem() {} }

const [image, ...endpoints] = process.argv.slice(2)
const clients = endpoints.map((e) => {
  const client = new Client(new ClientConfig(process.env.BACKEND_ACCESS_KEY, process.env.BACKEND_SECRET_KEY, e))
  client.requestTimeout = 60_000
  return client
})
let turn = 0
const next = () => clients[turn++ % clients.length]
const name = 'npm-' + Math.random().toString(36).slice(2, 10)

async function one(what, fn) {
  try {
    await fn()
    report({ name: what, ok: true })
  } catch (err) {
    report({ name: what, ok: false, error: String(err?.stack ?? JSON.stringify(err)) })
  }
}

function report(result) {
  process.stdout.write(JSON.stringify(result) + '\n')
}

// run runs a request to its end, at alternating gateways, and answers requests for input.
async function run(mode, code, options, input) {
  const runId = 'run-' + Math.random().toString(36).slice(2)
  const seen = { statuses: [], console: {} }
  for (;;) {
    const { result } = await next().execute(name, runId, mode, code, options)
    for (const [type, text] of result.console) seen.console[type] = (seen.console[type] ?? '') + text
    if (result.status !== 'continued') seen.statuses.push(result.status)
    mode = 'continue'
    code = ''
    if (result.status === 'finished') return { ...seen, exitCode: result.exitCode }
    if (result.status === 'waiting-input') {
      mode = 'input'
      code = input
    }
  }
}

// stream opens a WebSocket connection with the headers that the client signs.
function stream(path) {
  const client = next()
  const signed = client.newSignedRequest('GET', path, null)
  const headers = Object.fromEntries(signed.headers.entries())
  return new WebSocket(signed.uri.replace(/^http/, 'ws'), { headers })
}

await one('version', async () => {
  for (const c of clients) {
    assert.ok(await c.get_manager_version())
    assert.match(c.apiVersion, /^v4\./)
  }
})

await one('create', async () => {
  const made = await next().createIfNotExists(image, name, { cpu: 1, mem: '256m', env: { GREETING: 'hello' } })
  assert.equal(made.created, true)
  assert.equal(made.kernelId, name)
  const again = await next().createIfNotExists(image, name, { cpu: 1, mem: '256m' })
  assert.equal(again.created, false)
  assert.equal(again.kernelId, name)
  assert.equal((await next().get_info(name)).status, 'RUNNING')
})

await one('an image that does not exist', async () => {
  await assert.rejects(next().createIfNotExists('no-such-image', name + 'x'), (err) => err.statusCode === 404)
})

await one('execute', async () => {
  const r = await run('query', 'echo $GREETING; echo problem >&2; (exit 3)', {})
  assert.deepEqual(r.statuses, ['finished'])
  assert.deepEqual(r.console, { stdout: 'hello\n', stderr: 'problem\n' })
  assert.equal(r.exitCode, 3)
})

await one('input', async () => {
  const r = await run('query', 'read name; echo "got $name"', {}, 'bob')
  assert.deepEqual(r.statuses, ['waiting-input', 'finished'])
  assert.equal(r.console.stdout, 'got bob\n')
})

await one('batch', async () => {
  const r = await run('batch', '', { clean: null, build: 'echo built', exec: 'for i in 1 2 3; do echo $i; sleep 1; done' })
  assert.deepEqual(r.statuses, ['clean-finished', 'build-finished', 'finished'])
  assert.equal(r.console.stdout, 'built\n1\n2\n3\n')
  assert.equal(r.exitCode, 0)
})

await one('upload', async () => {
  const content = Buffer.alloc(500_000, 'abc')
  await next().upload(name, 'dir/large.bin', new Blob([content]))
  const r = await run('query', 'wc -c < dir/large.bin', {})
  assert.equal(r.console.stdout.trim(), '500000')
})

await one('download', async () => {
  const parts = Buffer.from(await (await next().download(name, ['dir/large.bin'])).arrayBuffer())
  assert.ok(parts.includes('large.bin') && parts.includes('abcabc') && parts.length > 500_000)
  const tar = Buffer.from(await (await next().download_single(name, 'dir/large.bin')).arrayBuffer())
  assert.equal(tar.subarray(0, 9).toString(), 'large.bin')
  assert.equal(tar.subarray(512, 518).toString(), 'abcabc')
  await assert.rejects(next().download_single(name, 'nothing'), (err) => err.statusCode === 404)
})

await one('terminal', async () => {
  for (const want of [/first-\d+-end/, /again-\d+-end/]) { // at one gateway, then at the other
    const ws = stream(`/stream/kernel/${name}/pty`)
    await new Promise((resolve, reject) => {
      let text = ''
      const word = want.source.slice(0, 5)
      ws.on('open', () => {
        ws.send(JSON.stringify({ type: 'resize', rows: 30, cols: 100 }))
        ws.send(JSON.stringify({ type: 'stdin', chars: Buffer.from(`echo ${word}-$((6*7))-end\r`).toString('base64') }))
      })
      ws.on('message', (raw, binary) => {
        const m = JSON.parse(raw)
        if (binary || m.type !== 'out') reject(new Error(`${binary} ${raw}`))
        text += Buffer.from(m.data, 'base64')
        if (want.test(text)) resolve()
      })
      ws.on('error', reject)
      ws.on('close', (code) => reject(new Error(`closed with ${code} after ${text}`)))
    })
    ws.terminate()
  }
})

await one('logs and services', async () => {
  assert.match((await next().get_logs(name)).result.logs, /hello/)
  await next().shutdown_service(name, 'ttyd')
  await assert.rejects(next().shutdown_service(name, 'nothing'), (err) => err.statusCode === 404)
})

await one('restart', async () => {
  await next().restart(name)
  const r = await run('query', 'ls dir', {})
  assert.equal(r.console.stdout, 'large.bin\n')
})

await one('destroy', async () => {
  const gone = await next().destroy(name)
  assert.equal(gone.stats.status, 'terminated')
  await assert.rejects(next().get_info(name), (err) => err.statusCode === 404)
  await assert.rejects(next().get_info(name), (err) => err.statusCode === 404)
})

report({ name: 'done', ok: true })
process.exit(0)
