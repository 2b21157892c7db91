// A terminal: its screen, the writer's lease, and the player.

import { h, fill } from './h.js';
import { session, open, get, follow } from './api.js';
import { Screen } from './screen.js';
import { Player } from './player.js';
import { Timeline } from './timeline.js';
import { Writer } from './writer.js';
import { bytesOf } from './keys.js';
import { share } from './share.js';
import { replace } from './router.js';
import { act, badge, button, copy, select, toast } from './ui.js';

const speeds = [0.5, 1, 2, 4, 8, 16, 32, 64];
const refresh = 5000; // milliseconds between reads of the timeline of a running process

const report = (err) => { if (err.name !== 'AbortError') toast(err.message, true); };

/** Fetches a file with the credentials of the page and saves it. */
export async function save(url, name) {
	const href = URL.createObjectURL(await (await open('GET', url)).blob());
	h('a', { href, download: name }).click();
	setTimeout(() => URL.revokeObjectURL(href), 1000);
}

/** The page of a terminal. */
export class Terminal {
	/**
	 * @param {Object} o
	 * @param {any} o.process
	 * @param {string} o.path of the process in the API
	 * @param {(seq: number) => string} o.link returns the fragment of an event; 0 is the live end
	 * @param {() => void} o.ended
	 * @param {AbortSignal} o.signal
	 */
	constructor(o) {
		Object.assign(this, o);
		this.last = 0;
		this.liveStop = null;
		this.screen = new Screen();
		this.player = new Player(o.path, (f) => this.past(f), o.signal);
		this.timeline = new Timeline((seq) => this.seek(seq));
		this.writer = new Writer(o.path, () => this.mode());
		this.status = h('span', { role: 'status', 'data-test': 'mode' });
		this.other = h('span.muted', { role: 'status', 'data-test': 'other' });
		this.build();
	}

	/** Builds the elements. */
	build() {
		const { signal } = this;
		this.keys = h('textarea.keys', { 'aria-label': 'Keys for the terminal', autocapitalize: 'off', autocomplete: 'off', spellcheck: 'false', tabindex: '-1' });
		this.screen.grid.append(this.keys);
		this.type = button('Type', () => this.toggle(), { class: 'primary', 'data-test': 'type' });
		this.hand = button('Hand over', () => this.writer.handOver(), { 'data-test': 'hand-over', hidden: true });
		this.live = h('button', { type: 'button', onclick: () => this.watch() }, 'Live');
		this.playButton = h('button', { type: 'button', 'data-test': 'play', onclick: () => this.togglePlay() }, 'Play');
		this.speed = select(speeds.map((s) => [String(s), s + '×']), { 'aria-label': 'Speed', onchange: () => { this.player.speed = Number(this.speed.value); } }, '1');
		this.title = h('span.muted');
		const writable = !session.share && this.process.state !== 'ended';
		this.el = h('div', null,
			h('div.bar.center', null, this.status, writable && [this.type, this.hand, this.other], this.title),
			this.screen.el, this.controls());
		this.listen();
		const timer = setInterval(() => this.process.state !== 'ended' && !document.hidden && this.loadTimeline(), refresh);
		signal.addEventListener('abort', () => { clearInterval(timer); if (this.writer.held || this.writer.waits) this.writer.release().catch(() => {}); });
		if (writable) this.writer.watch(signal);
	}

	/** Returns the player's controls. */
	controls() {
		const query = h('input', { type: 'search', placeholder: 'Search the output', 'aria-label': 'Search the output', name: 'q' });
		this.hits = h('ul.hits', { 'aria-label': 'Hits' });
		const search = h('form.bar.grow', { onsubmit: act(() => this.search(query.value, 0)) }, h('div.grow.track', null, query), h('button', { type: 'submit' }, 'Search'));
		return h('div.player', null, this.timeline.el,
			h('div.bar', null, this.playButton, this.speed, this.live, this.timeline.text),
			h('div.bar', null, search,
				button('Copy link', () => copy(new URL(this.link(this.liveStop ? 0 : this.player.seq), location.href).href)),
				button('Export', () => save(this.path + '/export.cast', this.process.process + '.cast')),
				!session.share && button('Share', () => share({ process: this.process.process }, this.screen.frame?.seq), { 'data-test': 'share' })),
			this.hits);
	}

	/** Registers the listeners of keys. */
	listen() {
		const send = (text) => { if (text && this.writer.held) this.writer.send(text).catch(report); };
		this.keys.addEventListener('keydown', (e) => {
			const bytes = bytesOf(e);
			if (!bytes || !this.writer.held) return;
			e.preventDefault();
			send(bytes);
		});
		this.keys.addEventListener('input', (e) => {
			if (e.isComposing) return;
			send(this.keys.value.replaceAll('\n', '\r'));
			this.keys.value = '';
		});
		this.keys.addEventListener('compositionend', () => {
			send(this.keys.value);
			this.keys.value = '';
		});
		this.screen.el.addEventListener('mouseup', () => { if (this.writer.held && getSelection().isCollapsed) this.keys.focus({ preventScroll: true }); });
		this.screen.el.addEventListener('focus', () => { if (this.writer.held) this.keys.focus({ preventScroll: true }); });
		new ResizeObserver(() => {
			clearTimeout(this.fitting);
			this.fitting = setTimeout(() => { if (this.writer.held) this.fit().catch(report); }, 150);
		}).observe(this.screen.el.parentElement || this.screen.el);
	}

	/** Shows whether this page types or watches, and who else types. */
	mode() {
		const { held, waits, state } = this.writer;
		this.screen.el.classList.toggle('typing', held);
		this.type.textContent = held ? 'Stop typing' : waits ? 'Stop waiting' : 'Type';
		this.type.classList.toggle('primary', !held && !waits);
		this.hand.hidden = !(held && state.asked);
		const shown = held ? 'typing' : this.liveStop ? 'watching' : this.player.playing ? 'replay' : 'past';
		const other = held ? state.asked && `${state.asked} asks to type` : state.held && `${state.name || 'another client'} types`;
		fill(this.status, badge(this.process.state === 'ended' && this.liveStop ? 'ended' : shown));
		fill(this.other, other);
		this.live.disabled = this.liveStop !== null;
		this.playButton.textContent = this.player.playing ? 'Pause' : 'Play';
		if (held && !this.typed) this.begin().catch(report);
		this.typed = held;
	}

	/** Begins to type: takes the focus and fits the terminal. */
	async begin() {
		this.keys.focus({ preventScroll: true });
		await this.fit();
	}

	/** Takes or gives back the lease. */
	async toggle() {
		if (this.writer.held || this.writer.waits) return this.writer.release();
		if (!this.liveStop) this.watch();
		await this.writer.take();
	}

	/** Makes the terminal as large as its place on the page. */
	async fit() {
		if (!this.screen.frame) return;
		const size = this.screen.fit(innerHeight * 0.62);
		const { cols, rows } = this.screen.frame;
		if (size.cols !== cols || size.rows !== rows) await this.writer.size(size);
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
		follow(this.path + '/screen/live', { signal, on: (e) => this.event(e), state: (live) => this.el.classList.toggle('stale', !live) }).catch(report);
	}

	stopLive() {
		if (this.liveStop) this.liveStop.abort();
		this.liveStop = null;
	}

	/** Draws an event of the live screen. */
	event({ type, data }) {
		if (type === 'screen') this.screen.draw(data);
		else if (type === 'resize') this.screen.size(data.cols, data.rows);
		else if (type === 'rows') this.screen.change(data);
		this.last = Math.max(this.last, data.last || data.seq);
		this.timeline.at(data.seq, this.last);
		fill(this.title, this.screen.frame?.title || '');
		if (type !== 'end') return false;
		this.process.state = 'ended';
		this.writer.end();
		this.type.hidden = true;
		this.loadTimeline();
		this.ended();
		return true;
	}

	/** Draws a screen of the past. */
	past(frame) {
		if (this.liveStop) return;
		this.screen.draw(frame);
		this.last = Math.max(this.last, frame.last);
		this.timeline.at(frame.seq, this.last);
		replace(this.link(frame.seq));
		this.mode();
	}

	/** Leaves the live end, and the lease with it. */
	leaveLive() {
		this.stopLive();
		if (this.writer.held || this.writer.waits) this.writer.release().catch(report);
	}

	/** Shows the screen after an event. @param {number} seq */
	seek(seq) {
		this.leaveLive();
		this.player.pause();
		return this.player.seek(seq).catch(report);
	}

	/** Starts or pauses the replay, from the begin if the end is shown. */
	async togglePlay() {
		if (this.player.playing) {
			this.player.pause();
			this.mode();
			return;
		}
		const shown = this.screen.frame ? this.screen.frame.seq : 0;
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
			const t = await get(this.path + '/timeline?buckets=240', this.signal);
			this.last = Math.max(this.last, t.last);
			this.timeline.set(t);
			if (this.screen.frame) this.timeline.at(this.screen.frame.seq, this.last);
		} catch (err) {
			report(err);
		}
	}

	/** Begins at an event; 0 is the live end. @param {number} seq */
	start(seq) {
		this.loadTimeline();
		if (seq) this.seek(seq);
		else this.watch();
		return this.el;
	}
}
