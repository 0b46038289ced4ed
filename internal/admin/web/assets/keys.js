// All keys, page by page.
import { empty, h, name, put, table, update } from './dom.js';
import { get, getFromAll } from './api.js';
import { aside, unanswered } from './members.js';
import { watch } from './watch.js';
import { ago, bar, clientsLink, count, href, keyLink, nacksHref, number, states, version } from './words.js';

export const title = 'keys';

const PAGE = 100;

export async function show(main, page) {
  const filter = Object.fromEntries(['disconnected', 'find', 'sort'].map((name) => [name, page.query.get(name) ?? '']).filter(([, value]) => value));
  const ask = { ...filter, sort: filter.sort === 'name' ? '' : 'worst', limit: PAGE };
  const all = page.query.has('members');
  const head = h('h1', {}, 'Keys', all && ' of all members',
    filter.disconnected && [' without a stream to an origin', h('a', { class: 'aside', href: href('keys', { members: all }) }, 'all keys')], aside('keys', page, filter));
  const note = h('div', { class: 'alarms', role: 'status' });
  const list = h('div');
  await watch(page, () => (all ? getFromAll('/keys', ask, page.signal)
    : get('/keys', { ...ask, page_token: page.query.get('page_token') }, page.signal)),
    (found) => {
      if (!list.isConnected) put(main, head, form(filter, page, all), note, list);
      update(list, all ? drawAll(found, filter) : draw(found, page, filter));
    },
    (what) => update(note, what && h('p', {}, what)));
}

function form(filter, page, all) {
  const el = h('form', { class: 'filter', 'aria-label': 'Filter', on: {
    submit: (event) => {
      event.preventDefault();
      page.go(href('keys', { disconnected: filter.disconnected, ...Object.fromEntries(new FormData(el)), members: all }));
    } } },
  h('label', {}, h('span', {}, 'Part of the name'), h('input', { name: 'find', value: filter.find, maxlength: 1024, spellcheck: 'false', autocomplete: 'off' })),
  h('label', {}, h('span', {}, 'Order'), h('select', { name: 'sort' },
    [['', 'worst first'], ['name', 'by name']].map(([value, text]) => h('option', { value, selected: value === (filter.sort ?? '') }, text)))),
  h('button', { type: 'submit', class: 'first' }, 'Show'));
  return el;
}

const order = (filter) => (filter.sort === 'name' ? 'sorted by name' : 'the worst first');

function draw(found, page, filter) {
  if (!found.items.length) {
    return filter.find ? empty('No key has this in its name.', h('a', { href: 'keys' }, 'Show all keys')) : filter.disconnected ? empty('Each key with clients has a stream to an origin.')
      : empty('No key is in use.', 'Connect a client to the downstream address of this relay. The rules give its node a key. ',
        h('a', { href: 'where' }, 'Try the rules'), '.');
  }
  return [
    keyTable(`${count(found.total, 'key')}, ${order(filter)}${found.next_page_token || page.query.has('page_token') ? `; ${number(found.items.length)} of them on this page` : ''}`, found.items),
    pages('keys', page.query, found.next_page_token, filter)];
}

/** drawAll has the first keys of each member. The list of one member has the others. */
function drawAll({ answers, silent }, filter) {
  return [unanswered(silent), answers.map(({ member, answer: { items, total } }) => h('section', { 'aria-label': `Keys of ${member}` },
    h('h2', {}, member, h('a', { class: 'aside', href: href('keys', { ...filter, member }) }, 'its keys')),
    items.length > 0 && keyTable(`${count(total, 'key')}, ${order(filter)}${items.length < total ? `; ${number(items.length)} of them` : ''}`, items, member)))];
}

function keyTable(caption, items, member) {
  const types = (k) => k.types.map((t) => h('span', { class: 'pair' }, t.short ?? t.type, ' ', version(t.version)));
  const bad = (what, why) => [h('span', { class: 'bad' }, what), why && h('div', {}, h('small', { class: 'long', title: why }, why))];
  const up = (k) => (k.refused ? bad('refuses clients', k.refused)
    : k.upstream.connected ? troubles(k).map((t) => h('div', {}, h('small', { class: 'long bad', title: t }, t))) : k.clients > 0 && bad('not connected', k.upstream.error));
  const statesOf = (k) => bar(Object.fromEntries(states.map((s) => [s.field, k.types.reduce((sum, t) => sum + (t.states?.[s.name] ?? 0), 0)])));
  const inCluster = items.some((k) => k.role);
  return table(caption, [
    { name: 'Key', head: true }, { name: 'Clients', class: 'n' }, { name: 'States', title: 'of each type of each client' }, { name: 'Problem' }, { name: 'Node at the origin' }, inCluster ? { name: 'Source' } : { name: 'Origin' },
    ...(inCluster ? [{ name: 'Role', title: 'owner: it serves the key to other members; follower: the source is a member; direct: another member owns the key' }, { name: 'Owner' }] : []),
    { name: 'Types and versions' }, { name: 'In use' }, { name: 'NACKs', class: 'n' }],
  items.map((k) => [keyLink(k.key, { member }), clientsLink(k.clients, { key: k.key, member }), statesOf(k), up(k), h('span', { class: 'long', title: 'The origin sees this node for all clients of the key' }, name(k.node)), k.upstream.origin ?? '',
    ...(inCluster ? [k.role, k.owner] : []), types(k),
    k.idle_since ? ['idle ', ago(k.idle_since)] : ['since ', ago(k.since)],
    k.nacks_total ? h('a', { class: 'bad', href: nacksHref({ key: k.key, member }) }, number(k.nacks_total)) : '0']));
}

/** troubles says what goes wrong between the origin and a key, beside a lost connection. */
export function troubles(key) {
  const what = (x) => `${x.type} ${x.wildcard ? '(wildcard)' : x.names.join(', ')}${x.more ? ' and more' : ''}`;
  return [
    ...(key.suspended ?? []).map((x) => `the origin ends each stream with ${what(x)}: ${x.error}`),
    ...(key.frequent_ends ?? []).map((x) => `origin ${x.origin} ended the stream ${x.count} times in a row: ${x.error}`),
    ...key.types.filter((t) => t.unanswered).map((t) => `the origin has not answered ${what(t.unanswered)}; ${count(t.unanswered.clients, 'client waits', 'clients wait')}`)];
}

/** pages has the links to the first page and to the next one. */
export function pages(path, query, next, more = {}) {
  const to = (token) => href(path, { ...more, page_token: token });
  const links = [];
  if (query.get('page_token')) links.push(h('a', { href: to('') }, '« First page'));
  if (next) links.push(h('a', { href: to(next), rel: 'next' }, 'Next page »'));
  return links.length ? h('p', { class: 'pages' }, links) : null;
}
