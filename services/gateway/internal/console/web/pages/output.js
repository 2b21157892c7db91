// The output of a process without a terminal: its end as it grows, or its text up to an event.

import { h, fill } from '../h.js';
import { open, get, follow } from '../api.js';
import { Recording, report } from '../record.js';
import { act, button } from '../ui.js';

const maxParts = 4000;        // newest pieces of output that are shown at the live end
const size = 64 * 1024;       // bytes of output that are read at once
const replayed = 16 * 1024;   // bytes of output that a replay shows

/** Escape sequences of terminals, which mean nothing in plain text. */
const escapes = /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])/g;

/** The text of a process, which stands for the screen of a terminal. */
class Text {
	/** @param {string} path of the process @param {AbortSignal} signal */
	constructor(path, signal) {
		Object.assign(this, { path, signal, frame: null, decoders: {} });
		this.earlier = button('Earlier output', () => this.load(), { class: 'quiet', 'data-test': 'earlier', hidden: true });
		this.out = h('div.text');
		this.none = h('span.muted');
		this.el = h('pre.out', { tabindex: '0', role: 'log', 'aria-label': 'Output', 'data-test': 'output' }, this.earlier, this.none, this.out);
		new ResizeObserver((_, o) => { // once: it is shown at its end
			if (!this.el.clientHeight) return;
			o.disconnect();
			this.el.scrollTop = this.el.scrollHeight;
		}).observe(this.el);
	}

	/** Returns the path of the text up to an event; 0 is the last. */
	source(seq, replay) { return 'text?' + new URLSearchParams({ bytes: String(replay ? replayed : size), ...(seq && { seq: String(seq) }) }); }

	/** Returns the node of a part. */
	node({ seq, type, text }) {
		const output = type === 'stdout' || type === 'stderr' || type === 'pty';
		const shown = output ? text.replace(escapes, '').replaceAll('\r\n', '\n') : `[${text}]\n`;
		return h('span', { class: type === 'stderr' ? 'err' : !output && 'muted', 'data-seq': seq }, shown);
	}

	/** Draws the text up to an event. */
	draw(frame) {
		this.frame = frame;
		this.decoders = {};
		fill(this.out, frame.parts.map((p) => this.node(p)));
		this.state();
		this.el.dataset.seq = frame.seq;
		this.el.scrollTop = this.el.scrollHeight;
	}

	/** Shows whether there is earlier output, or none at all. */
	state() {
		this.earlier.hidden = !this.frame.earlier;
		fill(this.none, !this.out.childElementCount && !this.frame.earlier && 'No output yet');
	}

	/** Puts the output before the text, which keeps its place. */
	async load() {
		const { frame } = this;
		const more = await get(`${this.path}/${this.source(frame.earlier, false)}`, this.signal);
		if (this.frame !== frame) return;
		const below = this.el.scrollHeight - this.el.scrollTop;
		this.out.prepend(...more.parts.map((p) => this.node(p)));
		frame.earlier = more.earlier;
		this.state();
		this.el.scrollTop = this.el.scrollHeight - below;
	}

	/** Appends an event of the record; the view stays at the end if it was there. */
	append(e) {
		this.frame.seq = e.seq;
		this.el.dataset.seq = e.seq;
		const text = this.textOf(e);
		if (!text) return;
		const atEnd = this.el.scrollHeight - this.el.scrollTop - this.el.clientHeight < 40;
		this.out.append(this.node({ seq: e.seq, type: e.type, text }));
		if (this.out.childElementCount > maxParts) {
			this.out.firstElementChild.remove();
			this.frame.earlier = Number(this.out.firstElementChild.dataset.seq) - 1;
		}
		this.state();
		if (atEnd) this.el.scrollTop = this.el.scrollHeight;
	}

	/** Returns the text of an event, '' if it has none. */
	textOf(e) {
		switch (e.type) {
		case 'stdout': case 'stderr': case 'pty': {
			const decoder = this.decoders[e.type] ||= new TextDecoder();
			const raw = e.data === undefined ? Uint8Array.from(atob(e.data_b64 || ''), (c) => c.charCodeAt(0)) : new TextEncoder().encode(e.data);
			return decoder.decode(raw, { stream: true });
		}
		case 'gap': return `events ${e.from} to ${e.to} are not stored any more: ${e.reason}`;
		case 'truncated': return `${e.dropped} bytes of ${e.stream} were not stored`;
		case 'lost': return `the host fell silent: ${e.reason}`;
		case 'signal': return `signal ${e.signal}`;
		default: return '';
		}
	}
}

/** The page of a process without a terminal. */
export class Output extends Recording {
	/** @param {ConstructorParameters<typeof Recording>[0]} o */
	constructor(o) {
		super(o, new Text(o.path, o.signal));
		const shell = h('span.muted', null, 'In a shell: ', h('code', null, `millrace attach ${o.process.process}`));
		this.form = this.writable && o.process.stdin && this.input();
		this.build(!o.until && shell, this.form);
	}

	/** Returns the form that sends lines to stdin. */
	input() {
		const line = h('input.mono', { 'aria-label': 'Line for stdin', placeholder: 'stdin', name: 'stdin', autocomplete: 'off', spellcheck: 'false' });
		const send = async () => {
			await open('POST', this.path + '/stdin', undefined, { raw: line.value + '\n' });
			line.value = '';
		};
		return h('form.bar.stdin', { onsubmit: act(send) }, h('label.field.grow', null, h('span', null, 'Input'), line), h('button', { type: 'submit' }, 'Send'));
	}

	/** Follows the record after the text that is shown. */
	async follow(signal, state) {
		const { view } = this;
		if (!view.frame || view.frame.seq < Math.max(this.last, view.frame.last)) {
			view.draw(await get(`${this.path}/${view.source(0, false)}`, signal));
		}
		this.moved(view.frame.seq, view.frame.last);
		if (view.frame.ended && view.frame.seq === view.frame.last) {
			this.end();
			return;
		}
		const on = ({ type, data }) => {
			if (!data.seq) return false;
			view.append(data);
			this.moved(data.seq);
			if (type !== 'end' && type !== 'lost') return false;
			if (this.form) this.form.hidden = true;
			this.end();
			return true;
		};
		await follow(`${this.path}/events?after=${view.frame.seq}`, { signal, on, state }).catch(report);
	}
}
