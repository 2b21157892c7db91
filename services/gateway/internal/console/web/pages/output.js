// The output of a process without a terminal, as it arrives.

import { h, fill } from '../h.js';
import { open, follow } from '../api.js';
import { badge, act } from '../ui.js';
import { path } from './process.js';

const maxSpans = 4000; // newest pieces of output that are shown

/** Escape sequences of terminals, which mean nothing in plain text. */
const escapes = /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])/g;

/** Returns the text of an output event. */
function textOf(e) {
	if (e.data !== undefined) return e.data;
	return new TextDecoder().decode(Uint8Array.from(atob(e.data_b64 || ''), (c) => c.charCodeAt(0)));
}

/** Returns what the record says instead of output. */
function noteOf(e) {
	switch (e.type) {
	case 'gap': return `[events ${e.from} to ${e.to} are not stored any more: ${e.reason}]\n`;
	case 'truncated': return `[${e.dropped} bytes of ${e.stream} were not stored]\n`;
	case 'lost': return `[the host fell silent: ${e.reason}]\n`;
	case 'signal': return `[signal ${e.signal}]\n`;
	default: return '';
	}
}

/** Appends an event to the output; it keeps the view at the end if it was there. */
function append(out, e) {
	const isOutput = e.type === 'stdout' || e.type === 'stderr' || e.type === 'pty';
	const text = isOutput ? textOf(e).replace(escapes, '').replaceAll('\r\n', '\n') : noteOf(e);
	if (!text) return;
	const atEnd = out.scrollHeight - out.scrollTop - out.clientHeight < 40;
	out.append(h('span', { class: e.type === 'stderr' ? 'err' : !isOutput && 'muted', 'data-seq': e.seq }, text));
	if (out.childElementCount > maxSpans) out.firstElementChild.remove();
	if (atEnd) out.scrollTop = out.scrollHeight;
}

/** Returns the form that sends lines to stdin. */
function input(p) {
	const line = h('input.mono', { 'aria-label': 'Line for stdin', placeholder: 'stdin', autocomplete: 'off', spellcheck: 'false' });
	const send = async () => {
		await open('POST', path(p.process) + '/stdin', undefined, { raw: line.value + '\n' });
		line.value = '';
	};
	return h('form.bar', { onsubmit: act(send) }, h('label.field.grow', null, h('span', null, 'Input'), line), h('button', { type: 'submit' }, 'Send'));
}

/**
 * Returns the output of a process and follows it.
 * @param {any} p the process
 * @param {number} seq the event to show, 0 for all
 * @param {() => void} ended called when the process ends
 * @param {AbortSignal} signal
 */
export function output(p, seq, ended, signal) {
	const out = h('pre.out', { tabindex: '0', role: 'log', 'aria-label': 'Output', 'data-test': 'output' }), status = h('span', { role: 'status' });
	const on = (e) => {
		append(out, e.data);
		if (e.data.seq === seq) out.lastElementChild?.scrollIntoView({ block: 'center' });
		if (e.type === 'end' || e.type === 'lost') {
			fill(status, badge('ended'));
			ended();
			return true;
		}
	};
	follow(path(p.process) + '/events', { signal, on, state: (live) => fill(status, badge(live ? 'live' : 'waiting')) })
		.catch((err) => fill(status, badge('error'), ' ', err.message));
	const record = `millrace attach ${p.process}`;
	return h('div', null, h('div.bar', null, status), out, p.state !== 'ended' && p.stdin && input(p), h('p.muted', null, 'The same in a shell: ', h('code', null, record)));
}
