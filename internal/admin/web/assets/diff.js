// The resources that a client rejected or does not have yet, compared with what it has or had.
import { h, name, put } from './dom.js';
import { at, get } from './api.js';
import { ago, count, keyHref, keyLink, number, short, state, version } from './words.js';

const PAGE = 20; // items of one request

/**
 * differences shows what the clients of a node lack. The page reads it when a user opens el. again reads
 * it once more if el is open.
 */
export function differences(node, signal, failed) {
  return opened('Rejected and missing resources, compared with what the client has', signal, failed,
    (token) => get(at('/diff', node), { limit: PAGE, page_token: token }, signal), item,
    'There are no differences now.', 'No stream of this node is open now.');
}

/** rejected is an element with the resources of one NACK. The page reads them when a user opens it. */
export function rejected(nack, signal, failed) {
  const same = (i) => i.type === nack.type && i.version === nack.version && i.message === nack.message;
  return opened('Rejected resources, compared with what the client had', signal, failed,
    (token) => get('/nacks', { key: nack.key, type: nack.type, version: nack.version, diff: true, limit: PAGE, page_token: token }, signal),
    (i) => same(i) && h('div', { class: 'difference' }, parts(i, 'The relay has not kept these resources. It keeps those of the last 16 NACKs of a key, and no secrets.')),
    'The relay has dropped this NACK.', 'The key is not in use now.').el;
}

/** changes is an element with what a version changed. The page reads it at once. */
export function changes(key, type, version, signal, failed) {
  const { el } = opened(`What version ${version} changed`, signal, failed,
    async () => ({ items: [await get(at('/changes', key), { type, version }, signal)] }),
    (i) => h('div', { class: 'difference' }, parts(i, 'The relay no longer has what this version changed. It keeps no Secrets.'),
      !i.not_held_any_more && !i.resources.length && h('p', { class: 'none' }, 'No resource has another content.')),
    '', 'The key is not in use now.');
  el.open = true;
  return el;
}

/** requested shows the names that the clients of a node requested or have. Each leads to its resource. */
export function requested(node, signal, failed) {
  return opened('Requested names, and names of the resources that the client has', signal, failed,
    (token) => get(at('/clients', node), { names: true, limit: PAGE, page_token: token }, signal), namesOf,
    'The client has sent no request yet.', 'No stream of this node is open now.').el;
}

function namesOf(c) {
  const keys = new Map(c.types.map((t) => [t.type, t.key]));
  const link = (t, n) => h('a', { href: keyHref(keys.get(t.type), { type: short(t.type), find: n.name === '*' ? '' : n.name }), class: 'long', title: n.name }, name(n.name));
  return h('div', { class: 'difference' }, h('p', {}, `Stream ${c.stream}`), (c.names ?? []).map((t) => [h('h3', {}, short(t.type)),
    t.items.length ? h('ul', { class: 'chips' }, t.items.map((n) => h('li', {}, keys.get(t.type) ? link(t, n) : name(n.name), ' ', n.absent ? h('small', {}, 'does not exist') : n.state !== 'SYNCED' && state(n.state))),
      t.more && h('li', {}, 'and more')) : h('p', { class: 'none' }, 'none')]));
}

/**
 * opened has an element that reads a list when it is opened, and again, which reads the list once more if
 * the element is open. show returns false to skip an item.
 */
function opened(title, signal, failed, list, show, none, missing) {
  const body = h('div', { class: 'differences', 'aria-live': 'polite' });
  let newest = 0; // the number of the newest read
  // shown has the items of earlier pages. Without it, the old content stays until the answer comes.
  const read = async (shown, token) => {
    const mine = ++newest;
    if (shown) put(body, shown, h('p', { class: 'loading' }, 'Loading…'));
    try {
      let all = shown ?? [];
      do { // a page may have no item to show
        const page = await list(token);
        if (mine !== newest) return;
        all = [...all, ...page.items.map(show).filter((el) => el)];
        token = page.next_page_token;
      } while (token && all.length === (shown?.length ?? 0));
      put(body, all.length ? all : h('p', { class: 'none' }, none),
        token && h('p', { class: 'pages' }, h('button', { type: 'button', on: { click: () => read(all, token) } }, 'Show more')));
    } catch (e) {
      if (e.name === 'AbortError' || mine !== newest) return;
      if (e.status === 401) failed(e);
      else put(body, h('p', { class: 'wrong', role: 'alert' }, e.status === 404 ? missing : e.message));
    }
  };
  const el = h('details', {}, h('summary', {}, title), body);
  el.addEventListener('toggle', () => el.open && read([]));
  return { el, again: () => el.open && read() };
}

function item(i) {
  if (i.awaits) return awaited(i);
  return h('div', { class: 'difference' },
    h('p', {}, short(i.type), ' of ', keyLink(i.key, { type: short(i.type) }), ' · ', state(i.state), ' ', ago(i.since), i.nack ? ' · rejected version ' : ' · new version ', version(i.version),
      ', the client has ', i.acked_version ? version(i.acked_version) : 'nothing', i.unsent ? ' · not sent yet'
        : i.sending && ` · sent ${(i.sending.received_bytes / 1e6).toFixed(1)} MB of ${(i.sending.bytes / 1e6).toFixed(1)} MB`),
    i.nack?.message && h('p', { class: 'message' }, i.nack.message),
    parts(i, 'The relay no longer has the replaced resources, so it cannot compare them.'));
}

/** parts are the resources of an item; gone is the text if the relay does not have them. */
const parts = (i, gone) => [
  i.not_held_any_more && h('p', { class: 'none' }, gone),
  i.resources.map(resource),
  i.more > 0 && h('p', {}, `And ${count(i.more, 'more resource')}.`)];

/** awaited lists the pending names of a client: the origin has not answered them yet. */
function awaited(i) {
  return h('div', { class: 'difference' },
    h('p', {}, short(i.type), ' of ', keyLink(i.key, { type: short(i.type) }), ' · ', state(i.state), ' ', ago(i.since),
      ' · the origin has not answered these requested names yet:'),
    h('ul', { class: 'chips' }, i.awaits.map((n) => h('li', {}, n === '*' ? 'all resources (*)' : h('code', { class: 'long', title: n }, name(n)))),
      i.more > 0 && h('li', {}, `and ${number(i.more)} more`)));
}

function resource(r) {
  const what = r.offered_not_held_any_more ? 'The relay no longer has the new resource.' : r.has_not_held_any_more ? 'The relay no longer has the resource of the client.'
    : r.has === null ? 'new' : r.offered === null ? 'removed' : 'changed';
  return h('div', { class: 'panel' }, h('h3', {}, name(r.name), h('small', {}, what)),
    r.diff ? h('pre', { class: 'diff' }, h('code', {}, lines(r.diff)))
      : (r.offered ?? r.has) !== null && h('pre', {}, h('code', {}, JSON.stringify(r.offered ?? r.has, null, 2))));
}

const kinds = { '+': 'add', '-': 'del', '@': 'hunk' };

/** lines colours added and removed lines. Their first character says the same. */
const lines = (diff) => diff.replace(/\n$/, '').split('\n').map((l) => h('span', { class: kinds[l[0]] ?? 'same' }, l));
