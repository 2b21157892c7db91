// The audit trail, for operators.

import { h } from '../h.js';
import { get } from '../api.js';
import { region, table, heading, button, empty } from '../ui.js';
import { when } from '../format.js';

function list(entries) {
	return table('Denied requests', [
		{ name: 'Time', cell: (e) => h('time', { datetime: e.time }, when(e.time)) },
		{ name: 'Event', cell: (e) => e.event },
		{ name: 'Status', class: 'num', cell: (e) => e.status },
		{ name: 'Request', cell: (e) => h('span.mono', null, `${e.method} ${e.path}`) },
		{ name: 'Tenant', cell: (e) => e.tenant || '–' },
		{ name: 'Source', cell: (e) => e.source && h('span.mono', null, e.source) },
		{ name: 'Count', class: 'num', cell: (e) => e.count },
	], entries);
}

/** @param {import('../router.js').Context} c */
export function page({ signal }) {
	const seen = [];
	let from = 0;
	const all = region(async () => {
		const trail = await get('/v1/audit?from=' + from, signal);
		seen.push(...trail.links.map((l) => l.entry));
		if (trail.links.length) from = trail.next;
		const more = h('div.more', null, button(trail.links.length ? 'Read on' : 'Check for more', () => all.reload()));
		if (!seen.length) return [empty('No denied requests', 'Requests that the gateway denies are listed here. The trail is a chain of hashes; check it with:', 'millrace audit verify'), more];
		return [list([...seen].reverse()), more];
	}, signal);
	return [heading('Audit'), all.el];
}
