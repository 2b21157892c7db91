// Measures common operations with the released e2b SDK, unmodified, and prints a Markdown
// row for each figure. Usage: node bench.mjs [part...]; E2B_API_KEY, E2B_API_URL and
// E2B_SANDBOX_URL select the gateway, and MILLRACE_PID the process whose memory is measured
// (the gateway or `millrace up`).
import { readFileSync, writeFileSync } from 'node:fs'
import http from 'node:http'
import { Sandbox } from 'e2b'
import { parallel } from './cases.mjs'

const ms = (n) => n.toFixed(n < 10 ? 1 : 0)
const row = (what, seen) => console.log(`| ${what} | ${seen} |`)

// times formats the median and the 99th percentile.
function times(all) {
  const sorted = all.toSorted((a, b) => a - b)
  const at = (q) => sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))]
  return `${ms(at(0.5))} / ${ms(at(0.99))} ms`
}

async function timed(fn) {
  const began = performance.now()
  await fn()
  return performance.now() - began
}

// cpu formats the client's own CPU time per call.
function cpu() {
  const since = process.cpuUsage()
  return (n) => {
    const { user, system } = process.cpuUsage(since)
    return `${ms((user + system) / 1000 / n)} ms of CPU each in the client`
  }
}

async function within(fn) {
  const sbx = await Sandbox.create('base', { timeoutMs: 600_000 })
  try {
    await fn(sbx)
  } finally {
    await sbx.kill()
  }
}

// life measures create, command and kill of one sandbox.
async function life() {
  let sbx
  const create = await timed(async () => (sbx = await Sandbox.create('base', { timeoutMs: 60_000 })))
  const first = await timed(() => sbx.commands.run('true'))
  const kill = await timed(() => sbx.kill())
  return { create, first, kill, ready: create + first }
}

// memory returns the peak resident memory of the process since the last call, in MiB.
function memory() {
  const pid = process.env.MILLRACE_PID
  if (!pid) return undefined
  const most = Number(readFileSync(`/proc/${pid}/status`, 'utf8').match(/VmHWM:\s+(\d+)/)[1]) / 1024
  writeFileSync(`/proc/${pid}/clear_refs`, '5')
  return Math.round(most)
}

function rss(before) {
  const most = memory()
  return most === undefined ? '' : `; the server's memory ${before} before, ${most} MiB at most`
}

const server = `
const http = require('node:http')
const agent = new http.Agent({ keepAlive: true })
const get = () => new Promise((ok, no) => http.get({ port: 8099, agent }, (r) => r.resume().on('end', ok)).on('error', no))
http.createServer((q, s) => s.end('ok')).listen(8099, '127.0.0.1', async () => {
  for (let i = 0; i < 300; i++) await get()
  const all = []
  for (let i = 0; i < 2000; i++) { const t = performance.now(); await get(); all.push(performance.now() - t) }
  console.log(JSON.stringify(all))
})`

const parts = {
  async life() {
    await life()
    const run = async (what, n, wide) => {
      const all = await parallel(n, wide, life)
      for (const leg of ['ready', 'create', 'first', 'kill']) {
        row(`${{ ready: 'create and first command', create: 'create', first: 'first command', kill: 'kill' }[leg]}, ${what}`, times(all.map((l) => l[leg])))
      }
    }
    await run('one after the other', 100, 1)
    await run('10 at a time', 100, 10)
  },

  commands: () =>
    within(async (sbx) => {
      await parallel(50, 10, () => sbx.commands.run('true'))
      for (const wide of [1, 10, 100]) {
        const n = wide === 1 ? 300 : 1500
        let all
        const own = cpu()
        const took = await timed(async () => (all = await parallel(n, wide, () => timed(() => sbx.commands.run('true')))))
        row(`commands a second, ${wide} in flight`, `${Math.round((n / took) * 1000)}; ${times(all)}; ${own(n)}`)
      }
    }),

  file: () =>
    within(async (sbx) => {
      const size = 100e6
      const data = new Blob([new Uint8Array(size).map((_, i) => (i * 2654435761) >>> 24)])
      memory()
      const before = memory()
      for (const [how, opts] of [['', {}], [', gzip', { gzip: true }]]) {
        const up = await timed(() => sbx.files.write('big', data, opts))
        row(`100 MB up${how}`, `${Math.round(size / 1000 / up)} MB/s${rss(before)}`)
        let got = 0
        const down = await timed(async () => {
          for await (const c of await sbx.files.read('big', { format: 'stream', ...opts })) got += c.length
        })
        if (got !== size) throw new Error(`got ${got} of ${size} bytes`)
        row(`100 MB down${how}`, `${Math.round(size / 1000 / down)} MB/s${rss(before)}`)
      }
      const small = await parallel(300, 1, (i) => timed(() => sbx.files.write(`small/${i}`, 'x')))
      row('a small file written', times(small))
      row('a small file read', times(await parallel(300, 1, (i) => timed(() => sbx.files.read(`small/${i}`)))))
    }),

  list: () =>
    within(async (sbx) => {
      await sbx.commands.run('mkdir many && cd many && for i in $(seq 1 10000); do echo $i > file-$i; done')
      const all = await parallel(10, 1, () =>
        timed(async () => {
          const got = await sbx.files.list('many')
          if (got.length !== 10_000) throw new Error(`listed ${got.length}`)
        }),
      )
      row('10,000 files listed', times(all))
      row('stat of one file', times(await parallel(300, 1, () => timed(() => sbx.files.getInfo('many/file-7')))))
    }),

  watch: () =>
    within(async (sbx) => {
      await sbx.files.makeDir('w')
      let seen
      const handle = await sbx.files.watchDir('w', (e) => e.type === 'write' && e.name === seen?.name && seen.done())
      const all = await parallel(200, 1, (i) => {
        const began = performance.now()
        return new Promise((resolve, reject) => {
          seen = { name: `f${i}`, done: () => resolve(performance.now() - began) }
          sbx.files.write(`w/f${i}`, 'x').catch(reject)
        })
      })
      row('a file written, to its event', times(all))
      await handle.stop()
    }),

  proxy: () =>
    within(async (sbx) => {
      await sbx.files.write('server.js', server)
      let out = ''
      await sbx.commands.run('exec node server.js', { background: true, timeoutMs: 0, onStdout: (d) => (out += d) })
      while (!out.endsWith('\n')) await new Promise((r) => setTimeout(r, 50))
      row('a request to a port, from within the sandbox', times(JSON.parse(out)))
      const { hostname, port } = new URL(process.env.E2B_SANDBOX_URL)
      const agent = new http.Agent({ keepAlive: true })
      const get = () =>
        new Promise((resolve, reject) => {
          const began = performance.now()
          http
            .get({ hostname, port, agent, headers: { Host: sbx.getHost(8099) } }, (res) => {
              let body = ''
              res.on('data', (d) => (body += d)).on('end', () => (body === 'ok' ? resolve(performance.now() - began) : reject(new Error(`${res.statusCode} ${body}`))))
            })
            .on('error', reject)
        })
      await parallel(300, 10, get)
      for (const [wide, n] of [[1, 2000], [10, 5000], [100, 5000]]) {
        let all
        const own = cpu()
        const took = await timed(async () => (all = await parallel(n, wide, get)))
        row(`requests a second to a port, ${wide} in flight`, `${Math.round((n / took) * 1000)}; ${times(all)}; ${own(n)}`)
      }
    }),
}

for (const name of process.argv.length > 2 ? process.argv.slice(2) : Object.keys(parts)) await parts[name]()
process.exit(0)
