// The hosts, for operators.

import { h } from '../h.js';
import { call, get } from '../api.js';
import { region, table, heading, badge, button, confirm, toast, empty } from '../ui.js';
import { bytes, duration } from '../format.js';

const refresh = 3000; // milliseconds between readings

/** Returns a share of a whole with its numbers. */
function share(used, total, text) {
	const max = Math.max(total, 1);
	return h('div', null, h('meter', { min: 0, max, value: used, high: max * 0.9, 'aria-label': text }), h('div.muted', null, text));
}

/** Drains a host after showing what would be lost with it. */
async function drain(name, reload) {
	const found = await get(`/v1/hosts/${encodeURIComponent(name)}/undrainable`);
	const items = found.undrainable.map((x) => h('li', null, h('strong', null, x.kind), ' ', h('span.mono', null, x.name || x.id), ': ', x.reason));
	const text = [h('p', null, 'No sandboxes are placed on the host any more. What it has keeps running.')];
	if (items.length) text.push(h('p', null, `Lost if the host were switched off now (${items.length}):`), h('ul.list', null, items));
	else text.push(h('p', null, 'Nothing would be lost if it were switched off now.'));
	if (!await confirm('Drain ' + name + '?', text, 'Drain')) return;
	await call('POST', `/v1/hosts/${encodeURIComponent(name)}/drain`);
	toast('Draining ' + name);
	reload();
}

async function undrain(name, reload) {
	await call('POST', `/v1/hosts/${encodeURIComponent(name)}/undrain`);
	toast('Sandboxes are placed on ' + name + ' again');
	reload();
}

function list(hosts, reload) {
	return table('Hosts', [
		{ name: 'Host', cell: (x) => h('span.mono', null, x.name) },
		{ name: 'State', cell: (x) => badge(x.state) },
		{ name: 'Sandboxes', cell: (x) => share(x.sandboxes, x.capacity, `${x.sandboxes} of ${x.capacity}`) },
		{ name: 'Processes', class: 'num', cell: (x) => x.processes },
		{ name: 'Load', cell: (x) => share(Math.min(x.load1, x.cpus), x.cpus, `${x.load1.toFixed(2)} on ${x.cpus} CPUs`) },
		{ name: 'Memory', cell: (x) => share(x.memory.total_bytes - x.memory.free_bytes, x.memory.total_bytes, `${bytes(x.memory.free_bytes)} free of ${bytes(x.memory.total_bytes)}`) },
		{ name: 'Drivers', cell: (x) => x.drivers.join(', ') },
		{ name: 'Lease', cell: (x) => `epoch ${x.epoch}, ${duration(x.lease.age_ms)} old of ${duration(x.lease.ttl_ms)}` },
		{ name: 'Actions', class: 'end', cell: (x) => h('div.actions', null, x.state === 'draining'
			? [h('span.muted', null, `${x.undrainable} would be lost`), button('Undrain', () => undrain(x.name, reload))]
			: button('Drain', () => drain(x.name, reload), { class: 'danger', 'aria-label': 'Drain ' + x.name })) },
	], hosts);
}

/** @param {import('../router.js').Context} c */
export function page({ signal }) {
	const all = region(async () => {
		const { hosts } = await get('/v1/hosts', signal);
		if (!hosts.length) return empty('No hosts', 'Start one:', 'millrace hostd --help');
		return list(hosts, all.reload);
	}, signal);
	const timer = setInterval(() => { if (!document.hidden && !all.el.contains(document.activeElement)) all.reload(); }, refresh);
	signal.addEventListener('abort', () => clearInterval(timer));
	return [heading('Hosts'), all.el];
}
