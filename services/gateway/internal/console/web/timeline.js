// Draws the timeline of a process above a slider.

import { h, svg, fill } from './h.js';
import { duration } from './format.js';

const height = 40;
const mostMarks = 24; // newest marks that have a button

/** Returns the bars of output over the seqs. Their height is logarithmic. */
function bars(t, x) {
	const most = Math.log1p(Math.max(...t.buckets.map((b) => b.bytes), 1));
	return t.buckets.map((b, i) => {
		const next = t.buckets[i + 1];
		const left = x(b.seq), right = next ? x(next.seq) : 1000, tall = (Math.log1p(b.bytes) / most) * (height - 4);
		return b.bytes > 0 && svg('rect', { x: left, y: height - tall, width: Math.max(1, right - left - 0.3), height: tall });
	});
}

/** Returns the name of a mark. */
function nameOf({ kind, text }) {
	if (kind === 'start') return kind;
	return kind === 'exit' || kind === 'signal' ? text : `${kind}: ${text}`;
}

/** Returns a timeline with a slider. */
export class Timeline {
	/** @param {(seq: number) => void} moved called when the user moves the slider */
	constructor(moved) {
		this.data = null;
		this.now = svg('line', { class: 'now', y1: 0, y2: height, x1: 0, x2: 0 });
		this.chart = svg('svg', { class: 'density', viewBox: `0 0 1000 ${height}`, preserveAspectRatio: 'none', 'aria-hidden': 'true' });
		this.slider = h('input', { type: 'range', min: 1, max: 1, step: 1, 'aria-label': 'Event of the record', 'data-test': 'slider', oninput: () => moved(Number(this.slider.value)) });
		this.moved = moved;
		this.marks = h('div.bar.jumps', { role: 'group', 'aria-label': 'Moments of the record' });
		this.text = h('span.muted.mono');
		this.el = h('div.track', null, this.chart, this.slider);
	}

	/** Shows a timeline. @param {any} data response of /timeline */
	set(data) {
		this.data = data;
		this.slider.min = String(Math.max(1, data.first));
		this.slider.max = String(Math.max(1, data.last));
		const x = (seq) => ((seq - data.first) / Math.max(1, data.last - data.first)) * 1000;
		const marks = data.marks.map((m) => svg('line', { y1: 0, y2: height, x1: x(m.seq), x2: x(m.seq) }, svg('title', {}, `${m.kind} ${m.text}`)));
		fill(this.chart, bars(data, x), marks, this.now);
		this.x = x;
		this.list(data.marks.filter((m) => m.kind !== 'resize').slice(-mostMarks));
		this.at(Number(this.slider.value));
	}

	/** Shows a button for each mark, unless they are there. */
	list(marks) {
		const key = marks.map((m) => m.seq).join();
		if (key === this.shown) return;
		this.shown = key;
		fill(this.marks, marks.map((m) => h('button.quiet', { type: 'button', title: 'event ' + m.seq, onclick: () => this.moved(m.seq) }, nameOf(m).slice(0, 60))));
	}

	/** Returns the time of an event since the start, as far as the buckets tell. */
	timeOf(seq) {
		let found = this.data.start;
		for (const b of this.data.buckets) {
			if (b.seq > seq) break;
			found = b.time;
		}
		return Date.parse(found) - Date.parse(this.data.start);
	}

	/** Moves to an event without a call of moved. @param {number} seq @param {number} [last] */
	at(seq, last) {
		if (last > Number(this.slider.max)) this.slider.max = String(last);
		this.slider.value = String(seq);
		if (!this.data) return;
		const x = this.x(Math.min(seq, this.data.last));
		this.now.setAttribute('x1', x);
		this.now.setAttribute('x2', x);
		const text = `event ${seq} of ${this.slider.max}` + (seq <= this.data.last ? `, +${duration(this.timeOf(seq))}` : '');
		this.slider.setAttribute('aria-valuetext', text);
		fill(this.text, text);
	}
}
