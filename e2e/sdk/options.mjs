// Options of the SDK's methods that cases.mjs does not use. Each case has a sandbox of its
// own.
import { bytes, text, until, within } from './cases.mjs'

const late = (ms) => AbortSignal.timeout(ms)

export const options = {
  async largeInput(e2b, assert) {
    await within(e2b, async (sbx) => {
      const h = await sbx.commands.run('wc -c', { background: true, stdin: true })
      await h.sendStdin('x'.repeat(5_000_000))
      await h.closeStdin()
      assert.equal((await h.wait()).stdout, '5000000\n')
    })
  },

  // A signal ends the call and its stream, not the command.
  signals: (e2b, assert) =>
    within(e2b, async (sbx) => {
      const stop = new AbortController()
      let seen = ''
      const running = sbx.commands.run('echo up; until [ -e stop ]; do sleep 0.05; done; echo down', {
        signal: stop.signal,
        requestTimeoutMs: 10_000,
        timeoutMs: 0,
        onStdout: (d) => (seen += d),
      })
      await until('output', () => seen === 'up\n')
      const [{ pid }] = await sbx.commands.list({ signal: late(10_000), requestTimeoutMs: 10_000 })
      stop.abort()
      await assert.rejects(running)
      assert.deepEqual((await sbx.commands.list()).map((p) => p.pid), [pid])
      await sbx.files.write('stop', '', { signal: late(10_000) })
      assert.equal((await (await sbx.commands.connect(pid, { signal: late(10_000) })).wait()).stdout, 'up\ndown\n')
      const gone = AbortSignal.abort()
      for (const call of [
        () => sbx.files.read('stop', { signal: gone }),
        () => sbx.files.list('.', { signal: gone }),
        () => sbx.getInfo({ signal: gone }),
        () => sbx.setTimeout(1_000, { signal: gone }),
        () => sbx.kill({ signal: gone }),
      ]) {
        await assert.rejects(call)
      }
      assert.equal(await sbx.isRunning({ requestTimeoutMs: 10_000 }), true)
    }),

  handles: (e2b, assert) =>
    within(e2b, async (sbx) => {
      const h = await sbx.commands.run('cat; echo bye >&2; exit 3', { background: true, stdin: true })
      assert.equal(h.exitCode, undefined)
      if (h.sendStdin) {
        await h.sendStdin('one\n')
        await h.sendStdin(new Uint8Array([0xe2, 0x82, 0xac, 0x0a]))
        await h.closeStdin()
      } else {
        await sbx.commands.sendStdin(h.pid, 'one\n€\n')
        await sbx.commands.closeStdin(h.pid)
      }
      const failed = { exitCode: 3, stdout: 'one\n€\n', stderr: 'bye\n', error: 'exit status 3' }
      for (const wait of [h.wait(), h.wait()]) {
        await assert.rejects(wait, (err) => {
          assert.ok(err instanceof e2b.CommandExitError && err instanceof e2b.SandboxError, String(err))
          assert.deepEqual({ exitCode: err.exitCode, stdout: err.stdout, stderr: err.stderr, error: err.error }, failed)
          return true
        })
      }
      assert.deepEqual({ exitCode: h.exitCode, stdout: h.stdout, stderr: h.stderr, error: h.error }, failed)
      assert.equal(await h.kill(), false)
      await assert.rejects(sbx.commands.sendStdin(h.pid, 'x'), e2b.NotFoundError)

      const envs = { A: '1', B: 'ü' }
      const bg = await sbx.commands.run('sleep 100', { background: true, envs, cwd: '/tmp', timeoutMs: 0 })
      const [p] = await sbx.commands.list()
      assert.deepEqual([p.pid, p.cmd, p.args, p.envs, p.cwd, p.tag], [bg.pid, '/bin/bash', ['-l', '-c', 'sleep 100'], envs, '/tmp', undefined])
      assert.equal(await bg.kill(), true)
      await assert.rejects(bg.wait(), (err) => {
        assert.deepEqual([err.exitCode, err.error], [-1, 'signal: killed'])
        return true
      })
      await assert.rejects(sbx.commands.run('no-such-program'), (err) => err.exitCode === 127 && /not found/.test(err.stderr))
      await assert.rejects(sbx.commands.run('true', { user: 'nobody-there' }), e2b.AuthenticationError)
      // A slow callback delays the end: it is reported only after the callback has returned.
      let done = 0
      await sbx.commands.run('echo a; sleep 0.1; echo b', { onStdout: () => new Promise((r) => setTimeout(() => r(done++), 100)) })
      assert.equal(done, 2)
    }),

  environment: async (e2b, assert) => {
    await within(
      e2b,
      async (sbx) => {
        const show = (opts) => sbx.commands.run('echo "$E2B_SANDBOX $E2B_SANDBOX_ID $E2B_TEMPLATE_ID $MINE $OTHER"', opts)
        assert.equal((await show()).stdout, `true ${sbx.sandboxId} base create create\n`)
        assert.equal((await show({ envs: { MINE: 'run' } })).stdout, `true ${sbx.sandboxId} base run create\n`)
        const who = (await sbx.commands.run('echo $USER $LOGNAME $(id -un) $HOME $PWD')).stdout.trim().split(' ')
        assert.deepEqual([who[1], who[4]], [who[0], who[3]])
        const term = await new Promise((resolve, reject) => {
          let seen = ''
          const got = (d) => (seen += text(d)).includes('>>') && resolve(seen)
          sbx.pty
            .create({ cols: 80, rows: 24, cwd: '/tmp', envs: { MINE: 'pty' }, onData: got })
            .then((h) => sbx.pty.sendInput(h.pid, bytes('echo "<$MINE $OTHER $PWD $TERM $LANG>">/dev/stdout; echo ">"">"\n')))
            .catch(reject)
        })
        assert.match(term, /<pty create \/tmp xterm-256color C.UTF-8>/)
      },
      { envs: { MINE: 'create', OTHER: 'create' } },
    )
  },

  terminals: (e2b, assert) =>
    within(e2b, async (sbx) => {
      let [one, two] = ['', '']
      const h = await sbx.pty.create({ cols: 80, rows: 24, timeoutMs: 0, requestTimeoutMs: 10_000, onData: (d) => (one += text(d)) })
      const again = await sbx.pty.connect(h.pid, { timeoutMs: 0, onData: (d) => (two += text(d)) })
      await sbx.pty.sendInput(h.pid, bytes('echo a""b\n'), { requestTimeoutMs: 10_000 })
      await until('both to see it', () => one.includes('ab\r\n') && two.includes('ab\r\n'))
      await again.disconnect()
      assert.ok((await sbx.commands.list()).some((p) => p.pid === h.pid))
      assert.equal(await sbx.commands.kill(h.pid), true)
      await assert.rejects(h.wait())
      await assert.rejects(sbx.pty.sendInput(h.pid, bytes('x')), e2b.NotFoundError)
      await assert.rejects(sbx.pty.resize(h.pid, { cols: 1, rows: 1 }), e2b.NotFoundError)
      await assert.rejects(sbx.pty.connect(4194301, { onData: () => {} }), e2b.NotFoundError)
      const bound = await sbx.pty.create({ cols: 80, rows: 24, timeoutMs: 700, onData: () => {} })
      await assert.rejects(bound.wait(), e2b.TimeoutError)
    }),

  content: (e2b, assert, pkg) =>
    within(e2b, async (sbx) => {
      const all = Uint8Array.from({ length: 100_000 }, (_, i) => i * 7)
      const stream = () => new Blob([all]).stream()
      const same = async (path) => assert.deepEqual(await sbx.files.read(path, { format: 'bytes' }), all, path)
      await sbx.files.write('buffer', all.buffer)
      await same('buffer')
      await sbx.files.write('stream', stream())
      await same('stream')
      await sbx.files.write('octets', stream(), { useOctetStream: true })
      await same('octets')
      await sbx.files.write('zipped', stream(), { gzip: true })
      await same('zipped')
      await sbx.files.write('zipped-form', new Blob([all]), { gzip: true, useOctetStream: false })
      await same('zipped-form')
      const size = await sbx.commands.run('stat -c %s buffer stream octets zipped zipped-form | sort -u')
      assert.equal(size.stdout, '100000\n')
      for (const format of ['bytes', 'blob', 'stream', 'text']) {
        const got = await sbx.files.read('zipped', { format, gzip: true, requestTimeoutMs: 10_000 })
        const size = format === 'stream' ? (await new Response(got).arrayBuffer()).byteLength : got.size ?? got.length
        if (format !== 'text') assert.equal(size, all.length, format)
      }
      // After an abandoned stream, the next read works.
      const half = await sbx.files.read('buffer', { format: 'stream', streamIdleTimeoutMs: 10_000 })
      await half.cancel()
      await same('buffer')

      const wrote = await sbx.files.writeFiles?.([
        { path: 'many/a', data: 'a' },
        { path: 'many/ü b', data: new Blob(['b']) },
        { path: 'many/c', data: all.buffer },
        { path: 'many/d', data: stream() },
      ])
      assert.deepEqual(wrote?.map((w) => [w.name, w.type]), ['a', 'ü b', 'c', 'd'].map((n) => [n, 'file']))
      assert.equal(await sbx.files.read('many/ü b'), 'b')
      await same('many/d')
      assert.deepEqual(await sbx.files.write([]), [])
      await assert.rejects(sbx.files.write('many', 'over a directory'))
      await assert.rejects(sbx.files.write('many/a/b', 'below a file'))
      await assert.rejects(sbx.files.write('other', 'x', { user: 'nobody-there' }), e2b.AuthenticationError)
      await assert.rejects(sbx.files.read('many/a', { user: 'nobody-there' }), e2b.AuthenticationError)

      if (pkg !== 'e2b') return
      const metadata = { Kind: 'report', n: '1 2' }
      const made = await sbx.files.write('told', 'x', { metadata })
      assert.deepEqual(made.metadata, { kind: 'report', n: '1 2' })
      assert.deepEqual((await sbx.files.getInfo('told')).metadata, { kind: 'report', n: '1 2' })
      assert.deepEqual((await sbx.files.list('.')).find((e) => e.name === 'told').metadata, { kind: 'report', n: '1 2' })
      await sbx.files.write('told', 'y')
      assert.equal((await sbx.files.getInfo('told')).metadata, undefined)
      await assert.rejects(sbx.files.write('told', 'z', { metadata: { k: 'ü' } }))
    }),

  entries: (e2b, assert) =>
    within(e2b, async (sbx) => {
      await sbx.commands.run('mkdir -p d/e/f && echo x > d/x && chmod 751 d/x && ln -s x d/link && ln -s none d/broken && ln -s e d/dir && ln -s loop d/loop')
      const list = await sbx.files.list('d')
      // Dangling links have no type, and the SDK skips them.
      assert.deepEqual(list.map((e) => e.name), ['dir', 'e', 'link', 'x'])
      const by = Object.fromEntries(list.map((e) => [e.name, e]))
      const x = by.x
      assert.deepEqual([x.type, x.size, x.mode, x.permissions], ['file', 2, 0o751, '-rwxr-x--x'])
      assert.ok(x.owner && x.group && x.modifiedTime instanceof Date)
      assert.equal(x.symlinkTarget, undefined)
      assert.equal(by.link.type, 'file')
      assert.ok(by.link.symlinkTarget.endsWith('/d/x'), by.link.symlinkTarget)
      assert.equal(by.dir.type, 'dir')
      assert.equal((await sbx.files.list('d', { depth: 2 })).some((e) => e.path.endsWith('d/e/f')), true)
      assert.equal((await sbx.files.list('d', { depth: 1 })).some((e) => e.path.endsWith('d/e/f')), false)
      await assert.rejects(sbx.files.list('d', { depth: 0 }), e2b.InvalidArgumentError)
      assert.equal(await sbx.files.exists('d/broken'), true)
      assert.equal((await sbx.files.getInfo('~/d/x', { requestTimeoutMs: 10_000 })).path, x.path)
      await assert.rejects(sbx.files.getInfo('d/none'), e2b.NotFoundError)
      await assert.rejects(sbx.files.makeDir('d/x'), e2b.InvalidArgumentError)
      await sbx.files.rename('d/x', 'd/e/f/y')
      await sbx.files.write('d/other', '1')
      await sbx.files.rename('d/other', 'd/e/f/y')
      assert.equal(await sbx.files.read('d/e/f/y'), '1')
      await assert.rejects(sbx.files.read('d/loop'))
      await sbx.files.remove('d/link')
      await sbx.files.remove('d')
      assert.equal(await sbx.files.exists('d'), false)
    }),

  watchers: async (e2b, assert, pkg) => {
    const exits = []
    const exit = (name) => (err) => void exits.push([name, err?.constructor.name])
    await within(e2b, async (sbx) => {
      await sbx.files.makeDir('w/sub')
      const seen = []
      const flat = await sbx.files.watchDir('w', (e) => void seen.push(e), { includeEntry: true, timeoutMs: 0, onExit: exit('stopped') })
      await sbx.files.write('w/sub/below', 'x')
      await sbx.files.write('w/f', 'x')
      await until('the write', () => seen.some((e) => e.type === 'write' && e.name === 'f'))
      assert.ok(!seen.some((e) => e.name.includes('below')), JSON.stringify(seen))
      if (pkg === 'e2b') {
        const entry = seen.find((e) => e.type === 'write').entry
        assert.ok(entry?.path.endsWith('/w/f'), JSON.stringify(seen))
        assert.deepEqual([entry.name, entry.type, entry.size], ['f', 'file', 1])
      }
      const deep = []
      await sbx.files.watchDir('w', (e) => void deep.push(`${e.type} ${e.name}`), { recursive: true, timeoutMs: 0, onExit: exit('killed') })
      await sbx.files.makeDir('w/new/er')
      await sbx.files.write('w/new/er/g', 'x')
      await until('what is below', () => deep.includes('write new/er/g'))
      await sbx.commands.run('chmod 600 w/f')
      await until('a change of mode', () => deep.includes('chmod f'))
      await flat.stop()
      await sbx.files.watchDir('w', () => {}, { timeoutMs: 3_000, onExit: exit('timed') })
      await until('both ends', () => exits.length === 2)
      await assert.rejects(sbx.files.watchDir('w/f', () => {}), e2b.InvalidArgumentError)
    })
    await until('the last end', () => exits.length === 3)
    const names = Object.fromEntries(exits)
    assert.deepEqual(Object.keys(names).sort(), ['killed', 'stopped', 'timed'])
    assert.deepEqual([names.timed, names.killed], ['TimeoutError', 'TimeoutError'])
  },

  async pages(e2b, assert) {
    const tag = { tag: `pages-${process.pid}-${Math.random()}` }
    const before = new Date()
    const made = []
    for (let i = 0; i < 3; i++) made.push(await e2b.Sandbox.create('base', { timeoutMs: 60_000, metadata: tag }))
    const ids = made.map((s) => s.sandboxId)
    const list = async (opts) => {
      const out = []
      for (const pages = e2b.Sandbox.list({ ...opts, query: { metadata: tag, ...opts?.query } }); pages.hasNext; ) out.push(...(await pages.nextItems()))
      return out.map((s) => s.sandboxId)
    }
    try {
      assert.deepEqual(await list(), ids.toReversed())
      assert.deepEqual(await list({ limit: 1 }), ids.toReversed())
      if (e2b.Sandbox.getFullInfo) assert.equal((await e2b.Sandbox.getFullInfo(ids[0])).sandboxId, ids[0])
      const first = e2b.Sandbox.list({ query: { metadata: tag }, limit: 2 })
      await first.nextItems()
      assert.deepEqual(await list({ limit: 2, nextToken: first.nextToken }), [ids[0]])
      if (e2b.E2B) {
        assert.deepEqual(await list({ order: 'asc' }), ids)
        assert.deepEqual(await list({ order: 'asc', limit: 2 }), ids)
        assert.deepEqual(await list({ query: { startedAfter: before } }), ids.toReversed())
        assert.deepEqual(await list({ query: { startedAfter: new Date(Date.now() + 60_000) } }), [])
        assert.deepEqual(await list({ query: { template: 'base' } }), ids.toReversed())
        assert.deepEqual(await list({ query: { template: 'other' } }), [])
      }
      await made[1].pause()
      assert.deepEqual(await list({ query: { state: ['paused'] } }), [ids[1]])
      assert.deepEqual(await list({ query: { state: ['running'] } }), [ids[2], ids[0]])
      assert.deepEqual(await list({ query: { state: ['running', 'paused'] } }), ids.toReversed())
      await assert.rejects(e2b.Sandbox.list({ nextToken: 'nonsense' }).nextItems())
      await assert.rejects(e2b.Sandbox.list({ limit: 1000 }).nextItems())

      await e2b.Sandbox.setTimeout(ids[0], 600_000, { requestTimeoutMs: 10_000 })
      const info = await e2b.Sandbox.getInfo(ids[0])
      assert.ok(info.endAt - Date.now() > 500_000)
      assert.deepEqual([info.templateId, info.envdVersion, info.state, info.metadata], ['base', '0.6.13', 'running', tag])
      assert.ok(info.cpuCount > 0 && info.memoryMB > 0 && Math.abs(info.startedAt - before) < 60_000)
      // Connecting can only extend the remaining time.
      await e2b.Sandbox.connect(ids[0], { timeoutMs: 10_000 })
      assert.ok((await e2b.Sandbox.getInfo(ids[0])).endAt - info.endAt >= 0)
      assert.equal(await e2b.Sandbox.pause(ids[0]), true)
      assert.equal(await e2b.Sandbox.pause(ids[0]), false)
      await assert.rejects(e2b.Sandbox.pause('i00000000000000000000'), e2b.NotFoundError)
      await assert.rejects(e2b.Sandbox.setTimeout('i00000000000000000000', 1_000), e2b.NotFoundError)
    } finally {
      await Promise.all(made.map((s) => s.kill()))
    }
    assert.deepEqual(await list(), [])
  },

  measured: (e2b, assert) =>
    within(e2b, async (sbx) => {
      await until('metrics', async () => (await sbx.getMetrics()).length > 1)
      const all = await sbx.getMetrics({ start: new Date(Date.now() - 3_600_000), end: new Date(Date.now() + 1_000) })
      assert.ok(all.length > 1)
      assert.deepEqual(Object.keys(all[0]).sort(), ['cpuCount', 'cpuUsedPct', 'diskTotal', 'diskUsed', 'memCache', 'memTotal', 'memUsed', 'timestamp'].filter((k) => k in all[0]))
      assert.deepEqual(await sbx.getMetrics({ start: new Date(Date.now() - 7_200_000), end: new Date(Date.now() - 3_600_000) }), [])
      assert.deepEqual(all.map((m) => +m.timestamp), all.map((m) => +m.timestamp).toSorted((a, b) => a - b))
    }),

  addresses: (e2b, assert) =>
    within(e2b, async (sbx) => {
      await sbx.files.write('/tmp/down.txt', 'words')
      const get = async (url, init) => {
        const res = await fetch(url, init)
        return [res.status, await res.text()]
      }
      assert.deepEqual(await get(await sbx.downloadUrl('/tmp/down.txt')), [200, 'words'])
      assert.deepEqual(await get(await sbx.downloadUrl('/tmp/down.txt', { useSignatureExpiration: 60, user: 'user' })), [200, 'words'])
      const other = (await sbx.downloadUrl('/tmp/down.txt')).replace('down.txt', 'other.txt')
      assert.deepEqual((await get(other))[0], 401)
      const form = new FormData()
      form.append('file', new Blob(['anywhere']), '/tmp/by form.txt')
      assert.equal((await get(await sbx.uploadUrl(), { method: 'POST', body: form }))[0], 200)
      assert.equal(await sbx.files.read('/tmp/by form.txt'), 'anywhere')
      assert.equal((await get(await sbx.downloadUrl('/tmp/x'), { method: 'POST', body: form }))[0], 401)
      const raw = await fetch(await sbx.downloadUrl('/tmp/down.txt'), { headers: { range: 'bytes=1-2' } })
      assert.deepEqual([raw.status, await raw.text(), raw.headers.get('content-range')], [206, 'or', 'bytes 1-2/5'])
    }),

  async snapshots(e2b, assert, pkg) {
    const name = `snap-${process.pid}-${pkg.replace(/[^a-z0-9]/g, '')}`
    await within(e2b, async (sbx) => {
      await sbx.files.write('f', 'one')
      const first = await sbx.createSnapshot({ name })
      assert.ok(first.names?.some((n) => n.includes(name)) ?? true, JSON.stringify(first))
      await sbx.files.write('f', 'two')
      const second = await sbx.createSnapshot({ name })
      assert.deepEqual([first.snapshotId, second.snapshotId], [`${name}:default`, `${name}:default`])
      const mine = await sbx.listSnapshots().nextItems()
      assert.equal(mine.length, 1, JSON.stringify(mine))
      assert.ok(mine.some((s) => s.snapshotId === second.snapshotId), JSON.stringify([mine, first, second]))
      const named = await e2b.Sandbox.create(name, { timeoutMs: 60_000 })
      assert.equal(await named.files.read('f'), 'two')
      await named.kill()
      if (e2b.E2B) {
        const found = await e2b.Sandbox.listSnapshots({ name }).nextItems()
        assert.equal(found.length, 1, JSON.stringify(found))
        assert.deepEqual(await e2b.Sandbox.listSnapshots({ name: name + 'x' }).nextItems(), [])
        assert.deepEqual(await e2b.Sandbox.listSnapshots({ sandboxId: 'i00000000000000000000' }).nextItems(), [])
      }
      for (const s of await sbx.listSnapshots().nextItems()) assert.equal(await e2b.Sandbox.deleteSnapshot(s.snapshotId), true)
      await assert.rejects(e2b.Sandbox.create(name))
    })
  },

  git: (e2b, assert) =>
    within(e2b, async (sbx) => {
      const { git } = sbx
      if (!git) return
      await git.configureUser('A B', 'a@b.test')
      await git.init('origin.git', { bare: true, initialBranch: 'main' })
      await git.init('repo', { initialBranch: 'main' })
      const home = (await sbx.commands.run('pwd')).stdout.trim()
      await sbx.files.write('repo/a.txt', 'one\n')
      let status = await git.status('repo')
      assert.deepEqual([status.currentBranch, status.fileStatus.map((f) => [f.name, f.status])], ['main', [['a.txt', 'untracked']]])
      await git.add('repo')
      await git.commit('repo', 'first "quoted" $message', { authorName: 'C', authorEmail: 'c@d.test' })
      assert.equal((await sbx.commands.run('git -C repo log --format=%s:%an')).stdout, 'first "quoted" $message:C\n')
      await git.createBranch('repo', 'work')
      await git.checkoutBranch('repo', 'main')
      assert.deepEqual((await git.branches('repo')).branches.toSorted(), ['main', 'work'])
      await git.deleteBranch('repo', 'work')
      await git.remoteAdd('repo', 'origin', `file://${home}/origin.git`)
      assert.equal(await git.remoteGet('repo', 'origin'), `file://${home}/origin.git`)
      await git.push('repo', { remote: 'origin', branch: 'main', setUpstream: true })
      await git.clone(`file://${home}/origin.git`, { path: 'copy', branch: 'main', depth: 1 })
      assert.equal(await sbx.files.read('copy/a.txt'), 'one\n')
      await sbx.files.write('repo/a.txt', 'two\n')
      await git.restore('repo', { paths: ['a.txt'] })
      assert.equal(await sbx.files.read('repo/a.txt'), 'one\n')
      await git.setConfig('x.y', 'z', { scope: 'local', path: 'repo' })
      assert.equal(await git.getConfig('x.y', { scope: 'local', path: 'repo' }), 'z')
      await git.pull('copy')
      await assert.rejects(git.clone(`file://${home}/none.git`, { path: 'bad' }))
    }),

  // The client class and the connection options work.
  async clients(e2b, assert) {
    await assert.rejects(e2b.Sandbox.create('base', { apiUrl: 'http://127.0.0.1:9', requestTimeoutMs: 2_000 }))
    const sbx = await e2b.Sandbox.create({ timeoutMs: 60_000, headers: { 'X-Mine': 'a' }, secure: false })
    assert.equal((await sbx.getInfo()).templateId, 'base')
    await sbx.kill({ requestTimeoutMs: 10_000 })
    if (!e2b.E2B) return
    const client = new e2b.E2B({ apiKey: process.env.E2B_API_KEY, apiUrl: process.env.E2B_API_URL })
    const other = await client.Sandbox.create({ timeoutMs: 60_000 })
    assert.equal((await other.commands.run('echo by client')).stdout, 'by client\n')
    assert.equal(await client.Sandbox.kill(other.sandboxId), true)
  },
}
