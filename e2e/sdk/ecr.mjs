// Builds templates from an image in an AWS registry by the released e2b SDK, unmodified.
// Usage: node ecr.mjs <registry>; the registry has the image busybox:test, for clients with
// a password of the access key AKIAMINE.
import assert from 'node:assert/strict'
import { Template, Sandbox, BuildError } from 'e2b'
import { inTurn } from './inturn.mjs'

const registry = process.argv[2]
const secretAccessKey = 'canary-of-the-key'
const of = (accessKeyId) =>
  Template().fromAWSRegistry(`${registry}/busybox:test`, { accessKeyId, secretAccessKey, region: 'us-west-2' }).runCmd('test -e /app/marker')

const cases = {
  async 'an image is pulled with the password that AWS gives'() {
    await Template.build(of('AKIAMINE'), 'of-ecr')
    const box = await Sandbox.create('of-ecr')
    assert.equal((await box.commands.run('test -e /app/marker && echo there')).stdout, 'there\n')
    await box.kill()
  },
  async 'a key that AWS rejects is reported in the log, without its secret'() {
    const log = []
    const failed = Template.build(of('AKIAOTHER'), 'of-nothing', { onBuildLogs: (l) => log.push(l.message) })
    await assert.rejects(failed, (err) => err instanceof BuildError && /us-west-2 refuses the access key.*UnrecognizedClientException/.test(err.message))
    assert.match(log.join('\n'), /refuses the access key/)
    assert.ok(!/canary|AKIA/.test(log.join('\n')))
  },
}

await inTurn(cases)
