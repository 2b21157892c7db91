// Shows the page that the fragment of the URL names.

/**
 * @typedef {Object} Context
 * @property {string[]} args parameters of the route
 * @property {URLSearchParams} query what follows "?" in the fragment
 * @property {AbortSignal} signal aborts when the page is left
 */

/**
 * @typedef {Object} Route
 * @property {string} pattern such as "sandboxes/:id"
 * @property {string} title
 * @property {string} [nav] item of the navigation that is current
 * @property {boolean} [shared] whether the first parameter is the token of a share link
 * @property {(c: Context) => (Node|Promise<Node>)} page
 */

/**
 * Returns the parameters if a path matches a pattern.
 * @param {string} pattern
 * @param {string} path
 * @returns {string[]|null}
 */
export function match(pattern, path) {
	const want = pattern.split('/'), got = path.split('/');
	if (want.length !== got.length) return null;
	const args = [];
	for (let i = 0; i < want.length; i++) {
		if (want[i].startsWith(':')) args.push(decodeURIComponent(got[i]));
		else if (want[i] !== got[i]) return null;
	}
	return args;
}

/**
 * Returns the route of a fragment with its parameters.
 * @param {Route[]} routes
 * @param {string} fragment
 */
export function find(routes, fragment) {
	const [path, query] = fragment.replace(/^#\/?/, '').split('?');
	for (const route of routes) {
		const args = match(route.pattern, path);
		if (args) return { route, args, query: new URLSearchParams(query) };
	}
	return null;
}

/**
 * Calls show for the current fragment and after each change of it. The signal of the page
 * before aborts first.
 * @param {Route[]} routes
 * @param {(found: ReturnType<typeof find>, signal: AbortSignal) => void} show
 */
export function start(routes, show) {
	let current = new AbortController();
	const turn = () => {
		current.abort();
		current = new AbortController();
		show(find(routes, location.hash), current.signal);
	};
	addEventListener('hashchange', turn);
	turn();
	return turn;
}

/**
 * Changes the fragment without a new page, so that the address is a permalink.
 * @param {string} fragment
 */
export function replace(fragment) { history.replaceState(null, '', fragment); }
