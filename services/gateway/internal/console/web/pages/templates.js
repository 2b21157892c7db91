// Templates and their builds.

import { h, fill } from '../h.js';
import { call, get } from '../api.js';
import { act, region, table, heading, badge, button, confirm, field, time, code, empty, problem, facts } from '../ui.js';
import { bytes, clock } from '../format.js';
import { parse } from '../dockerfile.js';
import { create } from './sandboxes.js';

const path = (id) => '/templates/' + encodeURIComponent(id);
const pollEvery = 700; // milliseconds between reads of a running build's log

const nameOf = (t) => (t.names && t.names[0]) || (t.aliases && t.aliases[0]) || t.templateID;

async function remove(t, done) {
	if (!await confirm('Delete ' + nameOf(t) + '?', 'No sandbox can be created from it afterwards. Running sandboxes are not affected.', 'Delete')) return;
	await call('DELETE', path(t.templateID));
	done();
}

function list(rows, reload) {
	return table('Templates', [
		{ name: 'Name', cell: (t) => h('a', { href: '#/templates/' + t.templateID }, nameOf(t)) },
		{ name: 'Id', cell: (t) => h('span.mono', null, t.templateID) },
		{ name: 'Build', cell: (t) => t.buildStatus && badge(t.buildStatus) },
		{ name: 'CPUs', class: 'num', cell: (t) => t.cpuCount || '–' },
		{ name: 'Memory', class: 'num', cell: (t) => (t.memoryMB ? t.memoryMB + ' MiB' : '–') },
		{ name: 'Used', class: 'num', cell: (t) => t.spawnCount },
		{ name: 'Updated', cell: (t) => time(t.updatedAt) },
		{ name: 'Actions', class: 'end', cell: (t) => h('div.actions', null, button('Delete', () => remove(t, reload), { class: 'danger', 'aria-label': 'Delete ' + nameOf(t) })) },
	], rows);
}

/** Removes a name of a stored template. */
async function untag(r, reload) {
	const name = `${r.name}:${r.tag}`;
	if (!await confirm('Remove ' + name + '?', 'Sandboxes can no longer be created by this name.', 'Remove')) return;
	await call('DELETE', '/v1/store/templates/' + encodeURIComponent(name));
	reload();
}

/** Returns the table of the templates that operators stored. */
function stored(rows, reload) {
	if (!rows.length) return h('p.muted', null, 'None. The template base, with the programs of the host, always exists.');
	return table('Stored by operators', [
		{ name: 'Name', cell: (r) => `${r.name}:${r.tag}` },
		{ name: 'Id', cell: (r) => h('span.mono.cut', { title: r.id }, r.id) },
		{ name: 'Architecture', cell: (r) => r.arch },
		{ name: 'Size', class: 'num', cell: (r) => bytes(r.size) },
		{ name: 'Hosts', cell: (r) => (r.hosts || []).join(', ') || 'none yet' },
		{ name: 'Stored', cell: (r) => time(r.tagged_at) },
		{ name: 'Actions', class: 'end', cell: (r) => !r.shared && h('div.actions', null, button('Remove', () => untag(r, reload), { class: 'danger', 'aria-label': `Remove ${r.name}:${r.tag}` })) },
	], rows);
}

const example = `FROM base
RUN echo hello > /etc/motd
ENV EDITOR=vi
USER user
WORKDIR /home/user
`;

/** Requests a build and starts it. Returns the fragment of its log. */
async function start(form) {
	const recipe = parse(form.dockerfile.value);
	const body = { name: form.name.value.trim() };
	if (form.cpus.value) body.cpuCount = Number(form.cpus.value);
	if (form.memory.value) body.memoryMB = Number(form.memory.value);
	const made = await call('POST', '/v3/templates', body);
	if (form.ready.value.trim()) recipe.readyCmd = form.ready.value.trim();
	await call('POST', `/v2/templates/${encodeURIComponent(made.templateID)}/builds/${encodeURIComponent(made.buildID)}`, recipe);
	return `#/templates/${made.templateID}/${made.buildID}`;
}

/** Shows the form that builds a template from a Dockerfile. */
export function make() {
	const text = h('textarea.mono', { name: 'dockerfile', rows: 14, required: true, spellcheck: 'false', value: example });
	const file = h('input', { type: 'file', 'aria-label': 'Dockerfile', hidden: true, onchange: async () => { if (file.files[0]) text.value = await file.files[0].text(); } });
	const name = h('input', { name: 'name', required: true, maxlength: 128, pattern: '[a-z0-9_\\-]+(:[A-Za-z0-9_.\\-]+)?', placeholder: 'my-template', title: 'lower-case letters, digits, - and _, and a tag after a colon if you like' });
	const number = (n, label) => field(label, h('input', { name: n, type: 'number', min: n === 'cpus' ? '0.1' : '1', step: 'any', placeholder: 'default' }));
	const form = h('form.build', { onsubmit: act(async () => { location.hash = await start(form.elements); }) },
		h('div.bar', null, field('Name', name), number('cpus', 'CPUs'), number('memory', 'Memory in MiB'), field('Ready when this succeeds', h('input.mono', { name: 'ready', placeholder: 'optional command' }))),
		field('Dockerfile', text),
		h('div.bar', null, h('button.primary', { type: 'submit' }, 'Build'), button('Open a file', async () => file.click()), file),
		h('p.muted', null, 'FROM names a template, or an image of a registry if the gateway reaches one. RUN, ENV, ARG, WORKDIR, USER, CMD and ENTRYPOINT are built. COPY and ADD need files, which an E2B SDK sends.'));
	return [heading('Build a template', h('a.button', { href: '#/templates' }, 'Cancel')), form];
}

/** @param {import('../router.js').Context} c */
export function page({ signal }) {
	const built = region(async () => {
		const rows = await get('/templates', signal);
		return rows.length ? list(rows, built.reload) : empty('No built templates', 'Build one from a Dockerfile here or with an E2B SDK, or let an operator store one:', 'millrace template build standard');
	}, signal);
	const base = region(async () => stored(await get('/v1/store/templates', signal) || [], base.reload), signal);
	return [heading('Templates', h('a.button.primary', { href: '#/templates/new' }, 'Build')), built.el, h('section', null, h('h2', null, 'Stored by operators'), base.el)];
}

/** Shows one template. @param {import('../router.js').Context} c */
export async function one({ args: [id], signal }) {
	const t = await get(path(id), signal);
	const builds = table('Builds', [
		{ name: 'Build', cell: (b) => code(`#/templates/${id}/${b.buildID}`, b.buildID) },
		{ name: 'State', cell: (b) => badge(b.status) },
		{ name: 'Created', cell: (b) => time(b.createdAt) },
		{ name: 'Finished', cell: (b) => time(b.finishedAt) },
		{ name: 'CPUs', class: 'num', cell: (b) => b.cpuCount || '–' },
		{ name: 'Memory', class: 'num', cell: (b) => (b.memoryMB ? b.memoryMB + ' MiB' : '–') },
	], t.builds || []);
	const use = button('Create a sandbox', () => create((made) => { location.hash = '#/sandboxes/' + made; }, nameOf(t)), { class: 'primary' });
	return [heading(nameOf(t), use, button('Delete', () => remove({ ...t, templateID: id }, async () => { location.hash = '#/templates'; }), { class: 'danger' })),
		facts([['Id', h('span.mono', null, id)], ['Public', t.public ? 'yes' : 'no'], ['Created', time(t.createdAt)], ['Sandboxes created', String(t.spawnCount ?? 0)]]),
		h('section', null, h('h2', null, 'Builds'), builds)];
}

/** Appends the new lines of a build's log until it has ended. */
async function watch(url, { log, state, signal }) {
	for (let offset = 0; !signal.aborted;) {
		const s = await get(`${url}/status?logsOffset=${offset}`, signal);
		fill(state, badge(s.status));
		const more = s.logEntries || [];
		offset += more.length;
		const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
		for (const l of more) log.append(h('span', { class: l.level === 'error' && 'err' }, `${clock(l.timestamp)} ${l.message.trimEnd()}\n`));
		if (atEnd) log.scrollTop = log.scrollHeight;
		if (s.status === 'ready' || s.status === 'error') {
			if (!more.length) return s.reason;
			continue;
		}
		await new Promise((done) => setTimeout(done, pollEvery));
	}
	return null;
}

/** Shows the log of a build while it grows. @param {import('../router.js').Context} c */
export function build({ args: [id, build], signal }) {
	const log = h('pre.out', { tabindex: '0', role: 'log', 'aria-label': 'Build log' }), state = h('span', { role: 'status' }), end = h('div');
	watch(`${path(id)}/builds/${encodeURIComponent(build)}`, { log, state, signal })
		.then((reason) => reason && fill(end, h('p', { role: 'alert' }, reason.message)))
		.catch((err) => { if (!signal.aborted) fill(end, problem(err)); });
	return [heading(h('span', null, 'Build ', h('span.mono', null, build)), state, h('a.button', { href: '#/templates/' + id }, 'Template')), log, end];
}
