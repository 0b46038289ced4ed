// The drawing of the fleet: origins, keys, and groups of clients by state. The
// width of a band is the number of clients, its colour their state.
import { h, put, s, set, visible } from './dom.js';
import { clientsHref, keyHref, number, states } from './words.js';

const GAP = 4;
const LEAST = 16; // least height of a box with a name
const NARROW = 640;

/** layout computes the boxes and bands of an overview for a width. It uses no element of the page. */
export function layout(o, width) {
  const narrow = width < NARROW;
  const keys = [...o.top, ...(o.rest ? [{ ...o.rest, rest: true }] : [])]
    .filter((k) => k.clients > 0 || o.clients === 0)
    .map((k) => ({ ...k, id: k.rest ? 'rest' : `key:${k.key}`, name: k.rest ? `${number(k.keys)} other keys` : k.key || 'no key' }));
  const clients = keys.reduce((sum, k) => sum + k.clients, 0);
  const room = Math.min(keys.length * 55, Math.max(90, 260 - keys.length * 8));
  const column = { origin: 0, key: narrow ? 0 : width * 0.36, state: width - (narrow ? 104 : 150) };
  const labels = { origin: narrow ? 0 : Math.min(190, width * 0.2), key: narrow ? Math.min(150, width * 0.42) : Math.min(240, width * 0.24) };

  let y = 0;
  for (const k of keys) {
    k.h = LEAST + (clients ? (k.clients / clients) * room : 0);
    k.y = y;
    y += k.h + GAP;
  }
  const height = Math.max(y, 120);

  // A client of several keys is in each of them, but in one group: that of its worst state.
  const groups = states.map((st) => ({ ...st, n: o.states[st.field] })).filter((g) => g.n > 0).reverse();
  // The bands into a key are as wide as those out of it, if there is room.
  for (const k of keys) {
    const present = groups.filter((g) => k.states[g.field] > 0);
    const sum = present.reduce((t, g) => t + share(k, g), 0) || 1;
    k.out = present.map((g) => ({ g, wide: (share(k, g) / sum) * k.h }));
    for (const { g, wide } of k.out) g.in = (g.in ?? 0) + wide;
  }
  const spare = height - groups.length * (2 * LEAST + GAP);
  y = 0;
  for (const g of groups) {
    g.h = 2 * LEAST + Math.max(0, spare) * (g.n / o.clients);
    g.y = y;
    g.scale = Math.min(1, g.h / g.in);
    g.fill = y + (g.h - g.in * g.scale) / 2;
    y += g.h + GAP;
  }

  const origins = [];
  if (!narrow) {
    for (const origin of o.origins) origins.push({ ...origin, id: `origin:${origin.name}`, n: 0, y: 0, h: 0, known: true });
    for (const k of keys) {
      const of = origins.find((x) => x.name === k.origin);
      if (of) of.n += k.h;
    }
    const all = origins.reduce((sum, x) => sum + x.n, 0) || 1;
    const free = height - origins.length * (2 * LEAST + GAP);
    y = 0;
    for (const x of origins) {
      x.h = 2 * LEAST + Math.max(0, free) * (x.n / all);
      x.y = y;
      x.fill = y;
      x.all = x.n;
      y += x.h + GAP;
    }
  }

  const ribbons = [];
  for (const k of keys) {
    const from = origins.find((x) => x.name === k.origin);
    if (from) {
      const part = from.all ? from.h * (k.h / from.all) : 0;
      ribbons.push({
        id: `${from.id}>${k.id}`, class: `up ${k.connected ? 'connected' : 'lost'}`,
        title: `${from.name} → ${k.name}: ${k.connected ? 'connected' : 'not connected'}${k.stale ? ', serves the last known good' : ''}`,
        d: ribbon(labels.origin, from.fill, from.fill + part, column.key, k.y, k.y + k.h),
      });
      from.fill += part;
    }
    let top = k.y;
    for (const { g, wide } of k.out) {
      ribbons.push({
        id: `${k.id}>${g.field}`, class: g.field, title: `${k.name}: ${number(k.states[g.field])} ${g.name}`,
        d: ribbon(column.key + labels.key, top, top + wide, column.state, g.fill, g.fill + wide * g.scale),
      });
      top += wide;
      g.fill += wide * g.scale;
    }
  }
  return { width, height, narrow, column, labels, keys, groups, origins, ribbons };
}

// The least width of a state that is not 0.
const share = (k, g) => Math.max(k.h * (k.states[g.field] / k.clients), 2);

// A band between two edges.
function ribbon(x0, a0, a1, x1, b0, b1) {
  const m = (x0 + x1) / 2;
  const f = (n) => n.toFixed(1);
  return `M${f(x0)} ${f(a0)}C${f(m)} ${f(a0)} ${f(m)} ${f(b0)} ${f(x1)} ${f(b0)}V${f(b1)}C${f(m)} ${f(b1)} ${f(m)} ${f(a1)} ${f(x0)} ${f(a1)}Z`;
}

const cut = (text, width, size = 6.7) => {
  const most = Math.max(3, Math.floor(width / size));
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
};

/** Flow draws into an element. A new drawing changes only the elements that differ. */
export class Flow {
  #parts = new Map();
  #svg = s('svg', { class: 'flow', role: 'group', 'aria-label': 'Origins, keys, and clients by state' });
  #ribbons = s('g');
  #nodes = s('g');
  #last = null;

  constructor(el, signal) {
    this.#svg.append(this.#ribbons, this.#nodes);
    put(el, this.#svg);
    const resized = new ResizeObserver(() => this.#last && this.draw(this.#last));
    resized.observe(el);
    signal.addEventListener('abort', () => resized.disconnect());
    this.el = el;
  }

  draw(overview) {
    this.#last = overview;
    const { paddingLeft, paddingRight } = getComputedStyle(this.el);
    const width = Math.floor(this.el.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight));
    if (width <= 0) return; // hidden
    const l = layout(overview, width);
    set(this.#svg, { viewBox: `0 0 ${width} ${Math.ceil(l.height)}`, width, height: Math.ceil(l.height) });
    const used = new Set();
    const part = (id, make) => {
      used.add(id);
      let p = this.#parts.get(id);
      if (!p) {
        p = make();
        this.#parts.set(id, p);
      }
      return p;
    };
    for (const r of l.ribbons) {
      const p = part(r.id, () => {
        const title = s('title');
        const path = s('path', {}, title);
        this.#ribbons.append(path);
        return { el: path, path, title };
      });
      set(p.path, { d: r.d, class: `ribbon ${r.class}` });
      say(p.title, r.title);
    }
    for (const x of l.origins) {
      const p = part(x.id, () => this.#box('a'));
      set(p.el, { href: 'fleet#origins', class: `box ${x.away ? 'away' : ''}` });
      place(p, x, 0, l.labels.origin, x.name, x.away ? 'away' : `${number(x.streams)} ${x.streams === 1 ? 'stream' : 'streams'}`);
    }
    for (const k of l.keys) {
      const p = part(k.id, () => this.#box('a'));
      // There is no list of the clients without a key. The list of keys has those that are too long here.
      const href = k.rest || k.cut ? 'keys' : k.key ? keyHref(k.key) : null;
      // The other keys have no error of their own. Clients without a key among them are not connected either.
      const lost = k.rest ? overview.disconnected && !k.connected : k.error;
      set(p.el, { href, class: `box ${lost ? 'lost' : ''}` });
      place(p, k, l.column.key, l.labels.key, k.name, number(k.clients), true);
    }
    for (const g of l.groups) {
      const p = part(`state:${g.field}`, () => this.#box('a'));
      set(p.el, { href: clientsHref({ state: g.name.replace(' ', '_') }), class: `box group ${g.field}` });
      place(p, g, l.column.state, l.width - l.column.state, `${g.mark} ${g.name}`, number(g.n));
    }
    for (const [id, p] of this.#parts) {
      if (!used.has(id)) {
        p.el.remove();
        this.#parts.delete(id);
      }
    }
  }

  #box(tag) {
    const p = { rect: s('rect', { rx: 3 }), name: s('text'), more: s('text', { class: 'more' }), title: s('title') };
    p.el = s(tag, {}, p.title, p.rect, p.name, p.more);
    this.#nodes.append(p.el);
    return p;
  }
}

// place draws a box, with its name and details beside or below it.
function place(p, at, x, width, name, more, beside = false) {
  set(p.rect, { x: x.toFixed(1), y: at.y.toFixed(1), width: width.toFixed(1), height: at.h.toFixed(1) });
  const middle = at.y + at.h / 2;
  const room = width - 14 - (beside ? more.length * 7 + 6 : 0);
  set(p.name, { x: (x + 7).toFixed(1), y: (beside ? middle + 4 : middle - 3).toFixed(1) });
  set(p.more, beside
    ? { x: (x + width - 7).toFixed(1), y: (middle + 4).toFixed(1), 'text-anchor': 'end' }
    : { x: (x + 7).toFixed(1), y: (middle + 12).toFixed(1) });
  say(p.name, cut(name, room));
  say(p.more, more);
  say(p.title, `${name}: ${more}`);
}

function say(el, text) {
  const shown = visible(text);
  if (el.textContent !== shown) el.textContent = shown;
}

/** legend explains the colours and signs. */
export const legend = () => h('p', { class: 'legend' }, states.map((st) => h('span', { class: `state ${st.field}` },
  h('i', { 'aria-hidden': 'true' }, st.mark), st.name, h('small', {}, st.says))));
