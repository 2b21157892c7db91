// Creates sandboxes with MCP servers by the released e2b SDK, uses them by the released MCP
// client, both unmodified, and prints the result of each case as a JSON line. Usage: node
// mcp.mjs <mcp-gateway>, after `npm ci` in its directory.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import path from 'node:path'
import { Sandbox, Template } from 'e2b'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { inTurn } from '../inturn.mjs'

const here = import.meta.dirname
const name = 'github/modelcontextprotocol/servers'
const runCmd = 'node node_modules/@modelcontextprotocol/server-everything/dist/index.js stdio'

// The template of `millrace template build mcp-gateway`, but from this machine's own files,
// with a server's repository.
async function template() {
  fs.copyFileSync(process.argv[2], path.join(here, 'node_modules/.mcp-gateway'))
  await Template.build(Template({ fileContextPath: here }).fromBaseImage().setUser('root')
    .copy('node_modules/.mcp-gateway', '/usr/local/bin/mcp-gateway', { mode: 0o755 })
    .copy('node_modules', `/var/lib/mcp-gateway/${name}/node_modules`)
    .copy('node_modules', '/var/lib/mcp-gateway/github/millrace/again/node_modules')
    .setUser('user'), 'mcp-gateway')
}

async function client(sandbox, token) {
  const c = new Client({ name: 'millrace-e2e', version: '1' })
  const headers = { 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': '50005', ...(token && { Authorization: `Bearer ${token}` }) }
  await c.connect(new StreamableHTTPClientTransport(new URL('/mcp', process.env.E2B_SANDBOX_URL), { requestInit: { headers } }))
  return c
}

const cases = {
  async 'serves tools, prompts and resources to clients with the token'() {
    const s = await Sandbox.create({ mcp: { [name]: { runCmd, envs: { MCP_SECRET: 'hush' } } }, allowInternetAccess: false })
    try {
      const url = new URL(s.getMcpUrl())
      assert.deepEqual([url.host.split('.')[0], url.pathname], [`50005-${s.sandboxId}`, '/mcp'])
      const token = await s.getMcpToken()
      const later = await Sandbox.connect(s.sandboxId)
      assert.equal(await later.getMcpToken(), token)
      assert.equal((await s.commands.run('stat -c %a:%U /etc/mcp-gateway/.token', { user: 'root' })).stdout, '600:root\n')
      await assert.rejects(client(s), /401|token is required/)
      await assert.rejects(client(s, 'wrong'), /401|token is required/)
      const c = await client(s, token)
      const { tools } = await c.listTools()
      assert.ok(tools.some((t) => t.name === 'echo'), JSON.stringify(tools))
      const result = await c.callTool({ name: 'echo', arguments: { message: 'späße' } })
      assert.match(result.content[0].text, /späße/)
      const env = JSON.stringify(await c.callTool({ name: tools.find((t) => /env/i.test(t.name)).name, arguments: {} }))
      assert.ok(env.includes('hush') && !env.includes(token), 'a server has its own variables, and not the token')
      const { prompts } = await c.listPrompts()
      const plain = prompts.find((p) => !p.arguments?.some((a) => a.required))
      assert.ok((await c.getPrompt({ name: plain.name })).messages.length > 0)
      const { resources } = await c.listResources()
      assert.ok((await c.readResource({ uri: resources[0].uri })).contents.length > 0)
      await c.close()
      assert.ok(!JSON.stringify(await s.getInfo()).includes('hush'))
    } finally {
      await s.kill()
    }
  },
  async 'gives the tools of two servers distinct names'() {
    const s = await Sandbox.create({ mcp: { [name]: { runCmd }, 'github/millrace/again': { runCmd } }, allowInternetAccess: false })
    try {
      const c = await client(s, await s.getMcpToken())
      const names = (await c.listTools()).tools.map((t) => t.name)
      assert.ok(names.includes('echo') && names.includes('servers_echo'), names.join(' '))
      assert.match((await c.callTool({ name: 'servers_echo', arguments: { message: 'two' } })).content[0].text, /two/)
      await c.close()
    } finally {
      await s.kill()
    }
  },
  async 'reports a server that cannot be started'() {
    const bad = (mcp) => Sandbox.create({ mcp, allowInternetAccess: false })
    await assert.rejects(bad({ exa: { apiKey: 'hush' } }), (e) => /catalog/.test(e.message) && !/hush/.test(e.message))
    await assert.rejects(bad({ [name]: { runCmd: 'echo gone >&2; exit 3' } }), /runCmd is not an MCP server.*gone/s)
    await assert.rejects(bad({ 'github/nobody/nothing': { runCmd } }), /clone/)
    await assert.rejects(bad({ [name]: 'text' }), /400/)
  },
}

try {
  await template()
} catch (err) {
  cases['the template'] = () => { throw err }
}
await inTurn(cases)
