// The resources that a client rejected or does not have yet, compared with what it has.
import { h, put } from './dom.js';
import { at, get } from './api.js';
import { ago, count, keyLink, number, short, state, version } from './words.js';

const PAGE = 20; // types of streams that are read at a time

/** differences are read when they are opened; of one NACK, if it is given. */
export function differences(node, only, signal, failed) {
  const body = h('div', { class: 'differences', 'aria-live': 'polite' });
  // shown has the items of earlier pages.
  const read = async (shown = [], token) => {
    put(body, shown, h('p', { class: 'loading' }, 'Loading…'));
    try {
      let all = shown;
      do { // a page may have none of those that are wanted, or no streams with any
        const list = await get(at('/diff', node), { limit: PAGE, page_token: token }, signal);
        const items = list.items.filter((i) => !only || (i.key === only.key && i.type === only.type && i.nack?.version === only.version));
        all = [...all, ...items.map((i) => item(i, only))];
        token = list.next_page_token;
      } while (token && all.length === shown.length);
      put(body, all.length ? all
        : h('p', { class: 'none' }, only ? 'The client has answered a newer response since then, so these differences are out of date.' : 'There are no differences now.'),
      token && h('p', { class: 'pages' }, h('button', { type: 'button', on: { click: () => read(all, token) } }, 'Show more')));
    } catch (e) {
      if (e.name === 'AbortError') return;
      if (e.status === 401) failed(e);
      else put(body, h('p', { class: 'wrong', role: 'alert' }, e.status === 404 ? 'No stream of this node is open now.' : e.message));
    }
  };
  const el = h('details', {}, h('summary', {}, only ? ['Differences at ', h('span', { class: 'long' }, node || 'a client without an id')] : 'Rejected and missing resources, compared with what the client has'), body);
  el.addEventListener('toggle', () => el.open && read());
  return el;
}

function item(i, only) {
  if (i.awaits) return awaited(i);
  return h('div', { class: 'difference' },
    h('p', {}, !only && [short(i.type), ' of ', keyLink(i.key, { type: short(i.type) }), ' · '], state(i.state), ' ', ago(i.since), i.nack ? ' · rejected version ' : ' · new version ', version(i.version),
      ', the client has ', i.acked_version ? version(i.acked_version) : 'nothing', i.unsent && ' · not sent yet'),
    !only && i.nack?.message && h('p', { class: 'message' }, i.nack.message),
    i.not_held_any_more && h('p', { class: 'none' }, 'The relay no longer has the replaced resources, so it cannot compare them.'),
    i.resources.map(resource),
    i.more > 0 && h('p', {}, `And ${count(i.more, 'more resource')}.`));
}

/** awaited lists the pending names of a client: the origin has not answered them yet. */
function awaited(i) {
  return h('div', { class: 'difference' },
    h('p', {}, short(i.type), ' of ', keyLink(i.key, { type: short(i.type) }), ' · ', state(i.state), ' ', ago(i.since),
      ' · the origin has not answered these requested names yet:'),
    h('ul', { class: 'chips' }, i.awaits.map((n) => h('li', {}, n === '*' ? 'all resources (*)' : h('code', { class: 'long', title: n }, n))),
      i.more > 0 && h('li', {}, `and ${number(i.more)} more`)));
}

function resource(r) {
  const what = r.offered_not_held_any_more ? 'The relay no longer has the new resource.' : r.has_not_held_any_more ? 'The relay no longer has the resource of the client.'
    : r.has === null ? 'new' : r.offered === null ? 'removed' : 'changed';
  return h('div', { class: 'panel' }, h('h3', {}, r.name, h('small', {}, what)),
    r.diff ? h('pre', { class: 'diff' }, h('code', {}, lines(r.diff)))
      : (r.offered ?? r.has) !== null && h('pre', {}, h('code', {}, JSON.stringify(r.offered ?? r.has, null, 2))));
}

const kinds = { '+': 'add', '-': 'del', '@': 'hunk' };

/** lines colours those that come and go; their signs say the same. */
const lines = (diff) => diff.replace(/\n$/, '').split('\n').map((l) => h('span', { class: kinds[l[0]] ?? 'same' }, l));
