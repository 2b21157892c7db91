// Draws the timeline of a sandbox: a lane for each process, lines for what happened to the sandbox.

import { h } from './h.js';
import { duration, when } from './format.js';

const most = 60; // lanes that are shown, of the newest processes

/** Places an element between two parts of the width. @param {HTMLElement} el */
function place(el, left, right = left) {
	el.style.left = left + '%';
	if (right > left) el.style.width = right - left + '%';
	return el;
}

/**
 * Returns the timeline.
 * @param {any} t response of /v1/timeline
 * @param {(process: string) => string} link returns the fragment of a process
 */
export function lanes(t, link) {
	const from = Date.parse(t.start), to = t.end ? Date.parse(t.end) : Date.now(), span = Math.max(to - from, 1);
	const x = (time) => Math.min(100, Math.max(0, ((Date.parse(time) - from) / span) * 100));
	const moments = t.marks.filter((m) => m.kind !== 'created' && m.kind !== 'ended').map((m) => place(h('span.moment', { title: `${m.kind} ${m.text}, ${when(m.time)}` }), x(m.time)));
	const lane = (p) => {
		const left = p.start ? x(p.start) : 0, right = p.end ? x(p.end) : 100;
		const took = p.start && duration((p.end ? Date.parse(p.end) : to) - Date.parse(p.start));
		const name = place(h('span.name', null, p.cmd.replace(/^\/bin\/bash -l -c /, '').slice(0, 120)), Math.min(left, 55));
		return h('a.lane', { href: link(p.id), title: [p.cmd.slice(0, 200), p.status, took].filter(Boolean).join('\n') },
			place(h('span', { class: 'run ' + p.status }), left, right), name);
	};
	const shown = t.processes.slice(-most);
	const axis = h('div.axis.muted', null, h('span', null, when(t.start)), h('span', null, duration(to - from)), h('span', null, t.end ? when(t.end) : 'now'));
	return h('div.lanes', { role: 'group', 'aria-label': 'Processes over the life of the sandbox', 'data-test': 'lanes' }, axis, h('div.tracks', null, moments, shown.map(lane)));
}

/** Returns what happened to a sandbox as a list. @param {{name: string, text: string, time: string}[]} all */
export function moments(all, start) {
	const first = Date.parse(start);
	return h('ol.marks', null, all.map((m) => h('li', null, h('strong', null, m.name), ' ', h('span.muted', null, m.text), ' ',
		h('time', { datetime: m.time, title: when(m.time) }, '+' + duration(Date.parse(m.time) - first)))));
}
