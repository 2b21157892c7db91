// The frame of the console: sign-in, navigation and the current page.

import { h, fill } from './h.js';
import { session, signIn, signOut, onRejected, call } from './api.js';
import { start } from './router.js';
import { problem, act } from './ui.js';
import { pageName } from './names.js';
import * as sandboxes from './pages/sandboxes.js';
import * as sandbox from './pages/sandbox.js';
import * as files from './pages/files.js';
import * as processes from './pages/processes.js';
import * as process from './pages/process.js';
import * as events from './pages/events.js';
import * as hosts from './pages/hosts.js';
import * as templates from './pages/templates.js';
import * as keys from './pages/keys.js';
import * as usage from './pages/usage.js';
import * as audit from './pages/audit.js';
import * as shared from './pages/shared.js';

/** @type {import('./router.js').Route[]} */
const routes = [
	{ pattern: '', title: 'Sandboxes', nav: 'sandboxes', page: sandboxes.page },
	{ pattern: 'sandboxes', title: 'Sandboxes', nav: 'sandboxes', page: sandboxes.page },
	{ pattern: 'sandboxes/:id', title: 'Sandbox', nav: 'sandboxes', page: sandbox.page },
	{ pattern: 'sandboxes/:id/files', title: 'Files', nav: 'sandboxes', page: files.page },
	{ pattern: 'processes', title: 'Processes', nav: 'processes', page: processes.page },
	{ pattern: 'p/:id', title: 'Process', nav: 'processes', page: process.page },
	{ pattern: 'p/:id/:seq', title: 'Process', nav: 'processes', page: process.page },
	{ pattern: 'events', title: 'Events', nav: 'events', page: events.page },
	{ pattern: 'hosts', title: 'Hosts', nav: 'hosts', page: hosts.page },
	{ pattern: 'templates', title: 'Templates', nav: 'templates', page: templates.page },
	{ pattern: 'templates/new', title: 'Build a template', nav: 'templates', page: templates.make },
	{ pattern: 'templates/:id', title: 'Template', nav: 'templates', page: templates.one },
	{ pattern: 'templates/:id/:build', title: 'Build', nav: 'templates', page: templates.build },
	{ pattern: 'keys', title: 'Keys', nav: 'keys', page: keys.page },
	{ pattern: 'usage', title: 'Usage', nav: 'usage', page: usage.page },
	...['s/:token', 's/:token/:process', 's/:token/:process/:seq'].map((pattern) => ({ pattern, title: 'Shared', shared: true, page: shared.page })),
	{ pattern: 'audit', title: 'Audit', nav: 'audit', page: audit.page },
];

const items = ['sandboxes', 'processes', 'events', 'hosts', 'templates', 'keys', 'usage', 'audit'];
const patience = 400; // milliseconds that a page waits for its content
const app = document.getElementById('app');
const main = h('main', { id: 'main', tabindex: '-1' });
const nav = h('ul');

const label = (name) => name[0].toUpperCase() + name.slice(1);

function brand() {
	return h('a.brand', { href: '#/sandboxes' }, h('img', { src: '/console/icon.svg', alt: '' }), 'Millrace');
}

/** Returns the frame with the navigation. */
function frame() {
	const leave = h('button.quiet', { type: 'button', onclick: () => { signOut(); turn(); } }, 'Sign out');
	const name = h('span.muted', { title: 'The name of this page: others see it while you type in a terminal', 'data-test': 'page-name' }, '\u00a0');
	pageName().then((n) => fill(name, n));
	const links = h('div.foot', null, name, h('a.muted', { href: '/docs' }, 'API reference'), leave);
	return h('div.frame', null,
		h('a.skip', { href: '#main', onclick: (e) => { e.preventDefault(); main.focus(); } }, 'Skip to content'),
		h('nav.side', { 'aria-label': 'Console' }, brand(), nav, links), main);
}

/** Returns the sign-in form. */
function signInForm(message) {
	const key = h('input', { type: 'password', name: 'key', autocomplete: 'off', spellcheck: 'false', required: true, autofocus: true, id: 'key' });
	const submit = async () => {
		await call('GET', '/v1/store/sandboxes?limit=1', undefined, { headers: { Authorization: 'Bearer ' + key.value.trim() } });
		signIn(key.value.trim());
		turn();
	};
	return h('main.signin', null, h('div', null, brand()), h('h1', null, 'Sign in'),
		message && h('p', { role: 'alert' }, message),
		h('form', { onsubmit: act(submit) },
			h('label.field', { for: 'key' }, h('span', null, 'API key'), key),
			h('button.primary', { type: 'submit' }, 'Sign in')),
		h('p.muted', null, 'millrace up prints a key when it starts and stores it in its data directory. The key stays in this tab and is never part of a URL.'),
		h('pre', null, 'cat ~/.local/state/millrace/key'));
}

/** Marks the current item of the navigation. */
function mark(current) {
	fill(nav, items.map((name) => h('li', null,
		h('a', { href: '#/' + name, 'aria-current': name === current && 'page' }, label(name)))));
	const at = nav.querySelector('[aria-current]');
	if (at) nav.scrollLeft = at.offsetLeft - (nav.clientWidth - at.offsetWidth) / 2; // on a phone the items are a row
}

/** Waits a moment for the regions of a page, so that what follows them does not move when they are filled. */
async function settled(content) {
	const regions = h('div', null, content).querySelectorAll('.region');
	const late = new Promise((done) => setTimeout(done, patience));
	await Promise.race([late, Promise.all([...regions].map((r) => r.loaded))]);
}

/** Shows the page of a fragment. */
async function show(found, signal) {
	session.share = found && found.route.shared ? found.args[0] : '';
	if (!session.key && !session.share) {
		document.title = 'Sign in · Millrace';
		fill(app, signInForm(''));
		document.getElementById('key').focus();
		return;
	}
	const wanted = session.share ? 'onlooker' : 'frame';
	if (!main.isConnected || main.parentElement.className !== wanted) {
		fill(main);
		fill(app, session.share ? h('div.onlooker', null, h('header.bar', null, brand()), main) : frame());
	}
	document.title = (found ? found.route.title : 'Not found') + ' · Millrace';
	mark(found && found.route.nav);
	const slow = setTimeout(() => { if (!signal.aborted) fill(main, h('p.muted', { role: 'status' }, 'Loading…')); }, patience * 2);
	try {
		const content = found ? await found.route.page({ args: found.args, query: found.query, signal }) : problem({ status: 404, message: 'The console has no such page.' });
		await settled(content);
		if (signal.aborted) return;
		fill(main, content);
		scrollTo(0, 0);
	} catch (err) {
		if (!signal.aborted) fill(main, problem(err));
	} finally {
		clearTimeout(slow);
	}
}

onRejected(() => {
	if (!session.key) return;
	signOut();
	fill(app, signInForm('The gateway rejected the key.'));
});
const turn = start(routes, show);
