// Common uses of the SDK. Each case has a sandbox of its own.

// within creates a sandbox for fn and kills it.
export async function within({ Sandbox }, fn, opts = {}) {
  const sbx = await Sandbox.create('base', { timeoutMs: 120_000, ...opts })
  try {
    await fn(sbx)
  } finally {
    await sbx.kill()
  }
}

// until polls until a condition is true.
export async function until(what, cond, ms = 30_000) {
  const end = Date.now() + ms
  while (!(await cond())) {
    if (Date.now() > end) throw new Error('timed out: ' + what)
    await new Promise((r) => setTimeout(r, 20))
  }
}

// parallel calls fn n times, at most wide at a time, and returns the results.
export async function parallel(n, wide, fn) {
  const all = []
  let next = 0
  await Promise.all(Array.from({ length: wide }, async () => {
    while (next < n) all.push(await fn(next++))
  }))
  return all
}

export const text = (bytes) => new TextDecoder().decode(bytes)
export const bytes = (s) => new TextEncoder().encode(s)

export const cases = {
  async lifecycle({ Sandbox, SandboxNotFoundError, NotFoundError }, assert) {
    const sbx = await Sandbox.create('base', { timeoutMs: 60_000, metadata: { who: 'sdk a&b=c %', n: '1' }, envs: { FROM: 'create' } })
    assert.match(sbx.sandboxId, /^[a-z0-9]+$/)
    assert.equal(await sbx.isRunning(), true)
    const info = await sbx.getInfo()
    assert.equal(info.sandboxId, sbx.sandboxId)
    assert.equal(info.state, 'running')
    assert.deepEqual(info.metadata, { who: 'sdk a&b=c %', n: '1' })
    await sbx.setTimeout(600_000)
    const later = await sbx.getInfo()
    assert.ok(later.endAt - info.endAt > 400_000, `endAt moved by ${later.endAt - info.endAt} ms`)
    assert.equal((await sbx.commands.run('echo $FROM')).stdout, 'create\n')

    const again = await Sandbox.connect(sbx.sandboxId)
    assert.equal((await again.commands.run('echo again')).stdout, 'again\n')

    assert.equal(await sbx.kill(), true)
    assert.equal(await sbx.isRunning(), false)
    assert.equal(await Sandbox.kill(sbx.sandboxId), false)
    await assert.rejects(Sandbox.getInfo ? Sandbox.getInfo(sbx.sandboxId) : sbx.getInfo(), NotFoundError ?? SandboxNotFoundError ?? Error)
    await assert.rejects(Sandbox.connect(sbx.sandboxId))
    await assert.rejects(sbx.commands.run('true'))
  },

  async list(e2b, assert) {
    const tag = 'list-' + process.pid + '-' + Math.random()
    const made = []
    try {
      for (let i = 0; i < 3; i++) made.push(await e2b.Sandbox.create('base', { timeoutMs: 60_000, metadata: { tag, odd: 'x=y&z %2F' } }))
      const found = []
      const pages = e2b.Sandbox.list({ query: { metadata: { tag, odd: 'x=y&z %2F' }, state: ['running'] }, limit: 2 })
      while (pages.hasNext) {
        const page = await pages.nextItems()
        assert.ok(page.length <= 2)
        found.push(...page)
      }
      assert.deepEqual(found.map((s) => s.sandboxId).sort(), made.map((s) => s.sandboxId).sort())
      const none = e2b.Sandbox.list({ query: { metadata: { tag: tag + 'x' } } })
      assert.deepEqual(await none.nextItems(), [])
    } finally {
      await Promise.all(made.map((s) => s.kill()))
    }
  },

  run: (e2b, assert) =>
    within(e2b, async (sbx) => {
      const seen = { out: '', err: '' }
      const res = await sbx.commands.run('for i in 1 2 3; do echo out $i; echo err $i >&2; done', {
        onStdout: (d) => (seen.out += d),
        onStderr: (d) => (seen.err += d),
      })
      assert.deepEqual([res.exitCode, res.stdout, res.stderr], [0, 'out 1\nout 2\nout 3\n', 'err 1\nerr 2\nerr 3\n'])
      assert.deepEqual(seen, { out: res.stdout, err: res.stderr })

      await assert.rejects(sbx.commands.run('echo partial; echo bad >&2; exit 3'), (err) => {
        assert.ok(err instanceof e2b.CommandExitError, String(err))
        assert.deepEqual([err.exitCode, err.stdout, err.stderr], [3, 'partial\n', 'bad\n'])
        return true
      })
      const env = await sbx.commands.run('echo "$A"; pwd', { envs: { A: 'ä\'" b' }, cwd: '/tmp' })
      assert.equal(env.stdout, 'ä\'" b\n/tmp\n')
      await assert.rejects(sbx.commands.run('true', { cwd: '/nope' }), e2b.InvalidArgumentError)
      const runes = await sbx.commands.run("printf '\\xe2\\x82'; sleep 0.3; printf '\\xac\\n'")
      assert.equal(runes.stdout, '€\n')
    }),

  async user(e2b, assert) {
    if (process.env.MILLRACE_E2E_ROOT !== '1') return
    await within(e2b, async (sbx) => {
      assert.equal((await sbx.commands.run('id -un', { user: 'root' })).stdout, 'root\n')
      assert.equal((await sbx.commands.run('id -un', { user: 'user' })).stdout, 'user\n')
      await assert.rejects(sbx.commands.run('true', { user: 'nobodyhere' }))
      const { stdout } = await sbx.commands.run('sudo -n id -un; sudo su user -c "id -un"; echo export LATE=1 | sudo tee /etc/profile.d/late.sh; ls -A')
      assert.equal(stdout, 'root\nuser\nexport LATE=1\n.bash_logout\n.bashrc\n.profile\n')
      await assert.rejects(sbx.commands.run('test $LATE = 1 && sudo -u www-data sudo id'), { exitCode: 1, stderr: 'www-data is not in the sudoers file.\n' })
    })
  },

  background: (e2b, assert) =>
    within(e2b, async (sbx) => {
      const h = await sbx.commands.run('i=0; until [ -e stop ]; do i=$((i+1)); echo tick $i; sleep 0.05; done', { background: true })
      const procs = await sbx.commands.list()
      assert.ok(procs.some((p) => p.pid === h.pid && p.cmd === '/bin/bash'), JSON.stringify(procs))
      await until('output', () => h.stdout.includes('tick 3'))
      await h.disconnect()
      await sbx.files.write('stop', '')
      // Earlier output is replayed: no tick is missing.
      let seen = ''
      const back = await sbx.commands.connect(h.pid, { onStdout: (d) => (seen += d) })
      const res = await back.wait()
      const want = Array.from({ length: res.stdout.split('\n').length - 1 }, (_, i) => `tick ${i + 1}\n`).join('')
      assert.equal(res.stdout, want)
      assert.equal(seen, want)
      assert.equal(res.exitCode, 0)
      // Also after the end.
      const after = await (await sbx.commands.connect(h.pid)).wait()
      assert.equal(after.stdout, want)
    }),

  kill: (e2b, assert) =>
    within(e2b, async (sbx) => {
      const h = await sbx.commands.run('echo up; sleep 100', { background: true })
      await until('output', () => h.stdout === 'up\n')
      assert.equal(await sbx.commands.kill(h.pid), true)
      await assert.rejects(h.wait(), (err) => {
        assert.ok(err instanceof e2b.CommandExitError, String(err))
        assert.notEqual(err.exitCode, 0)
        assert.equal(err.stdout, 'up\n')
        return true
      })
      assert.equal(await sbx.commands.kill(h.pid), false)
      assert.deepEqual(await sbx.commands.list(), [])
      await assert.rejects(sbx.commands.connect(4194301), e2b.NotFoundError)
    }),

  stdin: (e2b, assert) =>
    within(e2b, async (sbx) => {
      const h = await sbx.commands.run('cat', { background: true, stdin: true })
      await sbx.commands.sendStdin(h.pid, 'one ')
      await sbx.commands.sendStdin(h.pid, 'two €\n')
      await until('echo', () => h.stdout === 'one two €\n')
      if (sbx.commands.closeStdin) {
        await sbx.commands.closeStdin(h.pid)
        const res = await h.wait()
        assert.deepEqual([res.exitCode, res.stdout], [0, 'one two €\n'])
      } else {
        await h.kill()
      }
      const deaf = await sbx.commands.run('sleep 60', { background: true })
      await assert.rejects(sbx.commands.sendStdin(deaf.pid, 'x'))
      await deaf.kill()
    }),

  pty: (e2b, assert) =>
    within(e2b, async (sbx) => {
      let seen = ''
      const h = await sbx.pty.create({ cols: 80, rows: 24, timeoutMs: 60_000, onData: (d) => (seen += text(d)) })
      await sbx.pty.sendInput(h.pid, bytes('stty size; echo "TERM=$TERM"\n'))
      await until('size', () => seen.includes('24 80') && seen.includes('TERM=xterm'))
      await sbx.pty.resize(h.pid, { cols: 100, rows: 50 })
      await sbx.pty.sendInput(h.pid, bytes('stty size\n'))
      await until('new size', () => seen.includes('50 100'))
      await sbx.pty.sendInput(h.pid, bytes('sh -c \'echo ru""ns; exec sleep 100\'\n'))
      await until('sleep', () => seen.includes('runs\r\n'))
      await sbx.pty.sendInput(h.pid, bytes('\x03echo interrupted-$?\n'))
      await until('ctrl-C', () => seen.includes('interrupted-130'))
      assert.equal(await sbx.pty.kill(h.pid), true)
      await assert.rejects(h.wait())
      assert.equal(await sbx.pty.kill(h.pid), false)

      const x = await sbx.pty.create({ cols: 80, rows: 24, onData: () => {} })
      await sbx.pty.sendInput(x.pid, bytes('exit 5\n'))
      await assert.rejects(x.wait(), (err) => err.exitCode === 5)
    }),

  timeouts: (e2b, assert) =>
    within(e2b, async (sbx) => {
      const began = Date.now()
      await assert.rejects(sbx.commands.run('echo before; sleep 60', { timeoutMs: 700 }), (err) => {
        assert.ok(err instanceof e2b.TimeoutError, String(err))
        return true
      })
      assert.ok(Date.now() - began < 30_000)
      // The command has ended, not only its stream.
      await until('the catalog is empty', async () => (await sbx.commands.list()).length === 0)
      const res = await sbx.commands.run('sleep 1.2; echo no limit', { timeoutMs: 0 })
      assert.equal(res.stdout, 'no limit\n')
    }),

  killed: async (e2b, assert) => {
    const sbx = await e2b.Sandbox.create('base', { timeoutMs: 60_000 })
    const h = await sbx.commands.run('echo up; sleep 100', { background: true })
    await until('output', () => h.stdout === 'up\n')
    const rejected = assert.rejects(h.wait(), (err) => err instanceof e2b.TimeoutError && /killed or reached its end of life/.test(err.message))
    await sbx.kill()
    await rejected
  },

  expiry: async (e2b, assert) => {
    const sbx = await e2b.Sandbox.create('base', { timeoutMs: 60_000 })
    const h = await sbx.commands.run('sleep 100', { background: true })
    const ended = h.wait().then(
      () => 'ended well',
      (err) => err,
    )
    await sbx.setTimeout(1_000)
    await until('the end', async () => !(await sbx.isRunning()))
    const err = await ended
    assert.ok(err instanceof Error, String(err))
    await assert.rejects(sbx.commands.run('true'))
  },

  pause: (e2b, assert) =>
    within(e2b, async (sbx) => {
      const h = await sbx.commands.run('for i in $(seq 1 60); do echo tick $i; sleep 0.05; done', { background: true })
      await until('output', () => h.stdout.includes('tick 3\n'))
      assert.equal(await sbx.pause(), true)
      assert.equal(await sbx.pause(), false)
      assert.equal(await sbx.isRunning(), false)
      const info = await sbx.getInfo()
      assert.equal(info.state, 'paused')
      await assert.rejects(sbx.commands.run('true'))
      const listed = await e2b.Sandbox.list({ query: { state: ['paused'] } }).nextItems()
      assert.ok(listed.some((s) => s.sandboxId === sbx.sandboxId))
      const again = await e2b.Sandbox.connect(sbx.sandboxId, { timeoutMs: 60_000 })
      assert.equal(await again.isRunning(), true)
      // The process continued: no tick is missing or repeated.
      const res = await (await again.commands.connect(h.pid)).wait()
      assert.equal(res.stdout, Array.from({ length: 60 }, (_, i) => `tick ${i + 1}\n`).join(''))
      assert.equal((await again.commands.run('echo on')).stdout, 'on\n')
    }),

  autopause: (e2b, assert) =>
    within(
      e2b,
      async (sbx) => {
        const info = await sbx.getInfo()
        assert.deepEqual(info.lifecycle, { onTimeout: 'pause', autoResume: true })
        await sbx.setTimeout(1_000)
        await until('the pause', async () => (await sbx.getInfo()).state === 'paused')
        assert.equal(await sbx.isRunning(), true) // the check resumes it, as in E2B
        await sbx.setTimeout(1_000)
        await until('the next pause', async () => (await sbx.getInfo()).state === 'paused')
        assert.equal((await sbx.commands.run('echo woken')).stdout, 'woken\n')
        assert.equal((await sbx.getInfo()).state, 'running')
      },
      { lifecycle: { onTimeout: 'pause', autoResume: true } },
    ),

  reboot: async (e2b, assert, pkg) => {
    const begin = async (sbx, mark) => {
      await sbx.commands.run(`echo ${mark} > ~/kept; (setsid sleep 1234 >/dev/null 2>&1 &)`)
      return sbx.commands.run('sleep 1000', { background: true, timeoutMs: 0 })
    }
    const fresh = async (sbx, mark) => {
      assert.equal((await sbx.commands.list()).length, 0)
      const res = await sbx.commands.run('cat ~/kept; ls /proc/[0-9]*/exe -l 2>/dev/null | grep -c sleep || true')
      assert.equal(res.stdout, `${mark}\n0\n`)
    }
    const auto = { lifecycle: { onTimeout: { action: 'pause', keepMemory: false } } }
    await within(
      e2b,
      async (sbx) => {
        let h = await begin(sbx, 'one')
        assert.equal(await sbx.pause({ keepMemory: false }), true)
        await assert.rejects(h.wait())
        await sbx.connect()
        await fresh(sbx, 'one')
        if (pkg === 'e2b') { // older versions have no onResume
          h = await begin(sbx, 'two')
          assert.equal(await sbx.pause(), true)
          await sbx.connect({ onResume: 'reboot' })
          await assert.rejects(h.wait())
          await fresh(sbx, 'two')
        }
        h = await begin(sbx, 'three')
        await sbx.connect({ onResume: 'reboot' }) // no effect on a running sandbox
        assert.equal((await sbx.commands.list()).length, 1)
        await sbx.setTimeout(1_000)
        await until('the pause', async () => (await sbx.getInfo()).state === 'paused')
        await sbx.connect({ timeoutMs: 60_000 })
        await fresh(sbx, 'three')
        await assert.rejects(h.wait())
      },
      auto,
    )
  },

  // A file that is open in another process or has hard links keeps its inode.
  inplace: (e2b, assert) =>
    within(e2b, async (sbx) => {
      await sbx.files.write('log', 'one\n')
      await sbx.commands.run('ln log other')
      await sbx.files.write('log', 'two\n')
      assert.equal(await sbx.files.read('other'), 'two\n')
      await sbx.files.write('followed', 'one\n')
      const tail = await sbx.commands.run('tail -n +1 -f followed', { background: true })
      await until('the first line', async () => tail.stdout.includes('one\n'))
      await sbx.files.write('followed', 'one\ntwo\n')
      await until('the second line', async () => tail.stdout.includes('two\n'))
      assert.equal(tail.stdout, 'one\ntwo\n')
      await tail.kill()
      await assert.rejects(tail.wait())
    }),

  // On a busy machine one of the five requests may start after the pause is over; then the
  // pauses are not concurrent, and the round is repeated.
  pauses: (e2b, assert) =>
    within(e2b, async (sbx) => {
      let all = []
      for (let round = 0; round < 4 && !(all.length && all.every(Boolean)); round++) {
        if (round) await sbx.connect()
        all = await Promise.all(Array.from({ length: 5 }, () => sbx.pause()))
      }
      assert.deepEqual(all, Array(5).fill(true))
      assert.equal(await sbx.pause(), false)
    }),

  snapshot: (e2b, assert) =>
    within(e2b, async (sbx) => {
      await sbx.commands.run('echo then > ~/file')
      const snap = await sbx.createSnapshot()
      await sbx.commands.run('echo now > ~/file')
      const listed = await sbx.listSnapshots().nextItems()
      assert.deepEqual(listed.map((s) => s.snapshotId), [snap.snapshotId])
      const other = await e2b.Sandbox.create(snap.snapshotId, { timeoutMs: 60_000 })
      assert.equal((await other.commands.run('cat ~/file')).stdout, 'then\n')
      await other.kill()
      assert.equal(await e2b.Sandbox.deleteSnapshot(snap.snapshotId), true)
      assert.equal(await e2b.Sandbox.deleteSnapshot(snap.snapshotId), false)
      await assert.rejects(e2b.Sandbox.create(snap.snapshotId))
    }),

  fork: (e2b, assert) =>
    within(e2b, async (sbx) => {
      await sbx.commands.run('echo parent > ~/file')
      const forks = await sbx.fork({ count: 2, timeoutMs: 60_000 })
      assert.equal(forks.length, 2)
      for (const [i, f] of forks.entries()) {
        assert.ok(!(f instanceof Error), String(f))
        assert.equal((await f.commands.run(`cat ~/file; echo ${i} >> ~/file; cat ~/file`)).stdout, `parent\nparent\n${i}\n`)
      }
      assert.equal((await sbx.commands.run('cat ~/file')).stdout, 'parent\n')
      await Promise.all(forks.map((f) => f.kill()))
    }),

  metrics: (e2b, assert) =>
    within(e2b, async (sbx) => {
      await sbx.commands.run('for i in $(seq 1 20000); do :; done; head -c 1000000 /dev/zero > ~/file')
      let seen = []
      await until('metrics', async () => (seen = await sbx.getMetrics()).length > 0)
      const m = seen.at(-1)
      assert.ok(m.diskUsed > 0 && m.diskTotal >= m.diskUsed, JSON.stringify(m))
      assert.ok(m.memUsed > 0 && m.memTotal >= m.memUsed && m.cpuCount > 0 && m.cpuUsedPct >= 0, JSON.stringify(m))
      assert.ok(Math.abs(Date.now() - m.timestamp.getTime()) < 20_000, String(m.timestamp))
    }),

  large: (e2b, assert) =>
    within(e2b, async (sbx) => {
      const res = await sbx.commands.run('seq 1 300000')
      assert.equal(res.stdout.length, 1988895)
      assert.ok(res.stdout.endsWith('\n300000\n'))
    }),

  many: (e2b, assert) =>
    within(e2b, async (sbx) => {
      const all = await Promise.all(Array.from({ length: 50 }, (_, i) => sbx.commands.run(`echo ${i}`)))
      assert.deepEqual(all.map((r) => r.stdout), all.map((_, i) => `${i}\n`))
    }),

  files: (e2b, assert) =>
    within(e2b, async (sbx) => {
      const dir = 'sdk-files'
      const info = await sbx.files.write(`${dir}/deep/er/a.txt`, 'hello ünïcode')
      assert.equal(info.name, 'a.txt')
      assert.ok(info.path.endsWith(`${dir}/deep/er/a.txt`) && info.path.startsWith('/'), info.path)
      assert.equal(await sbx.files.read(info.path), 'hello ünïcode')
      assert.equal(await sbx.files.read(`~/${dir}/deep/er/a.txt`), 'hello ünïcode')
      await sbx.files.write(info.path, '')
      assert.equal(await sbx.files.read(info.path), '')

      const all = bytes(Array.from({ length: 256 }, (_, i) => String.fromCharCode(i)).join(''))
      await sbx.files.write(`${dir}/bytes`, new Blob([all]))
      assert.deepEqual(await sbx.files.read(`${dir}/bytes`, { format: 'bytes' }), all)
      assert.deepEqual(new Uint8Array(await (await sbx.files.read(`${dir}/bytes`, { format: 'blob' })).arrayBuffer()), all)
      const chunks = []
      for await (const c of await sbx.files.read(`${dir}/bytes`, { format: 'stream' })) chunks.push(c)
      assert.deepEqual(new Uint8Array(Buffer.concat(chunks)), all)

      const many = Array.from({ length: 12 }, (_, i) => ({ path: `${dir}/many/${i}.txt`, data: `number ${i}` }))
      const made = await sbx.files.write(many)
      assert.deepEqual(made.map((m) => m.name).sort(), many.map((m) => m.path.split('/').pop()).sort())
      const listed = await sbx.files.list(`${dir}/many`)
      assert.deepEqual(listed.map((e) => e.name).sort(), many.map((m) => m.path.split('/').pop()).sort())
      assert.ok(listed.every((e) => e.type === 'file' && e.path.includes(`/${dir}/many/`)))
      assert.equal((await sbx.files.list(dir, { depth: 3 })).some((e) => e.name === 'a.txt'), true)

      assert.equal(await sbx.files.exists(`${dir}/bytes`), true)
      assert.equal(await sbx.files.exists(`${dir}/none`), false)
      const moved = await sbx.files.rename(`${dir}/bytes`, `${dir}/elsewhere/b`)
      assert.equal(moved.name, 'b')
      assert.equal(await sbx.files.exists(`${dir}/bytes`), false)
      const got = await sbx.files.getInfo(`${dir}/elsewhere/b`)
      assert.equal(got.size, all.length)
      assert.equal(got.type, 'file')
      assert.equal(got.permissions, '-rw-r--r--')
      assert.ok(Math.abs(Date.now() - got.modifiedTime.getTime()) < 120_000, String(got.modifiedTime))

      assert.equal(await sbx.files.makeDir(`${dir}/made`), true)
      assert.equal(await sbx.files.makeDir(`${dir}/made`), false)
      await sbx.files.remove(dir)
      assert.equal(await sbx.files.exists(dir), false)
      await sbx.files.remove(dir)

      await assert.rejects(sbx.files.read(`${dir}/none`), e2b.NotFoundError)
      await assert.rejects(sbx.files.list(`${dir}/none`), e2b.NotFoundError)
      await assert.rejects(sbx.files.list('/etc/hostname'), e2b.InvalidArgumentError)
      await assert.rejects(sbx.files.read('/tmp'), e2b.InvalidArgumentError)
      await assert.rejects(sbx.files.rename(`${dir}/none`, `${dir}/x`), e2b.NotFoundError)
      await assert.rejects(sbx.files.list('/', { user: 'nobody-there' }), e2b.AuthenticationError)
    }),

  watch: (e2b, assert) =>
    within(e2b, async (sbx) => {
      await sbx.files.makeDir('watched')
      const seen = []
      const handle = await sbx.files.watchDir('watched', (e) => void seen.push(`${e.type} ${e.name}`), { recursive: true })
      await sbx.files.write('watched/f', 'one')
      await until('the write', () => seen.includes('write f'))
      await sbx.files.write('watched/f', 'two')
      await sbx.files.rename('watched/f', 'watched/g')
      await sbx.files.remove('watched/g')
      await until('the removal', () => seen.includes('remove g'))
      assert.deepEqual(seen.filter((s) => !s.startsWith('chmod')), ['create f', 'write f', 'write f', 'rename f', 'create g', 'remove g'])
      await handle.stop()
      await assert.rejects(sbx.files.watchDir('not-there', () => {}), e2b.NotFoundError)
    }),

  signed: (e2b, assert) =>
    within(
      e2b,
      async (sbx) => {
        const up = await sbx.uploadUrl('/tmp/signed.txt', { useSignatureExpiration: 60 })
        const form = new FormData()
        form.append('file', new Blob(['by address']), '/tmp/signed.txt')
        const sent = await fetch(up, { method: 'POST', body: form })
        assert.equal(sent.status, 200, await sent.text())
        const down = await sbx.downloadUrl('/tmp/signed.txt', { useSignatureExpiration: 60 })
        assert.equal(await (await fetch(down)).text(), 'by address')
        const late = await sbx.downloadUrl('/tmp/signed.txt', { useSignatureExpiration: -60 })
        const refused = await fetch(late)
        assert.deepEqual([refused.status, (await refused.json()).message], [401, 'signature is already expired'])
      },
      { secure: true },
    ),

  // The network options of the newest SDK can be set and read back.
  async network(e2b, assert, pkg) {
    if (pkg !== 'e2b') return
    const rules = (value) => ({ 'api.example.com': [{ transform: { headers: { Authorization: value } } }] })
    const network = {
      allowOut: ({ rules }) => [...rules.keys()],
      denyOut: ({ allTraffic }) => [allTraffic],
      rules: rules('Bearer one'),
      egressProxy: { address: 'proxy.example.com:1080', username: 'u', password: 'canary' },
      allowPublicTraffic: false,
      maskRequestHost: 'localhost:${PORT}',
      httpsPorts: [8443],
    }
    await within(
      e2b,
      async (sbx) => {
        assert.match(sbx.getHost(8080), new RegExp(`^8080-${sbx.sandboxId}\\.`))
        assert.ok(sbx.trafficAccessToken)
        const network = (await sbx.getInfo()).network
        assert.deepEqual([network.allowOut, network.denyOut, network.rules], [['api.example.com'], ['0.0.0.0/0'], rules('Bearer one')])
        assert.deepEqual(network.egressProxy, { address: 'proxy.example.com:1080', username: 'u' })
        assert.deepEqual([network.allowPublicTraffic, network.maskRequestHost, network.httpsPorts], [false, 'localhost:${PORT}', [8443]])
        await sbx.updateNetwork({ rules: rules('Bearer two') })
        const then = (await sbx.getInfo()).network
        assert.deepEqual([then.rules, then.egressProxy, then.httpsPorts], [rules('Bearer two'), undefined, [8443]])
        await assert.rejects(sbx.updateNetwork({ rules: { '*': [] } }))
      },
      { network },
    )
  },

  async auth(e2b, assert) {
    await assert.rejects(e2b.Sandbox.create('base', { apiKey: 'e2b_' + '0'.repeat(40) }), e2b.AuthenticationError)
    await assert.rejects(e2b.Sandbox.create('no-such-template'))
  },
}
