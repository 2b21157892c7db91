// Builds DOM nodes. Data from the gateway becomes text nodes or attributes, never markup.

/** @typedef {Node|string|number|null|undefined|false} Child */

const svgNamespace = 'http://www.w3.org/2000/svg';

/** Properties that are set on the element instead of as attributes. */
const properties = new Set(['value', 'checked', 'disabled', 'selected', 'hidden', 'tabIndex', 'indeterminate']);

/**
 * Sets one attribute, property or listener of an element.
 * @param {Element} el
 * @param {string} name
 * @param {any} value null, undefined and false set nothing
 */
function set(el, name, value) {
	if (value === null || value === undefined || value === false) return;
	if (typeof value === 'function') el.addEventListener(name.slice(2), value);
	else if (properties.has(name)) el[name] = value;
	else el.setAttribute(name, value === true ? '' : String(value));
}

/**
 * Appends children, which may be nested lists.
 * @template {Element} T
 * @param {T} el
 * @param {...(Child|Child[])} children
 * @returns {T}
 */
export function add(el, ...children) {
	for (const c of children.flat(Infinity)) {
		if (c !== null && c !== undefined && c !== false) el.append(typeof c === 'number' ? String(c) : c);
	}
	return el;
}

/**
 * Creates an element.
 * @param {string} tag name of the element, with optional classes after dots
 * @param {Object<string, any>|null} [props] attributes, and listeners as onclick
 * @param {...(Child|Child[])} children
 * @returns {HTMLElement}
 */
export function h(tag, props, ...children) {
	const [name, ...classes] = tag.split('.');
	const el = document.createElement(name);
	if (classes.length) el.className = classes.join(' ');
	for (const [k, v] of Object.entries(props || {})) set(el, k, v);
	return add(el, ...children);
}

/**
 * Creates an SVG element.
 * @param {string} tag
 * @param {Object<string, any>} props
 * @param {...(Child|Child[])} children
 */
export function svg(tag, props, ...children) {
	const el = document.createElementNS(svgNamespace, tag);
	for (const [k, v] of Object.entries(props)) set(el, k, v);
	return add(el, ...children);
}

/**
 * Replaces all children of an element.
 * @template {Element} T
 * @param {T} el
 * @param {...(Child|Child[])} children
 * @returns {T}
 */
export function fill(el, ...children) {
	el.replaceChildren();
	return add(el, ...children);
}
