// Draws the screen of a terminal as rows of spans.

import { h, fill } from './h.js';

/**
 * @typedef {Object} Cells cells with one style
 * @property {string} t text
 * @property {number} [w] columns, if they are not the number of characters
 * @property {string|number|null} [f] color of the text
 * @property {string|number|null} [b] color behind it
 * @property {number} [a] attributes
 */

/** Classes of the attributes, by bit. */
const classes = ['bold', 'faint', 'italic', 'under', 'blink', '', 'conceal', 'strike'];
const inverse = 32;

/** The first 16 colors for a dark and a light background. */
const palettes = {
	dark: ['#3b4048', '#f07178', '#8ccf7e', '#e5c76b', '#67b0e8', '#c47fd5', '#6cbfbf', '#d6d9dc', '#6b737d', '#ff8b92', '#a5e49a', '#f4d67a', '#8ccbff', '#dda0ea', '#8fdede', '#ffffff'],
	light: ['#1d1f21', '#b3261e', '#226b2d', '#7d5a00', '#0b5cad', '#86358f', '#00696d', '#5c6370', '#4a5058', '#c9342b', '#2d8239', '#946c00', '#1670c9', '#9c45a6', '#00797e', '#8a9099'],
};
const dark = matchMedia('(prefers-color-scheme: dark)');

/** Returns the CSS color of a color of the record. */
function color(c) {
	if (typeof c === 'string') return c;
	if (c < 16) return palettes[dark.matches ? 'dark' : 'light'][c];
	if (c >= 232) return `rgb(${Array(3).fill(8 + (c - 232) * 10).join(' ')})`;
	const level = (n) => (n ? 55 + n * 40 : 0);
	const n = c - 16;
	return `rgb(${level(Math.floor(n / 36))} ${level(Math.floor(n / 6) % 6)} ${level(n % 6)})`;
}

const isSet = (c) => c !== undefined && c !== null;

/** Returns the node of cells: text alone if they have no style. @param {Cells} g */
function cells(g) {
	const attributes = g.a || 0;
	if (!attributes && !isSet(g.f) && !isSet(g.b) && !g.w) return document.createTextNode(g.t);
	const names = classes.filter((name, bit) => name && attributes & (1 << bit));
	if (g.w) names.push('wide');
	const el = h('span', { class: names.join(' ') || null }, g.t);
	let front = isSet(g.f) ? color(g.f) : '', back = isSet(g.b) ? color(g.b) : '';
	if (attributes & inverse) [front, back] = [back || 'var(--term-bg)', front || 'var(--term-fg)'];
	if (front) el.style.color = front;
	if (back) el.style.background = back;
	if (g.w) el.style.width = g.w + 'ch';
	return el;
}

/** A screen. */
export class Screen {
	constructor() {
		this.cursor = h('div.cursor', { 'aria-hidden': 'true' });
		this.grid = h('div.grid');
		this.el = h('div.term', { role: 'region', 'aria-label': 'Terminal', tabindex: '0', 'data-test': 'screen' }, this.grid);
		this.rows = [];
		this.frame = null;
		dark.addEventListener('change', () => this.frame && this.draw(this.frame));
	}

	/** Returns the path of the screen after an event; 0 is the last. @param {number} seq */
	source(seq) { return 'screen' + (seq ? '?seq=' + seq : ''); }

	/** Draws a whole screen. @param {any} frame response of /screen */
	draw(frame) {
		this.frame = frame;
		this.size(frame.cols, frame.rows);
		frame.lines.forEach((line, y) => this.row(y, line));
		this.head(frame);
	}

	/** Sets the number of columns and rows. */
	size(cols, rows) {
		Object.assign(this.frame, { cols, rows });
		this.frame.lines.length = rows;
		while (this.rows.length > rows) this.rows.pop().remove();
		while (this.rows.length < rows) {
			const el = h('div.row');
			this.rows.push(el);
			this.grid.append(el);
		}
		this.grid.append(this.cursor);
		this.el.setAttribute('aria-label', `Terminal, ${cols} columns, ${rows} rows`);
	}

	/** Draws one row. @param {number} y @param {Cells[]} line */
	row(y, line) {
		if (!this.rows[y]) return;
		this.frame.lines[y] = line;
		fill(this.rows[y], line.map(cells));
	}

	/** Draws the rows that changed. @param {any} change the event rows of /screen/live */
	change(change) {
		for (const [y, line] of Object.entries(change.rows)) this.row(Number(y), line);
		Object.assign(this.frame, { seq: change.seq, cursor: change.cursor, title: change.title ?? this.frame.title });
		this.head(this.frame);
	}

	/** Places the cursor. */
	head({ cursor, seq }) {
		this.cursor.hidden = !cursor.visible;
		this.cursor.style.left = cursor.x + 'ch';
		const row = this.rows[cursor.y];
		this.cursor.style.top = (row ? row.offsetTop : 0) + 'px';
		this.el.dataset.seq = seq;
	}

	/** Returns the size that fits into the element, of which height limits the rows. */
	fit(height) {
		const probe = h('span', null, 'M'.repeat(20));
		this.grid.append(probe);
		const width = probe.getBoundingClientRect().width / 20;
		probe.remove();
		const line = this.rows[0] ? this.rows[0].getBoundingClientRect().height : 17;
		const room = this.el.clientWidth - 16;
		return { cols: Math.max(20, Math.floor(room / width)), rows: Math.max(6, Math.min(60, Math.floor(height / line))) };
	}
}
