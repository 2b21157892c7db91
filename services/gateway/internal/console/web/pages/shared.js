// What a share link permits: one process or one sandbox, read-only.

import { h } from '../h.js';
import { get } from '../api.js';
import { badge, empty, heading, region, table, time, code } from '../ui.js';
import { when, duration } from '../format.js';
import { lanes, moments } from '../lanes.js';
import { view } from './process.js';

const refresh = 3000; // milliseconds between readings of a sandbox

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

/** Returns the page of a shared sandbox, which follows it until its end. */
function sandbox(token, id, signal) {
	const all = region(async () => {
		const t = await get('/v1/timeline/' + encodeURIComponent(id), signal);
		if (t.end) clearInterval(timer);
		return [h('h2', null, 'Processes'), processes(token, t.processes),
			h('section', null, h('h2', null, 'Timeline'), lanes(t, (p) => `#/s/${token}/${p}`), moments(t.marks.map((m) => ({ name: m.kind, ...m })), t.start))];
	}, signal);
	const timer = setInterval(() => { if (!document.hidden && !all.el.contains(document.activeElement)) all.reload(); }, refresh);
	signal.addEventListener('abort', () => clearInterval(timer));
	return [heading(h('span.mono', null, id)), all.el];
}

/** @param {import('../router.js').Context} c */
export async function page({ args: [token, process, seq], signal }) {
	const allowed = await get('/v1/shares/self', signal);
	const note = h('span.muted', null, `Shared read-only until ${when(allowed.expires)}.`);
	const id = process || allowed.process;
	if (!id) return [h('div.bar', null, note), sandbox(token, allowed.sandbox, signal)];
	const link = (n) => `#/s/${token}/${id}` + (n ? '/' + n : '');
	const all = process && allowed.sandbox && h('a', { href: '#/s/' + token }, 'All processes of the sandbox');
	return [h('div.bar', null, note, all), await view(id, { seq: Number(seq) || 0, until: allowed.seq, link, signal })];
}
