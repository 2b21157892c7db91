// What a share link permits: one process or one sandbox, read-only.

import { h } from '../h.js';
import { get } from '../api.js';
import { badge, empty, heading, table, time, code } from '../ui.js';
import { when, duration } from '../format.js';
import { view } from './process.js';

/** Returns the processes of a shared sandbox. */
function processes(token, all) {
	if (!all.length) return empty('No processes', 'Nothing has run in this sandbox yet.');
	return table('Processes', [
		{ name: 'Command', cell: (p) => code(`#/s/${token}/${p.id}`, p.cmd) },
		{ name: 'State', cell: (p) => badge(p.status) },
		{ name: 'Started', cell: (p) => time(p.start) },
		{ name: 'Duration', class: 'num', cell: (p) => (p.end ? duration(Date.parse(p.end) - Date.parse(p.start)) : '–') },
	], all);
}

async function sandbox(token, id, signal) {
	const t = await get('/v1/timeline/' + encodeURIComponent(id), signal);
	const marks = (t.marks || []).map((m) => h('li', null, h('strong', null, m.kind), ' ', h('span.muted', null, m.text), ' ', time(m.time)));
	return [heading(h('span.mono', null, id)), h('section', null, h('h2', null, 'Processes'), processes(token, t.processes || [])),
		h('section', null, h('h2', null, 'Timeline'), h('ol.marks', null, marks))];
}

/** @param {import('../router.js').Context} c */
export async function page({ args: [token, process, seq], signal }) {
	const allowed = await get('/v1/shares/self', signal);
	const note = h('p.muted', null, `Shared read-only until ${when(allowed.expires)}.`);
	const id = process || allowed.process;
	if (!id) return [note, await sandbox(token, allowed.sandbox, signal)];
	const link = (n) => `#/s/${token}/${id}` + (n ? '/' + n : '');
	return [note, await view(id, { seq: Number(seq) || 0, until: allowed.seq, link, signal })];
}
