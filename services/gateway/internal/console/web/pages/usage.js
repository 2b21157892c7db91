// Usage of the tenant.

import { h, svg } from '../h.js';
import { get } from '../api.js';
import { region, heading, facts, select, field, empty } from '../ui.js';
import { when } from '../format.js';

/** Returns a line chart of values over time. */
function chart(points, of, label) {
	const peak = Math.max(...points.map(of)), scale = peak || 1;
	const x = (i) => (points.length < 2 ? 0 : (i / (points.length - 1)) * 1000);
	const line = points.map((p, i) => `${x(i).toFixed(1)},${(96 - (of(p) / scale) * 88).toFixed(1)}`).join(' ');
	const last = points[points.length - 1];
	return h('figure', null,
		h('figcaption', null, h('strong', null, label), h('span.muted', null, ` peak ${peak}, last ${of(last)}, ${when(points[0].timestamp)} to ${when(last.timestamp)}`)),
		svg('svg', { class: 'chart', viewBox: '0 0 1000 100', preserveAspectRatio: 'none', role: 'img', 'aria-label': `${label}: peak ${peak}` },
			svg('polyline', { points: line, 'stroke-width': 1.5, 'vector-effect': 'non-scaling-stroke' })));
}

/** Returns the charts of a span of time. */
async function charts(seconds, signal) {
	const [team] = await get('/teams', signal);
	const end = Math.floor(Date.now() / 1000);
	const points = await get(`/teams/${encodeURIComponent(team.teamID)}/metrics?start=${end - seconds}&end=${end}`, signal);
	if (!points.length) return empty('No readings yet', 'Usage appears a few seconds after the first sandbox:', "millrace run 'echo hello'");
	return [
		chart(points, (p) => p.concurrentSandboxes, 'Concurrent sandboxes'),
		chart(points, (p) => Math.round(p.sandboxStartRate * 100) / 100, 'Sandboxes started per second'),
	];
}

/** Returns what the tenant used in this month. */
async function month(signal) {
	const u = await get('/v1/usage', signal);
	return facts([
		['Tenant', u.tenant_id], ['Period', u.period], ['Sandboxes', String(u.infra_usage.sandbox_count)],
		['CPU seconds', u.infra_usage.cpu_seconds.toLocaleString()], ['Cost', u.infra_usage.credits_used_usd.toFixed(2) + ' USD'],
		['Balance', u.credits.balance_usd.toFixed(2) + ' USD'],
	]);
}

/** @param {import('../router.js').Context} c */
export function page({ signal }) {
	const spans = [['3600', 'last hour'], ['86400', 'last day'], ['604800', 'last 7 days']];
	const span = select(spans, { onchange: () => lines.reload() }, '3600');
	const sum = region(() => month(signal), signal);
	const lines = region(() => charts(Number(span.value), signal), signal);
	return [heading('Usage'), sum.el, h('section', null, h('div.bar', null, field('Span', span)), lines.el)];
}
