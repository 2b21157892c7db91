// A terminal: its screen, its record, and the writer's lease.

import { h, fill } from './h.js';
import { follow } from './api.js';
import { Recording, report } from './record.js';
import { Screen } from './screen.js';
import { Writer } from './writer.js';
import { bytesOf } from './keys.js';
import { button } from './ui.js';

/** The page of a terminal. */
export class Terminal extends Recording {
	/** @param {ConstructorParameters<typeof Recording>[0]} o */
	constructor(o) {
		super(o, new Screen());
		this.screen = this.view;
		this.writer = new Writer(o.path, () => this.mode());
		this.other = h('span.muted', { role: 'status', 'data-test': 'other' });
		this.keys = h('textarea.keys', { 'aria-label': 'Keys for the terminal; Control Shift E leaves it', autocapitalize: 'off', autocomplete: 'off', spellcheck: 'false', tabindex: '-1' });
		this.screen.grid.append(this.keys);
		this.type = button('Type', () => this.toggle(), { class: 'primary', 'data-test': 'type', title: 'Ctrl+Shift+E leaves the terminal while you type' });
		this.hand = button('Hand over', () => this.writer.handOver(), { 'data-test': 'hand-over', hidden: true });
		this.title = h('span.muted.cut');
		this.build([this.writable && [this.type, this.hand, this.other], this.title]);
		this.listen();
		o.signal.addEventListener('abort', () => this.release());
		if (this.writable) this.writer.watch(o.signal);
	}

	/** Registers the listeners of keys. */
	listen() {
		const send = (text) => { if (text && this.writer.held) this.writer.send(text).catch(report); };
		this.keys.addEventListener('keydown', (e) => {
			if (e.ctrlKey && e.shiftKey && e.code === 'KeyE') { // Tab belongs to the terminal
				e.preventDefault();
				this.type.focus();
				return;
			}
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
		super.mode();
		this.screen.el.classList.toggle('typing', held);
		this.type.textContent = held ? 'Stop typing' : waits ? 'Stop waiting' : 'Type';
		this.type.classList.toggle('primary', !held && !waits);
		this.hand.hidden = !(held && state.asked);
		const other = held ? state.asked && `${state.asked} asks to type` : state.held && `${state.name || 'another client'} types`;
		fill(this.other, other);
		if (held && !this.typed) this.begin().catch(report);
		this.typed = held;
	}

	modeName() { return this.writer.held ? 'typing' : super.modeName(); }

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

	/** Follows the screen. */
	follow(signal, state) { return follow(this.path + '/screen/live', { signal, on: (e) => this.event(e), state }); }

	/** Draws an event of the live screen. */
	event({ type, data }) {
		if (type === 'screen') this.screen.draw(data);
		else if (type === 'resize') this.screen.size(data.cols, data.rows);
		else if (type === 'rows') this.screen.change(data);
		this.moved(data.seq, data.last);
		fill(this.title, this.screen.frame?.title || '');
		if (type !== 'end') return false;
		if (data.status === 'until') return true;
		this.writer.end();
		this.type.hidden = true;
		this.end();
		return true;
	}

	/** Gives the lease back, or stops waiting for it. */
	release() { if (this.writer.held || this.writer.waits) this.writer.release().catch(report); }

	/** Leaves the live end, and the lease with it. */
	leaveLive() {
		super.leaveLive();
		this.release();
	}
}
