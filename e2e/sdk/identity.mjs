// Tests the workload identity of the released e2b SDK, unmodified: a sandbox sends requests
// to a server, and must get its responses without ever seeing the token. Usage: node
// identity.mjs <url>; E2B_API_KEY, E2B_API_URL and E2B_SANDBOX_URL select the gateway.
import assert from 'node:assert/strict'
import { Sandbox, Secret } from 'e2b'
import { inTurn } from './inturn.mjs'

const url = process.argv[2]
const host = new URL(url).hostname

const tokens = { aws: Secret.iamToken({ audience: 'sts.amazonaws.com', tokenType: 'JWT-SVID' }) }
const rules = { [host]: [{ transform: ({ iam }) => ({ headers: { Authorization: `Bearer ${iam.tokens.aws}` } }) }] }
const typo = { [host]: [{ transform: ({ iam }) => ({ headers: { Authorization: `Bearer ${iam.tokens.gcp}` } }) }] }

const cases = {
  async 'each request gets a token that the sandbox never receives'() {
    const box = await Sandbox.create({ iam: { tokens }, network: { rules } })
    const fetchSubject = async () => (await box.commands.run(`curl -sS ${url}`)).stdout
    assert.equal(await fetchSubject(), box.sandboxId)
    assert.equal(await fetchSubject(), box.sandboxId)
    const inside = (await box.commands.run('env; cat /proc/*/environ 2>/dev/null; grep -rsl "eyJ" /etc /run /tmp || true')).stdout
    assert.ok(!inside.includes('eyJ'), inside)
    assert.ok(!JSON.stringify(await box.getInfo()).includes('eyJ'))
    await box.updateNetwork({ rules: typo })
    for (let n = 0; (await fetchSubject()) === box.sandboxId; n++) assert.ok(n < 100, 'the change has no effect')
    assert.match(await fetchSubject(), /no token "gcp"/)
    await box.updateNetwork({ rules })
    for (let n = 0; (await fetchSubject()) !== box.sandboxId; n++) assert.ok(n < 100, 'the change has no effect')
    await box.kill()
  },

  async 'an invalid token declaration is rejected'() {
    for (const iam of [{ tokens: { a: { audience: 'x', tokenType: 'X509-SVID' } } }, { tokens: Object.fromEntries([1, 2, 3, 4, 5, 6].map((n) => ['t' + n, tokens.aws])) }]) {
      await assert.rejects(() => Sandbox.create({ iam }), { name: 'InvalidArgumentError' }).catch(() => assert.rejects(() => Sandbox.create({ iam }), /400/))
    }
  },
}

await inTurn(cases)
