// What clients refused: one row for each key, type, version and message.
import { empty, h, put, update } from './dom.js';
import { get } from './api.js';
import { watch } from './watch.js';
import { ago, count, keyLink, nodeLink, number, short, version } from './words.js';

export const title = 'refusals';

export async function show(main, page) {
  const only = page.query.get('key');
  const note = h('div', { class: 'alarms', role: 'status' });
  const body = h('div');
  put(main, h('h1', {}, 'Refusals', only && [' of ', keyLink(only), h('a', { class: 'aside', href: '/ui/refusals' }, 'of all keys')]), note, body);
  await watch(page, () => get('/nacks', { limit: 200, page_token: page.query.get('page_token') }, page.signal),
    (list) => {
      const rows = list.items.flatMap(rowsOf).filter((r) => !only || r.key === only).sort((a, b) => (a.last < b.last ? 1 : -1));
      update(body, rows.length ? h('ul', { class: 'cards' }, rows.map(card))
        : empty('Nobody refused anything.', 'A client that answers a response with an error is shown here, with its message.'));
    },
    (what) => update(note, what && h('p', {}, what)));
}

function rowsOf(item) {
  const rows = new Map();
  for (const n of item.nacks) {
    const id = JSON.stringify([n.type, n.version, n.message]);
    const row = rows.get(id) ?? { key: item.key, type: n.type, version: n.version, message: n.message, count: 0, first: n.first, last: n.last, clients: [] };
    row.count += n.count;
    row.clients.push(n.node);
    if (n.first < row.first) row.first = n.first;
    if (n.last > row.last) row.last = n.last;
    rows.set(id, row);
  }
  return [...rows.values()];
}

function card(r) {
  return h('li', {},
    h('p', { class: 'message' }, r.message || 'without a message'),
    h('p', {}, keyLink(r.key, { type: short(r.type) }), ' · ', short(r.type), ' ', version(r.version), ' · ',
      count(r.count, 'time'), ' · first ', ago(r.first), ', last ', ago(r.last)),
    h('ul', { class: 'chips' }, h('li', {}, `${number(r.clients.length)} ${r.clients.length === 1 ? 'client' : 'clients'}:`), r.clients.slice(0, 20).map((c) => h('li', {}, nodeLink(c)))));
}
