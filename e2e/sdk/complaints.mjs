// Problems that users of E2B reported, each as a test case (see reported_test.go). Each has
// a sandbox of its own.
import { fork } from 'node:child_process'
import { bytes, text, until, within } from './cases.mjs'

const ticks = (n) => Array.from({ length: n }, (_, i) => `tick ${i + 1}\n`).join('')
const ticking = (n) => `for i in $(seq 1 ${n}); do echo tick $i; sleep 0.05; done`
const unlimited = { background: true, timeoutMs: 0 }

// record returns the gateway's entry of a handle's process.
async function record(sandboxId, pid) {
  const headers = { 'X-API-Key': process.env.E2B_API_KEY }
  const all = await (await fetch(`${process.env.E2B_API_URL}/v1/processes?sandbox=${sandboxId}`, { headers })).json()
  return all.find((p) => p.pid === pid)
}

export const complaints = {
  // Reattached output stalls after a resume: every cycle, not only the first.
  outputAfterEachResume: (e2b, assert) =>
    within(e2b, async (sbx) => {
      const { pid } = await sbx.commands.run('i=0; until [ -e stop ]; do i=$((i+1)); echo tick $i; sleep 0.05; done', unlimited)
      let last = 0
      for (let n = 1; n <= 4; n++) {
        let seen = ''
        const again = await sbx.commands.connect(pid, { timeoutMs: 0, onStdout: (d) => (seen += d) })
        await until(`output in cycle ${n}`, () => seen.includes(`tick ${last + 5}\n`))
        last = seen.split('\n').length - 1
        assert.equal(seen, ticks(last))
        await again.disconnect()
        await sbx.pause()
        sbx = await e2b.Sandbox.connect(sbx.sandboxId, { timeoutMs: 120_000 })
      }
      await sbx.files.write('stop', '')
      const { stdout } = await (await sbx.commands.connect(pid)).wait()
      assert.equal(stdout, ticks(stdout.split('\n').length - 1))
    }),

  // A server over stdio keeps responding, however large its responses are and however often
  // its sandbox was paused.
  largeAnswersAfterResume: (e2b, assert) =>
    within(e2b, async (sbx) => {
      const server = 'while read n; do head -c 1000000 /dev/zero | tr "\\0" $n; echo; done'
      const h = await sbx.commands.run(server, { ...unlimited, stdin: true })
      await h.disconnect()
      for (let n = 1; n <= 5; n++) {
        let got = 0
        const c = await sbx.commands.connect(h.pid, { timeoutMs: 0, onStdout: (d) => (got += d.length) })
        await sbx.commands.sendStdin(h.pid, `${n}\n`)
        await until(`answer ${n}`, () => got === n * 1_000_001)
        await c.disconnect()
        await sbx.pause()
        sbx = await e2b.Sandbox.connect(sbx.sandboxId, { timeoutMs: 120_000 })
      }
    }),

  // Any client can connect to a command that has ended.
  endedCommands: (e2b, assert) =>
    within(e2b, async (sbx) => {
      const h = await sbx.commands.run('echo done; exit 4', unlimited)
      await until('the end', async () => (await sbx.commands.list()).length === 0)
      const other = await e2b.Sandbox.connect(sbx.sandboxId)
      await assert.rejects((await other.commands.connect(h.pid)).wait(), (err) => {
        assert.deepEqual([err.exitCode, err.stdout], [4, 'done\n'])
        return true
      })
    }),

  // The SDK's timeout of 60 s applies to background commands too. The record has the timeout
  // as the cause, and all earlier output; 0 is no timeout.
  backgroundTimeout: (e2b, assert) =>
    within(e2b, async (sbx) => {
      const free = await sbx.commands.run('sleep 1.5; echo free', unlimited)
      const bound = await sbx.commands.run('echo before; sleep 100', { background: true, timeoutMs: 700 })
      await assert.rejects(bound.wait(), e2b.TimeoutError)
      const again = await sbx.commands.connect(bound.pid)
      await assert.rejects(again.wait(), e2b.TimeoutError)
      assert.equal(again.stdout, 'before\n')
      const { cause, signal } = await record(sbx.sandboxId, bound.pid)
      assert.deepEqual([cause, signal], ['timeout', 9])
      assert.equal((await free.wait()).stdout, 'free\n')
    }),

  // A command does not notice that the program that started it was killed.
  clientKilled: (e2b, assert, pkg) =>
    within(e2b, async (sbx) => {
      const client = fork(new URL(import.meta.url), ['client', pkg, sbx.sandboxId])
      const pid = await new Promise((resolve, reject) => {
        client.once('message', resolve)
        client.once('exit', () => reject(new Error('the client ended')))
      })
      client.kill('SIGKILL')
      await new Promise((resolve) => (client.exitCode === null && client.signalCode === null ? client.once('exit', resolve) : resolve()))
      assert.equal((await (await sbx.commands.connect(pid)).wait()).stdout, ticks(40))
    }),

  // Killing a command kills all its children.
  killTakesTheChildren: (e2b, assert) =>
    within(e2b, async (sbx) => {
      const left = async () => (await sbx.commands.run('cat /proc/[0-9]*/comm 2>/dev/null | grep -cx sleep || true')).stdout
      const h = await sbx.commands.run('(sleep 4321 & sleep 4321) & sh -c "sleep 4321 & wait" & wait', unlimited)
      await until('its children', async () => (await left()) === '3\n')
      assert.equal(await h.kill(), true)
      await assert.rejects(h.wait())
      await until('the end of all of them', async () => (await left()) === '0\n')
    }),

  // Running commands are listed, also after a pause and resume of their sandbox.
  listedAfterPause: (e2b, assert) =>
    within(
      e2b,
      async (sbx) => {
        const h = await sbx.commands.run('sleep 100', unlimited)
        await sbx.setTimeout(1_000)
        await until('the pause', async () => (await sbx.getInfo()).state === 'paused')
        sbx = await e2b.Sandbox.connect(sbx.sandboxId)
        assert.deepEqual((await sbx.commands.list()).map((p) => p.pid), [h.pid])
        assert.equal(await sbx.commands.kill(h.pid), true)
      },
      { lifecycle: { onTimeout: 'pause', autoResume: true } },
    ),

  // File changes survive every resume, including the second and third.
  filesAfterEachResume: (e2b, assert) =>
    within(e2b, async (sbx) => {
      for (let n = 1; n <= 4; n++) {
        await sbx.files.write(`file-${n}`, `written in run ${n}`)
        await sbx.commands.run(`echo run ${n} >> runs`)
        assert.equal(await sbx.pause(), true)
        sbx = await e2b.Sandbox.connect(sbx.sandboxId, { timeoutMs: 120_000 })
        for (let m = 1; m <= n; m++) assert.equal(await sbx.files.read(`file-${m}`), `written in run ${m}`)
        assert.equal((await sbx.files.read('runs')).trim().split('\n').length, n)
      }
    }),

  // Independent shells work without tmux.
  independentShells: (e2b, assert) =>
    within(e2b, async (sbx) => {
      const shells = await Promise.all(
        [1, 2, 3].map(async (n) => {
          const s = { n, seen: '' }
          s.h = await sbx.pty.create({ cols: 80, rows: 24, timeoutMs: 0, onData: (d) => (s.seen += text(d)) })
          return s
        }),
      )
      await Promise.all(shells.map(({ n, h }) => sbx.pty.sendInput(h.pid, bytes(`cd /tmp && mkdir -p s${n} && cd s${n}; V=v${n}\n`))))
      await Promise.all(shells.map(({ h }) => sbx.pty.sendInput(h.pid, bytes('echo "<$V $PWD>"\n'))))
      await Promise.all(shells.map((s) => until('its answer', () => s.seen.includes(`<v${s.n} /tmp/s${s.n}>`))))
      await Promise.all(shells.map(({ h }) => sbx.pty.kill(h.pid)))
    }),

  // Keys reach the terminal in the order in which they were sent.
  keysInOrder: (e2b, assert) =>
    within(e2b, async (sbx) => {
      let seen = ''
      const h = await sbx.pty.create({ cols: 400, rows: 24, timeoutMs: 0, onData: (d) => (seen += text(d)) })
      const typed = Array.from({ length: 100 }, (_, i) => String.fromCharCode(97 + (i % 26))).join('')
      for (const key of `: ${typed}`) await sbx.pty.sendInput(h.pid, bytes(key))
      await until('the echo', () => seen.includes(typed))
      await sbx.pty.kill(h.pid)
    }),

  // Long output arrives completely, in few messages, at every callback before wait returns.
  longOutput: (e2b, assert) =>
    within(e2b, async (sbx) => {
      let calls = 0
      let length = 0
      const res = await sbx.commands.run('seq 1 2000000', {
        onStdout: async (d) => {
          calls++
          await null
          length += d.length
        },
      })
      assert.equal(res.stdout.length, 14_888_896)
      assert.equal(length, res.stdout.length)
      assert.ok(calls < 20_000, `${calls} messages for 2,000,000 lines`)
    }),

  // A handle survives a fork and a pause of its sandbox.
  handlesSurvive: (e2b, assert) =>
    within(e2b, async (sbx) => {
      const h = await sbx.commands.run(ticking(40), unlimited)
      await until('output', () => h.stdout.includes('tick 3\n'))
      const [f] = await sbx.fork({ timeoutMs: 60_000 })
      assert.ok(!(f instanceof Error), String(f))
      await f.kill()
      assert.equal((await h.wait()).stdout, ticks(40))
    }),
}

// As a separate program, this file is a client that starts a command and keeps running.
if (process.argv[2] === 'client') {
  const [pkg, id] = process.argv.slice(3)
  const { Sandbox } = await import(pkg)
  const h = await (await Sandbox.connect(id)).commands.run(ticking(40), unlimited)
  await until('output', () => h.stdout.includes('tick 2\n'))
  process.send(h.pid)
  await h.wait()
}
