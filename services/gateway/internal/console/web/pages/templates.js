// Templates and their builds.

import { h, fill } from '../h.js';
import { call, get } from '../api.js';
import { region, table, heading, badge, button, confirm, time, code, empty, problem, facts } from '../ui.js';
import { clock } from '../format.js';

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

/** Returns the templates that operators stored. */
async function stored(signal) {
	const rows = await get('/v1/store/templates', signal);
	if (!rows || !rows.length) return h('p.muted', null, 'None. The template base is always available.');
	return h('pre', { tabindex: '0' }, rows.map((r) => (typeof r === 'string' ? r : JSON.stringify(r))).join('\n'));
}

/** @param {import('../router.js').Context} c */
export function page({ signal }) {
	const built = region(async () => {
		const rows = await get('/templates', signal);
		return rows.length ? list(rows, built.reload) : empty('No built templates', 'Build one with an E2B SDK or its command, or import a recipe:', 'millrace template build standard');
	}, signal);
	const base = region(() => stored(signal), signal);
	return [heading('Templates'), built.el, h('section', null, h('h2', null, 'Stored by operators'), base.el)];
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
	return [heading(nameOf(t), button('Delete', () => remove({ ...t, templateID: id }, async () => { location.hash = '#/templates'; }), { class: 'danger' })),
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
