// A key: its versions over time, the newest one's progress, its resources and
// its clients.
import { empty, h, name as named, put, table, update } from './dom.js';
import { at, get } from './api.js';
import { convergence, timeline } from './curve.js';
import { changes } from './diff.js';
import { watch } from './watch.js';
import { fact } from './node.js';
import { pages, troubles } from './keys.js';
import { forget, keep } from './nacks.js';
import { ago, bar, bound, bytes, clientsHref, clientsLink, count, keyHref, nacksHref, nodeLink, now, number, short, state, typeName, version } from './words.js';

export const title = 'key';

export async function show(main, page) {
  const note = h('div', { class: 'alarms', role: 'status' });
  const top = h('div');
  const tabs = h('nav', { class: 'tabs', 'aria-label': 'Types of the key' });
  const spread = h('section', { 'aria-label': 'Versions', class: 'later' });
  const held = h('section', { 'aria-label': 'Resources', class: 'later' });
  const clientList = h('section', { 'aria-label': 'Clients' });
  const changed = h('section', { 'aria-label': 'Changes', class: 'later' });
  let drawn = '';
  let fresh = true;
  let list; // of the resources of the chosen type

  await watch(page, async () => {
    const [key, clients] = await Promise.all([
      get(at('/keys', page.name), {}, page.signal),
      get('/clients', { key: page.name, sort: 'worst', limit: 25, page_token: page.query.get('page_token') }, page.signal),
    ]);
    return { key, clients };
  }, ({ key, clients }) => {
    if (fresh) put(main, h('h1', {}, named(key.key)), note, top, tabs, spread, changed, held, clientList);
    update(top, head(key));
    const type = chosen(key, page.query.get('type'));
    update(tabs, key.types.map((t) => [tab(key, t, t === type), nackedOf(key, t)]));
    // The drawings have listeners, so they are replaced only if their numbers changed.
    const numbers = JSON.stringify([type?.type, key.types.map((t) => t.versions)]);
    if (numbers !== drawn) put(spread, type ? versions(key, type) : null);
    drawn = numbers;
    const shown = page.query.get('version');
    if (fresh && type && shown) {
      put(changed, changes(key.key, type.type, shown, page.signal, page.failed));
      changed.scrollIntoView();
    }
    if (type && list?.type !== type.type) list = { type: type.type, refresh: resources(held, page, key, type) };
    if (type) list.refresh(type);
    update(clientList, clientTable(page, key, clients));
    fresh = false;
  }, (what) => update(note, what && h('p', {}, what)));
}

const name = (t) => t.short ?? short(t.type);

const chosen = (key, wanted) => key.types.find((t) => name(t) === wanted || t.type === wanted) ?? key.types.find((t) => t.states?.NACKED) ?? key.types[0];

function head(key) {
  const up = (u, what) => fact(what, u && (u.connected ? ['connected to ', u.origin] : h('span', { class: 'bad' }, 'not connected', u.error ? `: ${u.error}` : '')));
  return h('dl', { class: 'facts' },
    up(key.upstream, 'Origin'), up(key.second_upstream, 'Second stream'),
    fact('Node at the origin', key.node && named(key.node)), fact('Clients', clientsLink(key.clients, { key: key.key })),
    fact('User agents', key.other_user_agents && h('a', { href: clientsHref({ key: key.key }) }, `${key.user_agent || 'none'} and others`)),
    key.role && fact('In the cluster', `${key.role}; the owner is ${key.owner}`), fact('In use', ['since ', ago(key.since)]),
    fact('Nodes differ in', key.node_differences?.fields?.map((f) => `${f.field}: ${f.values}${f.more ? '+' : ''} values`).join(', ')),
    fact('Idle', key.idle_since && ['since ', ago(key.idle_since)]), fact('Generation', number(key.generation)),
    fact('NACKs', key.nacks_total && h('a', { class: 'bad', href: nacksHref({ key: key.key }) }, number(key.nacks_total))),
    troubles(key).map((t) => fact('Problem', h('span', { class: 'bad' }, t))),
    fact('The relay refuses clients', key.refused && h('span', { class: 'bad' }, key.refused)));
}

function tab(key, t, on) {
  return h('a', { href: keyHref(key.key, { type: name(t) }), 'aria-current': on ? 'true' : undefined }, name(t), ' ',
    h('small', {}, t.version || 'no version yet', t.stale ? ', last known good' : ''));
}

const nackedOf = (key, t) => t.states?.NACKED > 0 && clientsLink(t.states.NACKED, { key: key.key, type: typeName(t.type), state: 'NACKED' }, { class: 'count', title: `clients that reject ${name(t)}` });

const TOOK = 'upper bound of the time from the arrival of the version to the ACK; the exact time may be half of it';

/** versionsOf are the versions of a type that the relay remembers, the newest first. */
const versionsOf = (t) => t.versions ?? [];

function versions(key, type) {
  const all = versionsOf(type);
  const facts = h('dl', { class: 'facts' },
    fact('Version', type.version ? version(type.version) : 'none yet'), fact('Origin version', type.origin_version && version(type.origin_version)),
    fact('Origin', type.origin), fact('Resources', `${number(type.resources)} (${bytes(type.bytes)})`),
    fact('Requested', type.wildcard ? (type.names ? `all, and ${count(type.names, 'name')}` : 'all') : count(type.names, 'name')),
    fact('Clients', clientsLink(type.members, { key: key.key, type: typeName(type.type) })), fact('Changed', ago(type.received)));
  if (!all.length) return [facts];
  const changesOf = (v, n) => (n ? h('a', { href: keyHref(key.key, { type: name(type), version: v.version }), title: `What version ${v.version} changed` }, number(n)) : '0');
  const newest = all[0];
  const types = key.types.map((t) => ({ short: name(t), versions: versionsOf(t) })).filter((t) => t.versions.length);
  const step = newest.clients ? `${Math.floor((newest.in_step / newest.clients) * 1000) / 10} % of ${count(newest.clients, 'client')} have it` : 'no clients';
  return [facts,
    h('div', { class: 'two even' },
      h('div', { class: 'panel' }, h('h3', {}, `Convergence of version ${newest.version}`, h('small', {}, ` ${step}`)), convergence(newest)),
      h('div', { class: 'panel' }, h('h3', {}, 'Versions over time'), timeline(types, now()))),
    table(`The last ${count(all.length, 'version')} of ${name(type)}, the newest first`, [
      { name: 'Version', head: true }, { name: 'Origin version' }, { name: 'Received' }, { name: 'Changed', class: 'n', title: 'resources' },
      { name: 'Removed', class: 'n', title: 'resources' }, { name: 'Sent', class: 'n', title: 'streams, including closed ones' },
      { name: 'ACKs', class: 'n', title: 'streams, including closed ones' }, { name: 'NACKs', class: 'n', title: 'streams, including closed ones' },
      { name: 'Pending', class: 'n', title: 'connected clients' }, { name: 'p50', class: 'n', title: TOOK },
      { name: 'p99', class: 'n', title: TOOK }, { name: 'Clients now' }, { name: 'Longest pending' }],
    all.map((v, i) => [version(v.version), version(v.origin_version), ago(v.received), changesOf(v, v.changed), changesOf(v, v.removed), number(v.sent), number(v.acknowledged),
      v.nacked ? h('a', { class: 'bad', href: nacksHref({ key: key.key, type: typeName(type.type), version: v.version }) }, number(v.nacked)) : '0',
      i ? number(v.pending) : clientsLink(v.pending, { key: key.key, type: typeName(type.type), state: 'STALE,NOT_SENT' }),
      bound(v.ack_seconds_p50), bound(v.ack_seconds_p99), bar({ synced: v.in_step, stale: v.pending, nacked: v.nacking }),
      v.laggard ? [nodeLink(v.laggard.node), ' ', ago(v.laggard.since)] : '–']))];
}

const RESOURCES = 50;

/**
 * resources draws the resources of a type, with a field that selects by name. The page reads the content
 * of one when it is opened. The returned function takes the type as it is now. It reads the list again
 * if the version has changed.
 */
function resources(el, page, key, type) {
  const body = h('div', { 'aria-live': 'polite' });
  const list = h('ul', { class: 'resources' });
  const more = h('p', { class: 'pages' }, h('button', { type: 'button', on: { click: () => read(next) } }, 'Next page »'));
  const field = h('input', { type: 'search', placeholder: 'Part of a name', 'aria-label': `Find a resource of ${name(type)}`, value: page.query.get('find') ?? '' });
  const ask = { key: key.key, type: type.type };
  const known = new Map(); // elements by the name of the resource
  let asked = new AbortController();
  let listed; // the version of the list; undefined: it could not be read
  let token = ''; // of the shown page
  let next; // the token of the next page
  let timer;
  const failed = (to) => (e) => {
    if (e.name === 'AbortError') return;
    if (e.status === 401) page.failed(e);
    else put(to, h('p', { class: 'wrong', role: 'alert' }, e.message));
  };
  const none = (find) => put(body, empty(find ? 'No resource has this in its name.' : 'The relay has no resource of this type.'));
  const read = async (from) => {
    asked.abort();
    asked = new AbortController();
    const find = field.value.trim();
    listed = type.version;
    token = from;
    try {
      const found = await get('/resources', { ...ask, find, limit: RESOURCES, page_token: token }, AbortSignal.any([asked.signal, page.signal]));
      if (token && !found.items.length) return read('');
      keep(list, known, found.items, (r) => r.name, make, draw);
      forget(known, found.items.map((r) => r.name));
      next = found.next_page_token;
      more.hidden = !next;
      if (!found.items.length) none(find);
      else if (list.parentNode !== body) put(body, list, more);
    } catch (e) {
      if (e.name !== 'AbortError') listed = undefined;
      if (e.status === 404) none();
      else failed(body)(e);
    }
  };
  const content = (details, of) => get('/config_dump', { ...ask, name: of }, page.signal)
    .then((found) => put(details.lastChild, h('pre', {}, h('code', {}, JSON.stringify(found.items[0]?.resource ?? null, null, 2)))))
    .catch(failed(details.lastChild));
  const make = (r) => {
    const details = h('details', {}, h('summary'), h('div'));
    details.addEventListener('toggle', () => details.open && content(details, r.name));
    return h('li', {}, details);
  };
  const draw = ({ firstChild: details }, r) => {
    update(details.firstChild, h('span', { class: 'long' }, named(r.name)), ' ', version(r.origin_version || r.version), ' ', h('small', {}, bytes(r.bytes)));
    if (details.open) content(details, r.name);
  };
  field.addEventListener('input', () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      const find = field.value.trim();
      page.go(keyHref(key.key, { type: name(type), ...(find && { find }) }), { replace: true, quiet: true });
      read('');
    }, 200);
  });
  put(el, h('div', { class: 'line' }, h('h2', {}, `Resources of ${name(type)}`), field), body);
  if (!type.version) none();
  return (now) => {
    type = now;
    if (type.version && type.version !== listed) read(token);
  };
}

function clientTable(page, key, list) {
  if (!list.items.length) return [h('h2', {}, 'Clients'), empty('No client has this key now.', 'The relay keeps the key for a while, and serves returning clients at once.')];
  const more = { name: key.key };
  if (page.query.get('type')) more.type = page.query.get('type');
  return [h('h2', {}, 'Clients'),
    table(`${count(list.total, 'client')}, the worst first${list.next_page_token || page.query.has('page_token') ? `; ${number(list.items.length)} of them on this page` : ''}`, [
      { name: 'Node', head: true }, { name: 'Peer' }, { name: 'Variant' }, { name: 'Open' }, { name: 'Types' }],
    list.items.map((c) => [nodeLink(c.node), c.peer, c.variant, ago(c.since),
      h('ul', { class: 'chips' }, c.types.filter((t) => t.key === key.key).map((t) => h('li', {}, short(t.type), ' ', state(t.state))))])),
    pages('key', page.query, list.next_page_token, more)];
}
