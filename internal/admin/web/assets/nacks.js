// The NACKs of clients: one row for each key, type, version and message.
import { empty, h, put, update } from './dom.js';
import { get } from './api.js';
import { rejected } from './diff.js';
import { pages } from './keys.js';
import { watch } from './watch.js';
import { ago, count, keyLink, nodeLink, number, short, version } from './words.js';

export const title = 'NACKs';

export async function show(main, page) {
  const only = page.query.get('key');
  const note = h('div', { class: 'alarms', role: 'status' });
  const body = h('div');
  put(main, h('h1', {}, 'NACKs', only && [' of ', keyLink(only), h('a', { class: 'aside', href: '/ui/nacks' }, 'all keys')]), note, body);
  // A row keeps its element, so that its open parts stay open.
  const rows = new Map();
  const list = h('ul', { class: 'cards' });
  const rest = h('div');
  await watch(page, () => get('/nacks', { key: only, limit: 200, page_token: page.query.get('page_token') }, page.signal),
    (found) => {
      const items = found.items.sort((a, b) => (a.last < b.last ? 1 : -1));
      const ids = items.map((r) => JSON.stringify([r.key, r.type, r.version, r.message]));
      for (const [id, el] of rows) {
        if (!ids.includes(id)) {
          el.remove();
          rows.delete(id);
        }
      }
      items.forEach((r, i) => {
        let el = rows.get(ids[i]);
        if (!el) {
          el = h('li', {}, h('div'), rejected(r, page.signal, page.failed));
          rows.set(ids[i], el);
        }
        update(el.firstChild, row(r));
        if (list.children[i] !== el) list.insertBefore(el, list.children[i] ?? null);
      });
      if (!items.length) put(body, empty('No client has sent a NACK.', 'If a client rejects a response, this page shows the error message of the client.'));
      else if (list.parentNode !== body) put(body, list, rest);
      update(rest, pages('/ui/nacks', page.query, found.next_page_token, only ? { key: only } : {}));
    },
    (what) => update(note, what && h('p', {}, what)));
}

function row(r) {
  const more = r.clients_total - r.clients.length;
  return [
    h('p', { class: 'message' }, r.message || 'no message'),
    h('p', {}, keyLink(r.key, { type: short(r.type) }), ' · ', short(r.type), ' ', version(r.version), ' · ',
      count(r.count, 'time'), ' · first ', ago(r.first), ', last ', ago(r.last), ' · ',
      r.still_nacking ? h('b', { class: 'bad' }, count(r.still_nacking, 'client still rejects it', 'clients still reject it')) : 'no client rejects it any more'),
    h('ul', { class: 'chips' }, h('li', {}, `${r.clients_at_least ? 'more than ' : ''}${count(r.clients_total, 'client')}:`),
      r.clients.map((c) => h('li', {}, nodeLink(c.node))), more > 0 && h('li', {}, `and ${number(more)} more`))];
}
