// Runs the template API of the released e2b SDK, unmodified, against a gateway and prints
// the result of each case as a JSON line. Usage: node templates.mjs <package> <registry>;
// the registry has the image busybox:test.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { until } from './cases.mjs'

const [pkg, registry] = process.argv.slice(2)
const { Template, Sandbox, BuildError, waitForFile, waitForPort, waitForProcess, waitForTimeout } = await import(pkg)

const unique = `t${process.pid}-${pkg.replace(/[^a-z0-9]/g, '')}`
const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'context-'))
fs.mkdirSync(path.join(dir, 'site/sub'), { recursive: true })
fs.writeFileSync(path.join(dir, 'site/index.html'), 'hello')
fs.writeFileSync(path.join(dir, 'site/sub/run.sh'), '#!/bin/sh\necho ran\n', { mode: 0o755 })
fs.symlinkSync('index.html', path.join(dir, 'site/link'))
fs.writeFileSync(path.join(dir, 'one.txt'), 'one')

const template = () => Template({ fileContextPath: dir })
// shown records the log of a build.
async function build(t, name, opts = {}) {
  const lines = []
  const info = await Template.build(t, name, { ...opts, onBuildLogs: (l) => lines.push(`${l.level} ${l.message}`) })
  return { info, log: lines.join('\n') }
}
async function sh(sbx, cmd, opts) {
  return (await sbx.commands.run(cmd, opts)).stdout.trim()
}
async function use(name, f, opts) {
  const sbx = await Sandbox.create(name, opts)
  try {
    return await f(sbx)
  } finally {
    await sbx.kill()
  }
}

const cases = {
  async 'steps, cached the second time'() {
    const t = () => template().fromBaseImage()
      .setEnvs({ UNIQUE: unique, GREETING: 'hi', BOTH: '$GREETING-$HOME_OF' }) // unique, so that no layer is cached
      .setWorkdir('/srv/app')
      .setUser('root')
      .runCmd('echo layer-ran; echo oops >&2; id -un > who; date +%N > /srv/once')
      .copy('site', 'site', { user: 'user' })
      .copy('one.txt', '/srv/two.txt', { mode: 0o600 })
      .setUser('user')
      .runCmd(['whoami >> /tmp/who', 'pwd >> /tmp/who'])
      .setStartCmd('echo started > /tmp/started; sleep 1000', waitForFile('/tmp/started'))
    const name = `${unique}-steps`
    assert.equal(await Template.exists(name), false)
    const first = await build(t(), name)
    assert.match(first.log, /\[stdout\]: layer-ran/)
    assert.match(first.log, /error .*\[stderr\]: oops/)
    const look = 'echo $GREETING $BOTH; pwd; id -un; cat who; cat site/sub/../link; ./site/sub/run.sh; stat -c %a:%U /srv/two.txt site/index.html; cat /tmp/who /tmp/started'
    const want = ['hi hi-$HOME_OF', '/srv/app', 'user', 'root', 'helloran', '600:root', '644:user', 'user', '/srv/app', 'started'].join('\n')
    const once = await use(name, async (sbx) => {
      assert.equal(await sh(sbx, look), want)
      assert.equal((await sbx.getInfo()).templateId, first.info.templateId)
      const running = await sbx.commands.list()
      assert.equal(running.length, 1, 'the start command runs')
      return sh(sbx, 'cat /srv/once')
    }, { envs: { MINE: '1' } })
    const second = await build(t(), name)
    assert.equal(second.info.templateId, first.info.templateId)
    assert.notEqual(second.info.buildId, first.info.buildId)
    assert.doesNotMatch(second.log, /stdout\]: layer-ran/)
    assert.equal(second.log.match(/CACHED/g)?.length, 4)
    assert.match(second.log, /already cached/)
    await use(name, async (sbx) => assert.equal(await sh(sbx, 'cat /srv/once'), once), { envs: { GREETING: 'ho' } })
    const forced = await build(t(), name, { skipCache: true })
    assert.match(forced.log, /stdout\]: layer-ran/)
    await use(name, async (sbx) => assert.notEqual(await sh(sbx, 'cat /srv/once'), once))
    const status = await Template.getBuildStatus(first.info, { logsOffset: 1 })
    assert.equal(status.status, 'ready')
    assert.match(status.logEntries[0].message, /RUN echo layer-ran/)
  },
  async 'a template from a template, its tags and its deletion'() {
    const name = `${unique}-tags`
    const { info } = await build(template().fromTemplate('base').runCmd('echo 1 > /tmp/v'), `${name}:v1`, { tags: ['stable'] })
    assert.deepEqual([...info.tags].sort(), ['stable', 'v1'])
    const next = await build(template().fromTemplate(`${name}:v1`).runCmd('echo 2 >> /tmp/v'), `${name}:v2`)
    assert.equal(next.info.templateId, info.templateId)
    await use(`${name}:v1`, async (sbx) => assert.equal(await sh(sbx, 'cat /tmp/v'), '1'))
    await use(`${name}:v2`, async (sbx) => assert.equal(await sh(sbx, 'cat /tmp/v'), '1\n2'))
    await assert.rejects(Sandbox.create(name), /not found/)
    const assigned = await Template.assignTags(`${name}:v2`, ['stable', 'default'])
    assert.equal(assigned.buildId, next.info.buildId)
    await use(name, async (sbx) => assert.equal(await sh(sbx, 'cat /tmp/v'), '1\n2'))
    const tags = await Template.getTags(name)
    assert.deepEqual(tags.map((t) => t.tag).sort(), ['default', 'stable', 'v1', 'v2'])
    assert.equal(tags.find((t) => t.tag === 'v1').buildId, info.buildId)
    await Template.removeTags(name, ['v1', 'stable'])
    assert.deepEqual((await Template.getTags(name)).map((t) => t.tag).sort(), ['default', 'v2'])
    assert.equal(await Template.exists(`${name}:v1`), false)
    assert.equal(await Template.exists(name), true)
    await assert.rejects(Template.assignTags('no-such-template:v1', 'x'), /not found/)
    await assert.rejects(Template.removeTags('no-such-template', 'x'), /not found/)
    assert.equal(await Sandbox.deleteSnapshot(info.templateId), true)
    assert.equal(await Template.exists(name), false)
    await assert.rejects(Sandbox.create(`${name}:v2`), /not found/)
  },
  async 'settings of processes survive a reboot and are part of snapshots'() {
    const name = `${unique}-again`
    const t = Template().fromTemplate('base').setUser('root').setWorkdir('/srv').setEnvs({ KEPT: 'template', MINE: 'template' })
      .setStartCmd('echo started >> /srv/starts; sleep 1000', waitForFile('/srv/starts'))
    await build(t, name)
    const look = 'echo $KEPT $MINE; pwd; id -un'
    await use(name, async (sbx) => {
      assert.equal(await sh(sbx, look), 'template create\n/srv\nroot')
      const { snapshotId } = await sbx.createSnapshot()
      await use(snapshotId, async (other) => {
        await until('its command', async () => (await other.commands.list()).length === 1)
        assert.equal(await sh(other, look), 'template other\n/srv\nroot')
      }, { envs: { MINE: 'other' } })
      await use(snapshotId, async (other) => assert.equal(await sh(other, look), 'template create\n/srv\nroot'))
      await Sandbox.deleteSnapshot(snapshotId)
      // As in E2B, a reboot starts no processes: servers must be restarted.
      await sbx.pause({ keepMemory: false })
      await sbx.connect()
      assert.equal(await sh(sbx, look), 'template create\n/srv\nroot')
      assert.deepEqual(await sbx.commands.list(), [])
      assert.equal(await sh(sbx, 'wc -l < starts'), '1')
    }, { envs: { MINE: 'create' } })
  },
  async 'an error reports the step and the cause'() {
    const name = `${unique}-fails`
    const lines = []
    const failing = template().fromBaseImage().runCmd('true').runCmd('echo before; echo the reason >&2; exit 7')
    await assert.rejects(
      Template.build(failing, name, { onBuildLogs: (l) => lines.push(l.message) }),
      (err) => err instanceof BuildError && /exit status 7/.test(err.message) && /the reason/.test(err.message)
    )
    assert.match(lines.join('\n'), /\[stdout\]: before/)
    assert.equal(await Template.exists(name), false)
    await assert.rejects(Template.build(template().fromTemplate('no-such'), name), (err) => err instanceof BuildError && /not found/.test(err.message))
    await assert.rejects(Template.build(template().fromBaseImage().runCmd('true', { user: 'nobody-knows' }), name), /invalid username/)
    await assert.rejects(Template.build(template().fromImage(`${registry}/no-such:1`), name), (err) => err instanceof BuildError && /pull image .*no-such/.test(err.message))
    await assert.rejects(Template.build(template().fromImage('169.254.169.254/x:1'), name), /not public/)
    await assert.rejects(Template.build(template().fromBaseImage(), 'Not A Name'), /template name/)
    // The error names the step that failed, also if other steps follow.
    for (const [step, wrong] of Object.entries({
      workdir: (t) => t.setWorkdir('/etc/passwd'),
      user: (t) => t.setUser('; exit 1'),
      remove: (t) => t.remove('/nonexistent'),
      ready: (t) => t.setStartCmd('exit 1', waitForFile('/nonexistent')),
    })) {
      const t = wrong(template().fromBaseImage().setWorkdir('/srv'))
      await assert.rejects(Template.build(step === 'workdir' ? t.runCmd('true') : t, name), (err) => err instanceof BuildError && err.stack.includes(step) && !err.stack.includes('runCmd'), step)
    }
    const dead = template().fromBaseImage().setStartCmd('exit 3', 'false')
    await assert.rejects(Template.build(dead, name), /start command ended with exit status 3/)
  },
  async 'other methods of the builder'() {
    const name = `${unique}-builder`
    fs.writeFileSync(path.join(dir, '.dockerignore'), 'ignored.txt\n')
    fs.writeFileSync(path.join(dir, 'ignored.txt'), 'not this')
    const t = Template({ fileContextPath: dir, fileIgnorePatterns: ['*.log'] }).fromBaseImage()
      .setUser('root')
      .makeDir(['/opt/a/b', '/opt/c'], { mode: 0o700 })
      .copyItems([{ src: 'one.txt', dest: '/opt/a/' }, { src: ['site/*.html'], dest: '/opt/c/', user: 'user' }])
      .copy('.', '/opt/all/')
      .rename('/opt/a/one.txt', '/opt/a/two.txt')
      .makeSymlink('/opt/a/two.txt', '/opt/link')
      .remove('/opt/all/site', { recursive: true, force: true })
      .runCmd(['echo 1 > /opt/n', 'echo 2 >> /opt/n'], { user: 'root' })
      .setWorkdir('/opt')
      .setStartCmd('sleep 1000', waitForProcess('sleep'))
    assert.match(Template.toDockerfile(Template().fromImage('debian:12').runCmd('true')), /FROM debian:12[^]*RUN true/)
    assert.ok(JSON.parse(await Template.toJSON(t)).steps.length >= 9)
    const made = await Template.buildInBackground(t, name, { cpuCount: 1, memoryMB: 512 })
    assert.ok(made.templateId && made.buildId)
    let status
    do {
      status = await Template.getBuildStatus(made)
      await new Promise((r) => setTimeout(r, 200))
    } while (!['ready', 'error'].includes(status.status))
    assert.equal(status.status, 'ready', JSON.stringify(status.reason))
    await use(name, async (sbx) => {
      const look = 'cat a/two.txt link n; echo; stat -c %a:%U a/b c/index.html; ls all; pgrep -c sleep'
      const want = ['oneone1', '2', '', '700:root', '644:user', 'one.txt', '1'].join('\n')
      assert.equal(await sh(sbx, look, { user: 'root' }), want)
      const info = await sbx.getInfo()
      assert.deepEqual([info.cpuCount, info.memoryMB, info.name], [1, 512, name])
    })
    const sleepy = Template().fromTemplate(name).setReadyCmd(waitForTimeout(100))
    await build(sleepy, `${name}2`)
    const port = Template().fromTemplate('base').setStartCmd('exec python3 -m http.server 8123', waitForPort(8123))
    await build(port, `${name}3`)
    await use(`${name}3`, async (sbx) => assert.equal((await sh(sbx, 'curl -s -o /dev/null -w %{http_code} http://127.0.0.1:8123/')), '200'))
    assert.equal(await Template.exists(name), true)
    await assert.rejects(Template.getBuildStatus({ templateId: made.templateId, buildId: '00000000-0000-0000-0000-000000000000' }))
    const aws = Template().fromAWSRegistry('1.dkr.ecr.us-east-1.amazonaws.com/x:1', { accessKeyId: 'a', secretAccessKey: 'canary', region: 'no region' })
    await assert.rejects(Template.build(aws, `${name}4`), (err) => /awsRegion/.test(err.message) && !/canary/.test(err.message))
    const gcp = Template().fromGCPRegistry(`${registry}/busybox:test`, { serviceAccountJSON: { type: 'service_account' } }).runCmd('test -e /app/marker')
    await build(gcp, `${name}5`)
    const given = Template().fromImage(`${registry}/busybox:test`, { username: 'u', password: 'p' }).runCmd('test -e /app/marker')
    await build(given, `${name}6`)
    const file = Template({ fileContextPath: dir }).fromDockerfile(`FROM ${registry}/busybox:test\nENV WHO=me\nWORKDIR /w\nCOPY one.txt /w/\nRUN test "$WHO" = me && test -e /w/one.txt\n`)
    await build(file, `${name}7`)
  },
  async 'an image from a registry'() {
    const name = `${unique}-image`
    const image = `${registry}/busybox:test`
    const { log } = await build(template().fromImage(image).setEnvs({ UNIQUE: unique }).runCmd('cat /app/marker; test ! -e /app/gone').copy('site', '/site/'), name)
    assert.match(log, /\[stdout\]: made by hand/)
    if (!log.includes('CACHED [base]')) { // another release of the SDK may have built it before
      assert.match(log, /\[base\] \[stdout\]: Packages not installed \(the (build has no network|image has no known package manager)\): curl git jq sudo/)
    }
    const again = await build(template().fromImage(image).setEnvs({ UNIQUE: unique }).runCmd('cat /app/marker; test ! -e /app/gone').copy('site', '/site/'), `${name}2`)
    assert.doesNotMatch(again.log, /Pulling/)
    assert.equal(again.log.match(/CACHED/g)?.length, 3) // the packages' layer and two steps
    await use(name, async (sbx) => {
      assert.equal(await sbx.files.read('/site/sub/run.sh'), '#!/bin/sh\necho ran\n')
      assert.equal(await sbx.files.read('/app/marker'), 'made by hand\n')
      assert.equal(await sh(sbx, 'id -un; /usr/bin/sudo -n id -un'), 'user\nroot') // the host's own sudo
    })
  },
}

async function one(name) {
  const began = performance.now()
  try {
    await cases[name]()
    report({ name, ok: true, ms: Math.round(performance.now() - began) })
  } catch (err) {
    report({ name, ok: false, error: `${err?.message}\n${err?.stack ?? err}` })
  }
}

function report(result) {
  process.stdout.write(JSON.stringify(result) + '\n')
}

await Promise.all(Object.keys(cases).map(one))
fs.rmSync(dir, { recursive: true })
report({ name: 'done', ok: true })
process.exit(0)
