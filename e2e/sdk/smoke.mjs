// The quick start of the SDK. Usage: node smoke.mjs <package>.
const { Sandbox } = await import(process.argv[2])
const sbx = await Sandbox.create()
const { stdout, exitCode } = await sbx.commands.run('echo hello')
await sbx.kill()
process.stdout.write(JSON.stringify({ name: 'smoke', ok: stdout === 'hello\n' && exitCode === 0, error: stdout }) + '\n')
process.exit(0)
