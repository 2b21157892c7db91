// Elements that several pages use.

import { h, fill } from './h.js';
import { when, ago } from './format.js';

const $ = (id) => document.getElementById(id);

/**
 * Shows a short message. An error stays until the next message.
 * @param {string} text
 * @param {boolean} [bad]
 */
export function toast(text, bad = false) {
	const el = $('toast');
	el.className = bad ? 'bad shown' : 'shown';
	fill(el, h('span', null, text), h('button.quiet', { onclick: () => { el.className = ''; }, 'aria-label': 'Dismiss' }, '×'));
	clearTimeout(toast.timer);
	if (!bad) toast.timer = setTimeout(() => { el.className = ''; }, 4000);
}

/**
 * Returns a listener that runs an action, disables its button meanwhile and shows errors.
 * @param {(e: Event) => Promise<any>} action
 */
export function act(action) {
	return async (e) => {
		e.preventDefault();
		const form = e.currentTarget;
		const button = form.tagName === 'FORM' ? form.querySelector('button[type=submit]') : form;
		if (button) button.disabled = true;
		try {
			await action(e);
		} catch (err) {
			if (err.name !== 'AbortError') toast(err.message, true);
		} finally {
			if (button) button.disabled = false;
		}
	};
}

/**
 * Returns a button that runs an action.
 * @param {string} label
 * @param {(e: Event) => Promise<any>} action
 * @param {Object<string, any>} [props]
 */
export const button = (label, action, props) => h('button', { type: 'button', onclick: act(action), ...props }, label);

/**
 * Shows a dialog with a form and returns the value of the button that closed it; '' if it
 * was dismissed.
 * @param {string} title
 * @param {(Node|string)[]} content
 * @param {(Node)[]} buttons
 * @returns {Promise<string>}
 */
export function dialog(title, content, buttons) {
	const last = $('dialog');
	if (last.open) last.close('');
	const el = last.cloneNode(false); // the close event of the last one can be late
	el.removeAttribute('open');
	last.replaceWith(el);
	fill(el, h('form', { method: 'dialog' }, h('h2', { id: 'dialog-title' }, title), content, h('menu', null, buttons)));
	el.showModal();
	return new Promise((done) => el.addEventListener('close', () => done(el.returnValue), { once: true }));
}

/**
 * Asks before an action that cannot be undone.
 * @param {string} title
 * @param {string|Node|(string|Node)[]} text
 * @param {string} verb label of the button that confirms
 * @returns {Promise<boolean>}
 */
export async function confirm(title, text, verb) {
	const content = (Array.isArray(text) ? text : [text]).map((t) => (typeof t === 'string' ? h('p', null, t) : t));
	const answer = await dialog(title, content, [
		h('button', { value: '', autofocus: true }, 'Cancel'), h('button.danger', { value: 'yes', 'data-test': 'confirm' }, verb),
	]);
	return answer === 'yes';
}

/** @param {string} state */
export const badge = (state) => h('span', { class: 'badge ' + state }, state);

/** @param {string} time */
export const time = (t) => (t ? h('time', { datetime: t, title: when(t) }, ago(t)) : '–');

/**
 * Returns a link in a monospace font.
 * @param {string} href
 * @param {string} text
 */
export const code = (href, text) => h('a.mono', { href }, text);

/**
 * Returns what a list without items shows: why it is empty and the next command to run.
 * @param {string} title
 * @param {string} text
 * @param {string} [run]
 */
export function empty(title, text, run) {
	return h('div.empty', null, h('h2', null, title), h('p', null, text), run && h('pre', null, run));
}

/**
 * @typedef {Object} Column
 * @property {string} name
 * @property {(row: any) => any} cell
 * @property {string} [class]
 */

/**
 * Returns a table. On a phone each row becomes a card with the names of the columns.
 * @param {string} caption for screen readers
 * @param {Column[]} columns
 * @param {any[]} rows
 */
export function table(caption, columns, rows) {
	const head = h('tr', null, columns.map((c) => h('th', { scope: 'col', class: c.class }, c.name)));
	const body = rows.map((r) => h('tr', null, columns.map((c) => h('td', { 'data-label': c.name, class: c.class }, c.cell(r)))));
	return h('div.scroll', null, h('table', null, h('caption', null, caption), h('thead', null, head), h('tbody', null, body)));
}

/**
 * Returns a list of names and values.
 * @param {[string, any][]} pairs pairs without a value are left out
 */
export function facts(pairs) {
	const shown = pairs.filter(([, v]) => v !== undefined && v !== null && v !== '');
	return h('dl.facts', null, shown.map(([k, v]) => h('div', null, h('dt', null, k), h('dd', null, v))));
}

/**
 * Returns the head of a page.
 * @param {any} title
 * @param {...any} actions
 */
export const heading = (title, ...actions) => h('header.heading', null, h('h1', null, title), h('div.actions', null, actions));

/**
 * Returns a labelled field.
 * @param {string} label
 * @param {HTMLElement} input
 */
export const field = (label, input) => h('label.field', null, h('span', null, label), input);

/**
 * Returns a list of choices.
 * @param {[string, string][]} options values and labels
 * @param {Object<string, any>} props
 * @param {string} [current]
 */
export function select(options, props, current) {
	return h('select', props, options.map(([value, label]) => h('option', { value, selected: value === current }, label)));
}

/**
 * Copies text and says so.
 * @param {string} text
 */
export async function copy(text) {
	if (navigator.clipboard) {
		await navigator.clipboard.writeText(text);
	} else { // a page that came without TLS from another machine
		const el = h('textarea', { value: text });
		(document.querySelector('dialog[open]') || document.body).append(el);
		el.select();
		const done = document.execCommand('copy');
		el.remove();
		if (!done) throw new Error('the browser does not let this page copy');
	}
	toast('Copied');
}

/**
 * Returns a region that reload fills with what load returns. Calls that arrive while a load
 * runs cause one more.
 * @param {(signal: AbortSignal) => Promise<any>} load
 * @param {AbortSignal} signal
 */
export function region(load, signal) {
	const el = h('div.region', { 'aria-busy': 'true' });
	let running = false, again = false;
	const reload = async () => {
		if (running) { again = true; return; }
		running = true;
		do {
			again = false;
			try {
				const content = await load(signal);
				if (!signal.aborted) fill(el, content);
			} catch (err) {
				if (!signal.aborted) fill(el, problem(err));
			}
			el.removeAttribute('aria-busy');
		} while (again && !signal.aborted);
		running = false;
	};
	el.loaded = reload();
	return { el, reload };
}

const titles = { 401: 'No access', 403: 'Operators only', 404: 'Not found', 410: 'No longer stored', 502: 'Not running', 429: 'Too many requests', 503: 'Not available now' };

/** Returns a message for an error of a page. @param {Error & {status?: number}} err */
export function problem(err) {
	const title = titles[err.status] || 'Request failed';
	const text = err.message.slice(0, 1).toUpperCase() + err.message.slice(1).replace(/\.?$/, '.');
	return h('div.empty', { role: 'alert' }, h('h2', null, title), h('p', null, text));
}
