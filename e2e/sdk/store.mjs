// Runs the volumes and secrets of the released e2b SDK, unmodified. Usage: node
// store.mjs <prefix>; E2B_API_KEY, E2B_API_URL, E2B_SANDBOX_URL and
// E2B_VOLUME_API_URL select the gateway.
import assert from 'node:assert/strict'
import * as e2b from 'e2b'
import { inTurn } from './inturn.mjs'

const { Volume, Secret, Sandbox } = e2b
const prefix = process.argv[2]

const cases = {
  async 'a volume is created, found, listed and deleted'() {
    const v = await Volume.create(prefix + 'life')
    assert.equal(v.name, prefix + 'life')
    await assert.rejects(() => Volume.create(prefix + 'life'))
    await assert.rejects(() => Volume.create('no/name'))
    assert.equal((await Volume.getInfo(v.volumeId)).token, v.token)
    assert.ok((await Volume.list()).some((x) => x.volumeId === v.volumeId && x.name === v.name))
    assert.equal(await Volume.destroy(v.volumeId), true)
    assert.equal(await Volume.destroy(v.volumeId), false)
    await assert.rejects(() => Volume.getInfo(v.volumeId), { name: 'VolumeNotFoundError' })
    assert.ok(!(await Volume.list()).some((x) => x.volumeId === v.volumeId))
  },

  async 'files of a volume are created and removed'() {
    const v = await Volume.connect((await Volume.create(prefix + 'files')).volumeId)
    const dir = await v.makeDir('/d', { mode: 0o750, uid: 1234, gid: 99 })
    assert.equal(dir.type, 'directory')
    // If the service does not run as root, all files have one owner.
    assert.deepEqual([dir.mode, dir.uid, dir.gid], process.getuid() === 0 ? [0o750, 1234, 99] : [0o750, 1000, 1000])
    await assert.rejects(() => v.makeDir('/a/b/c'), { name: 'VolumePathNotFoundError' })
    await assert.rejects(() => v.makeDir('/d'))
    await v.makeDir('/a/b/c', { force: true })
    await v.makeDir('/d', { force: true })
    const text = 'text ü\n'.repeat(1000)
    const f = await v.writeFile('/d/f', text, { mode: 0o600 })
    assert.deepEqual([f.type, f.path, f.name, f.size, f.mode], ['file', '/d/f', 'f', Buffer.byteLength(text), 0o600])
    assert.ok(Math.abs(f.mtime - Date.now()) < 60_000 && f.ctime instanceof Date && f.atime instanceof Date)
    assert.equal(await v.readFile('/d/f'), text)
    await v.writeFile('/d/f', 'replaced')
    await assert.rejects(() => v.writeFile('/d/f', 'not this', { force: false }))
    assert.equal(Buffer.from(await v.readFile('/d/f', { format: 'bytes' })).toString(), 'replaced')
    const big = new Uint8Array(5 << 20).map((_, i) => i * 7)
    await v.writeFile('/big', new Blob([big]).stream())
    let n = 0
    for await (const chunk of await v.readFile('/big', { format: 'stream' })) n += chunk.length
    assert.equal(n, big.length)
    await v.writeFile('/empty', '')
    assert.equal(await v.readFile('/empty'), '')
    assert.deepEqual((await v.list('/')).map((e) => e.name), ['a', 'big', 'd', 'empty'])
    assert.deepEqual((await v.list('/', { depth: 3 })).map((e) => e.path), ['/a', '/a/b', '/a/b/c', '/big', '/d', '/d/f', '/empty'])
    if (process.env.MILLRACE_E2E_ROOT === '1') {
      const changed = await v.updateMetadata('/d/f', { uid: 5, mode: 0o644 })
      assert.deepEqual([changed.uid, changed.mode], [5, 0o644])
    } else { // without root all files belong to the service's user
      await assert.rejects(() => v.updateMetadata('/d/f', { uid: 5 }), /not permitted/)
      assert.equal((await v.updateMetadata('/d/f', { mode: 0o644 })).mode, 0o644)
    }
    assert.equal(await v.exists('/d/f'), true)
    await v.remove('/d')
    assert.equal(await v.exists('/d/f'), false)
    for (const call of [() => v.remove('/d'), () => v.list('/none'), () => v.readFile('/none'), () => v.updateMetadata('/none', { mode: 1 })]) {
      await assert.rejects(call, { name: 'VolumePathNotFoundError' })
    }
    for (const path of ['/../../etc/passwd', '../../../etc/passwd', '/%2e%2e/etc/passwd']) {
      assert.equal(await v.exists(path), false)
    }
    const thief = new Volume(v.volumeId, v.name, 'wrong')
    await assert.rejects(() => thief.readFile('/big'), { name: 'AuthenticationError' })
    await Volume.destroy(v.volumeId)
  },

  async 'sandboxes share volumes, which outlive them'() {
    const [one, two] = [await Volume.create(prefix + 'one'), await Volume.create(prefix + 'two')]
    await one.writeFile('/from-outside', 'hello')
    const at = '/tmp/' + prefix
    const volumeMounts = { [at + '/one']: one, [at + '/one/two']: two.name }
    const a = await Sandbox.create({ volumeMounts })
    const b = await Sandbox.create({ volumeMounts: { [at + '/one']: one.name } })
    try {
      assert.equal(await a.files.read(at + '/one/from-outside'), 'hello')
      await a.commands.run(`echo -n inside > ${at}/one/f && echo -n second > ${at}/one/two/g`)
      assert.equal((await b.commands.run(`cat ${at}/one/f`)).stdout, 'inside')
      await b.files.write(at + '/one/h', 'by API')
      assert.equal((await a.commands.run(`cat ${at}/one/h`)).stdout, 'by API')
      const info = await a.getInfo()
      assert.deepEqual(info.volumeMounts.map((m) => m.name).sort(), [one.name, two.name].sort())
      await assert.rejects(() => Volume.destroy(one.volumeId))
    } finally {
      await a.kill()
      await b.kill()
    }
    assert.equal(await one.readFile('/f'), 'inside')
    assert.equal(await two.readFile('/g'), 'second')
    const c = await Sandbox.create({ volumeMounts })
    assert.equal((await c.commands.run(`cat ${at}/one/f ${at}/one/two/g`)).stdout, 'insidesecond')
    await c.kill()
    assert.equal(await Volume.destroy(one.volumeId), true)
    await assert.rejects(() => Sandbox.create({ volumeMounts: { '/tmp/x': one.name } }))
    await Volume.destroy(two.volumeId)
  },

  async 'secrets are kept and never shown'() {
    const name = prefix + 'Key'
    const value = 'canary-' + prefix
    const s = await Secret.create(name, value, { metadata: { team: 'a' } })
    assert.equal(s.name, name.toLowerCase())
    assert.match(s.secretId, /^sec_/)
    assert.deepEqual([s.version, s.metadata], [1, { team: 'a' }])
    await assert.rejects(() => Secret.create(name, 'other'))
    await assert.rejects(() => Secret.create('sec_x', value))
    const next = await Secret.update(name, value + '-2')
    assert.deepEqual([next.secretId, next.version, next.metadata], [s.secretId, 2, { team: 'a' }])
    assert.ok(next.updatedAt >= next.createdAt)
    assert.deepEqual(await Secret.getInfo(s.secretId), await Secret.getInfo(name))
    await Secret.create(name + '2', value)
    const seen = []
    for (const pages = Secret.list({ limit: 1 }); pages.hasNext; ) seen.push(...(await pages.nextItems()))
    assert.deepEqual(seen.filter((x) => x.name.startsWith(name.toLowerCase())).map((x) => x.name), [s.name, s.name + '2'])
    assert.equal(JSON.stringify([s, next, seen]).includes('canary'), false)
    assert.equal(await Secret.exists(name), true)
    assert.equal(await Secret.destroy(name), true)
    assert.equal(await Secret.destroy(s.secretId), false)
    assert.equal(await Secret.exists(name), false)
    await assert.rejects(() => Secret.update(name, 'x'), { name: 'SecretNotFoundError' })
    assert.equal((await Secret.create(name, value)).version, 1)
  },
}

await inTurn(cases)
