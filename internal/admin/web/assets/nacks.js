// The NACKs of clients, grouped by message: below it one row for each key, type and
// version.
import { empty, h, put, update } from './dom.js';
import { get } from './api.js';
import { rejected } from './diff.js';
import { pages } from './keys.js';
import { watch } from './watch.js';
import { ago, clientsHref, count, keyLink, nodeLink, number, short, typeName, version } from './words.js';

export const title = 'NACKs';

export async function show(main, page) {
  const filter = Object.fromEntries([...page.query].filter(([name, value]) => ['key', 'type', 'version'].includes(name) && value));
  const filtered = Object.keys(filter).length > 0;
  const note = h('div', { class: 'alarms', role: 'status' });
  const body = h('div');
  put(main, h('h1', {}, 'NACKs', filtered && ' of ', filter.key && [keyLink(filter.key), ' '], filter.type && `${short(filter.type)} `,
    filter.version && ['version ', version(filter.version)], filtered && h('a', { class: 'aside', href: 'nacks' }, 'all NACKs')), note, body);
  const list = h('ul', { class: 'cards' });
  const part = h('p', { class: 'help' });
  const rest = h('div');
  const groups = new Map();
  const rows = new Map();
  await watch(page, () => get('/nacks', { ...filter, limit: 200, page_token: page.query.get('page_token') }, page.signal),
    (found) => {
      const byMessage = grouped(found.items);
      keep(list, groups, byMessage, (g) => g.message, () => h('li', {}, h('div'), h('ul', { class: 'rows' })), (el, g) => {
        el.className = g.still.length ? '' : 'over';
        update(el.firstChild, head(g));
      });
      for (const g of byMessage) {
        keep(groups.get(g.message).lastChild, rows, g.rows, idOf, (r) => h('li', {}, h('div'), rejected(r, page.signal, page.failed)), (el, r) => {
          el.className = r.still_nacking ? '' : 'over';
          update(el.firstChild, row(r));
        });
      }
      forget(groups, byMessage.map((g) => g.message));
      forget(rows, found.items.map(idOf));
      const whole = !found.next_page_token && !page.query.has('page_token');
      if (!found.items.length && whole) put(body, filtered ? empty('The relay has no such NACK.', 'It keeps the newest NACKs of a key while the key is in use.')
        : empty('No client has sent a NACK.', 'If a client rejects a response, this page shows the error message of the client.'));
      else if (list.parentNode !== body) put(body, part, list, rest);
      part.hidden = whole;
      update(part, `${count(found.items.length, 'NACK')} on this page, grouped by message. Other pages may have more with the same message.`);
      update(rest, pages('nacks', page.query, found.next_page_token, filter));
    },
    (what) => update(note, what && h('p', {}, what)));
}

const idOf = (r) => JSON.stringify([r.key, r.type, r.version, r.message]);

/**
 * keep gives el one element for each item, in the order of items. An item keeps its element, so that its
 * open parts stay open.
 */
export function keep(el, known, items, id, make, draw) {
  items.forEach((item, i) => {
    let one = known.get(id(item));
    if (!one) {
      one = make(item);
      known.set(id(item), one);
    }
    draw(one, item);
    if (el.children[i] !== one) el.insertBefore(one, el.children[i] ?? null);
  });
  while (el.children.length > items.length) el.lastChild.remove();
}

/** forget drops the elements of items that are not in ids. */
export function forget(known, ids) {
  const present = new Set(ids);
  for (const id of known.keys()) if (!present.has(id)) known.delete(id);
}

const sum = (rows, of) => rows.reduce((n, r) => n + of(r), 0);

/** grouped groups the rows by message, the newest first. Groups that no client rejects any more are last. */
function grouped(items) {
  const newest = (a, b) => (a.still_nacking > 0 !== b.still_nacking > 0 ? (a.still_nacking > 0 ? -1 : 1) : a.last < b.last ? 1 : -1);
  const groups = Map.groupBy(items.sort(newest), (r) => r.message);
  return [...groups].map(([message, rows]) => ({ message, rows, still: rows.filter((r) => r.still_nacking > 0) }));
}

const same = (rows, of) => (rows.every((r) => of(r) === of(rows[0])) ? of(rows[0]) : '');

/**
 * still says how many clients still reject rows, with a link to the clients in the state NACKED that a
 * filter can select: those of the rows' key and type. Some of them may reject another message.
 */
function still(rows) {
  if (!rows.length) return 'no client rejects it any more';
  const key = same(rows, (r) => r.key);
  const type = same(rows, (r) => typeName(r.type));
  const of = [key && 'key', type && 'type'].filter(Boolean).join(' and ');
  return [
    // A client that rejects two types would count twice.
    h('b', { class: 'bad' }, type ? count(sum(rows, (r) => r.still_nacking), 'client still rejects it', 'clients still reject it') : 'clients still reject it'),
    ' · ', h('a', { href: clientsHref({ key, type, state: 'NACKED' }) }, of ? `NACKED clients of this ${of}` : 'all NACKED clients')];
}

function head(g) {
  const keys = new Set(g.rows.map((r) => r.key)).size;
  return [
    h('p', { class: 'message' }, g.message || 'no message'),
    g.rows.length > 1 && h('p', {}, still(g.still), ' · ', count(keys, 'key'), ' · ', count(new Set(g.rows.map((r) => r.version)).size, 'version'), ' · ', count(sum(g.rows, (r) => r.count), 'time'))];
}

function row(r) {
  const more = r.clients_total - r.clients.length;
  return [
    h('p', {}, keyLink(r.key, { type: short(r.type) }), ' · ', short(r.type), ' ', version(r.version), ' · ',
      count(r.count, 'time'), ' · first ', ago(r.first), ', last ', ago(r.last), ' · ',
      still(r.still_nacking > 0 ? [r] : [])),
    h('ul', { class: 'chips' }, h('li', {}, `${r.clients_at_least ? 'more than ' : ''}${count(r.clients_total, 'client')}${more > 0 ? `; the last ${number(r.clients.length)}` : ''}:`),
      r.clients.map((c) => h('li', {}, nodeLink(c.node))))];
}
