// Elements from values. Text always becomes a text node: no function here makes markup from a
// string.

const SVG = 'http://www.w3.org/2000/svg';

// hidden matches what a browser shows as nothing or interprets: control and format characters, such as
// U+202E, which changes the direction of text. Line ends stay.
const hidden = /(?![\n\t])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

const escaped = (c) => {
  const code = c.codePointAt(0);
  const hex = (digits) => code.toString(16).padStart(digits, '0');
  return code < 0x80 ? `\\x${hex(2)}` : code > 0xffff ? `\\U${hex(8)}` : `\\u${hex(4)}`;
};

/** visible is text of clients and origins as people can read it, as jsonyaml.Visible is. All text of the page is. */
export const visible = (text) => String(text).replace(hidden, escaped);

/**
 * name is an element with a name that a client or an origin chose. A name from right to left does not
 * reorder what is beside it. A name of white space has quotes.
 */
export const name = (text) => h('bdi', {}, text && !text.trim() ? `"${text}"` : text);

// shownAttributes are the attributes that users see or hear.
const shownAttributes = ['title', 'aria-label'];

function fill(el, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === 'on') for (const [event, f] of Object.entries(value)) el.addEventListener(event, f);
    else if (name === 'data') Object.assign(el.dataset, value);
    else el.setAttribute(name, value === true ? '' : shownAttributes.includes(name) ? visible(value) : value);
  }
  add(el, children);
  return el;
}

function add(el, children) {
  for (const c of children) {
    if (c === undefined || c === null || c === false) continue;
    if (Array.isArray(c)) add(el, c);
    else el.append(c instanceof Node ? c : visible(c));
  }
}

/** h makes an element: h('a', {href}, 'text', child, [children]). */
export const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);

/** s makes an SVG element. */
export const s = (tag, props, ...children) => fill(document.createElementNS(SVG, tag), props, children);

/** put replaces the content of an element. */
export function put(el, ...children) {
  el.replaceChildren();
  add(el, children);
  return el;
}

/** set changes the attributes that differ. undefined and null remove one. */
export function set(el, props) {
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null) el.removeAttribute(name);
    else if (el.getAttribute(name) !== String(value)) el.setAttribute(name, value);
  }
  return el;
}

/**
 * table has a header for each column. Rows are lists of cells, or {cells, ...props}. On a narrow
 * screen a row is a card, and each cell shows the name of its column. A table can have the focus, so
 * that the keyboard scrolls it.
 */
export function table(caption, columns, rows, props) {
  const cell = (c, i) => {
    const col = columns[i] ?? {};
    const el = col.head ? h('th', { scope: 'row', class: col.class }) : h('td', { class: col.class, 'data-label': col.name });
    add(el, [c]);
    return el;
  };
  return h('div', { class: 'scroll', tabindex: 0, role: 'group', 'aria-label': caption }, h('table', props,
    h('caption', {}, caption),
    h('thead', {}, h('tr', {}, columns.map((c) => h('th', { scope: 'col', class: c.class, title: c.title }, c.name)))),
    h('tbody', {}, rows.map((r) => {
      const { cells, ...rest } = Array.isArray(r) ? { cells: r } : r;
      return h('tr', rest, cells.map(cell));
    }))));
}

/** empty says that a list is empty, and what to do. */
export const empty = (what, ...todo) => h('p', { class: 'empty' }, h('b', {}, what), ' ', ...todo);

/**
 * update gives an element new content by changing only what differs. So the focus, the selection
 * and the scroll position stay. The new content must have no listeners, because they may be lost.
 */
export function update(el, ...children) {
  const next = el.cloneNode(false);
  add(next, children);
  morph(el, next);
  return el;
}

// kept are the attributes that an update does not remove. A user sets open.
const kept = ['style', 'open'];

function morph(el, next) {
  const fresh = [...next.childNodes];
  fresh.forEach((to, i) => {
    const from = el.childNodes[i];
    if (!from) el.append(to);
    else if (from.nodeType !== to.nodeType || from.nodeName !== to.nodeName) from.replaceWith(to);
    else if (to.nodeType === Node.TEXT_NODE) {
      if (from.data !== to.data) from.data = to.data;
    } else {
      for (const { name } of [...from.attributes]) if (!kept.includes(name) && !to.hasAttribute(name)) from.removeAttribute(name);
      for (const { name, value } of to.attributes) if (name !== 'style' && from.getAttribute(name) !== value) from.setAttribute(name, value);
      if (from.style.cssText !== to.style.cssText) from.style.cssText = to.style.cssText;
      morph(from, to);
    }
  });
  while (el.childNodes.length > fresh.length) el.lastChild.remove();
}
