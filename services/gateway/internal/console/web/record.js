// The record of a process: its end as it grows or a moment of the past, a timeline, replay,
// search, share links and export.

import { h, fill } from './h.js';
import { session, open, get, getLong } from './api.js';
import { Player } from './player.js';
import { Timeline } from './timeline.js';
import { share } from './share.js';
import { replace } from './router.js';
import { act, badge, button, copy, problem, select, toast } from './ui.js';

const speeds = [0.5, 1, 2, 4, 8, 16, 32, 64];
const refresh = 5000; // milliseconds between reads of the timeline of a running process

export const report = (err) => { if (err.name !== 'AbortError') toast(err.message, true); };

/** Fetches a file with the credentials of the page and saves it. */
export async function save(url, name) {
	const href = URL.createObjectURL(await (await open('GET', url)).blob());
	h('a', { href, download: name }).click();
	setTimeout(() => URL.revokeObjectURL(href), 1000);
}

/**
 * @typedef {Object} View shows a moment of a record
 * @property {HTMLElement} el
 * @property {any} frame what it shows: seq, last and ended
 * @property {(seq: number, replay: boolean) => string} source path of a frame, below that of the process
 * @property {(frame: any) => void} draw
 */

/** A page that shows a record. The subclass follows its live end. */
export class Recording {
	/**
	 * @param {Object} o
	 * @param {any} o.process
	 * @param {string} o.path of the process in the API
	 * @param {(seq: number) => string} o.link returns the fragment of an event; 0 is the live end
	 * @param {number} o.until last event that the page may show; 0 is no limit
	 * @param {() => void} o.ended
	 * @param {AbortSignal} o.signal
	 * @param {View} view
	 */
	constructor(o, view) {
		Object.assign(this, o, { view, last: 0, liveStop: null });
		this.writable = !session.share && o.process.state !== 'ended';
		this.player = new Player((seq) => `${o.path}/${view.source(seq, this.player.playing)}`, o.path, (f) => this.past(f), o.signal);
		this.timeline = new Timeline((seq) => this.seek(seq));
		this.status = h('span', { role: 'status', 'data-test': 'mode' });
	}

	/** Builds the element. @param {any} bar content of the bar above the view @param {any} [below] */
	build(bar, below) {
		this.el = h('div.recording', null, h('div.bar.center', null, this.status, bar), this.view.el, below, this.controls());
		const timer = setInterval(() => this.process.state !== 'ended' && !document.hidden && this.loadTimeline(), refresh);
		this.signal.addEventListener('abort', () => clearInterval(timer));
	}

	/** Returns the player's controls. */
	controls() {
		this.live = h('button', { type: 'button', onclick: () => this.watch(), hidden: this.until > 0 }, 'Live');
		this.playButton = h('button', { type: 'button', 'data-test': 'play', onclick: () => this.togglePlay() }, 'Play');
		this.speed = select(speeds.map((s) => [String(s), s + '×']), { 'aria-label': 'Speed', onchange: () => { this.player.speed = Number(this.speed.value); } }, '1');
		const query = h('input', { type: 'search', placeholder: 'Search the output', 'aria-label': 'Search the output', name: 'q' });
		this.hits = h('ul.hits', { 'aria-label': 'Hits' });
		const search = h('form.bar.grow.search', { onsubmit: act(() => this.search(query.value, 0)) }, h('div.grow.track', null, query), h('button', { type: 'submit' }, 'Search'));
		const id = this.process.process;
		return h('div.player', null, this.timeline.el,
			h('div.bar', null, this.playButton, this.speed, this.live, this.timeline.text),
			this.timeline.marks,
			h('div.bar', null, search,
				button('Copy link', () => copy(new URL(this.link(this.liveStop ? 0 : this.player.seq), location.href).href)),
				button('Export', () => save(this.path + '/export.cast', id + '.cast'), { 'data-test': 'export', title: 'Save the record as .cast for asciinema' }),
				!session.share && button('Share', () => share({ process: id }, this.view.frame?.seq), { 'data-test': 'share' })),
			this.hits);
	}

	/** Shows what the page does: it follows the end, replays, or shows the past. */
	mode() {
		fill(this.status, badge(this.modeName()));
		this.live.disabled = this.liveStop !== null;
		this.playButton.textContent = this.player.playing ? 'Pause' : 'Play';
	}

	modeName() {
		if (this.liveStop) return this.process.state === 'ended' ? 'ended' : 'watching';
		return this.player.playing ? 'replay' : 'past';
	}

	/** Follows the live end. */
	watch() {
		this.player.pause();
		this.stopLive();
		const stop = new AbortController();
		this.liveStop = stop;
		replace(this.link(0));
		this.mode();
		const signal = AbortSignal.any([this.signal, stop.signal]);
		this.follow(signal, (live) => this.el.classList.toggle('stale', !live)).catch(report);
	}

	stopLive() {
		if (this.liveStop) this.liveStop.abort();
		this.liveStop = null;
	}

	/** Leaves the live end. */
	leaveLive() { this.stopLive(); }

	/** Shows that the process has ended. */
	end() {
		const known = this.process.state === 'ended';
		this.process.state = 'ended';
		this.mode();
		if (known) return;
		this.loadTimeline();
		this.ended();
	}

	/** Marks an event of the live end on the timeline. */
	moved(seq, last = seq) {
		this.last = Math.max(this.last, last);
		this.timeline.at(seq, this.last);
	}

	/** Draws a moment of the past. */
	past(frame) {
		if (this.liveStop) return;
		this.view.draw(frame);
		this.moved(frame.seq, frame.last);
		replace(this.link(frame.seq));
		this.mode();
	}

	/** Shows the moment after an event. @param {number} seq */
	seek(seq) {
		this.leaveLive();
		this.player.pause();
		return this.player.seek(seq).catch(report);
	}

	/** Starts or pauses the replay, from the beginning if the end is shown. */
	async togglePlay() {
		if (this.player.playing) {
			this.player.pause();
			this.mode();
			return;
		}
		const shown = this.view.frame ? this.view.frame.seq : 0;
		this.leaveLive();
		const running = this.player.play(shown >= this.last ? 0 : shown);
		this.mode();
		await running.catch(report);
		this.mode();
	}

	/** Lists where a text is in the output. */
	async search(q, after) {
		if (!q) { fill(this.hits); return; }
		const found = await get(`${this.path}/search?` + new URLSearchParams({ q, after }), this.signal);
		const items = found.hits.map((x) => h('li', null, h('button', { type: 'button', 'data-test': 'hit', onclick: () => this.seek(x.seq) }, `${x.seq}  ${x.line.trim().slice(0, 200)}`)));
		if (!after) fill(this.hits);
		this.hits.append(...items);
		if (!this.hits.childElementCount && !found.next) fill(this.hits, h('li.muted', null, 'Nothing found'));
		if (found.next) this.hits.append(h('li', null, button('More', async (ev) => { ev.target.closest('li').remove(); await this.search(q, found.next); })));
	}

	async loadTimeline() {
		try {
			const t = await getLong(this.path + '/timeline?buckets=240', this.signal);
			this.last = Math.max(this.last, t.last);
			this.timeline.set(t);
			if (this.view.frame) this.timeline.at(this.view.frame.seq, this.last);
		} catch (err) {
			report(err);
		}
	}

	/**
	 * Begins at an event; 0 is the live end. It returns when there is something to show, so that the page
	 * does not move while it loads.
	 * @param {number} seq
	 */
	async start(seq) {
		const at = seq || this.until;
		try {
			const first = getLong(`${this.path}/${this.view.source(at, false)}`, this.signal);
			const [frame] = await Promise.all([first, this.loadTimeline()]);
			this.view.draw(frame);
			this.player.seq = frame.seq;
			this.moved(frame.seq, frame.last);
			if (at) this.mode();
			else this.watch();
		} catch (err) {
			if (err.name !== 'AbortError') fill(this.el, problem(err));
		}
		return this.el;
	}
}
