// The clients that a filter selects, the worst first. Each count of the page leads here.
import { empty, h, put, table, update } from './dom.js';
import { get, getFromAll } from './api.js';
import { aside, unanswered } from './members.js';
import { pages } from './keys.js';
import { watch } from './watch.js';
import { ago, clientsHref, clientsLink, count, keyLink, nodeHref, nodeLink, number, short, state, types, worst } from './words.js';

export const title = 'clients';

const PAGE = 50;

const STATES = [['', 'any state'], ['NACKED,STALE,NOT_SENT,UNCONFIRMED', 'not synced'], ['NACKED', 'NACKED'], ['STALE,NOT_SENT', 'STALE or NOT SENT'],
  ['STALE', 'STALE'], ['NOT_SENT', 'NOT SENT'], ['UNCONFIRMED', 'UNCONFIRMED'], ['SYNCED', 'SYNCED']];

export async function show(main, page) {
  const filter = Object.fromEntries(['state', 'key', 'type', 'user_agent'].map((name) => [name, page.query.get(name) ?? '']).filter(([, value]) => value));
  const note = h('div', { class: 'alarms', role: 'status' });
  const list = h('div');
  const all = page.query.has('members');
  put(main, h('h1', {}, 'Clients', all && ' of all members', aside('clients', page, filter)), form(filter, page, all), note, list);
  if (all) {
    await watch(page, () => getFromAll('/clients', { ...filter, sort: 'worst', limit: PAGE }, page.signal),
      (found) => update(list, drawAll(found, filter)), (what) => update(note, what && h('p', {}, what)));
    return;
  }
  try {
    await watch(page, () => Promise.all([
      get('/clients', { ...filter, sort: 'worst', limit: PAGE, page_token: page.query.get('page_token') }, page.signal),
      Object.keys(filter).length ? {} : get('/server_info', {}, page.signal),
    ]), ([found, { user_agents: agents }]) => update(list, draw(found, filter, page), agents?.length > 0 && found.total > 0 && agentTable(agents)),
      (what) => update(note, what && h('p', {}, what)));
  } catch (e) {
    if (e.status !== 400) throw e;
    put(list, h('p', { class: 'wrong', role: 'alert' }, e.message)); // the form stays, to correct it
  }
}

function form(filter, page, all) {
  const chosen = (name, label, all) => {
    const value = filter[name] ?? '';
    const options = all.some(([v]) => v === value) ? all : [...all, [value, value]];
    return field(label, h('select', { name }, options.map(([v, text]) => h('option', { value: v, selected: v === value }, text))));
  };
  const typed = (name, label, placeholder) => field(label, h('input', { name, value: filter[name] ?? '', placeholder, maxlength: 1024, spellcheck: 'false', autocomplete: 'off' }));
  const el = h('form', { class: 'filter', 'aria-label': 'Filter', on: {
    submit: (event) => {
      event.preventDefault();
      page.go(clientsHref({ ...Object.fromEntries(new FormData(el)), members: all }));
    } } },
  chosen('state', 'State', STATES), typed('key', 'Key', 'edge/eu-1'),
  chosen('type', 'Type', [['', 'any type'], ...types.map((t) => [t, t])]), typed('user_agent', 'User agent', 'envoy 1.40.0'),
  h('button', { type: 'submit', class: 'first' }, 'Show'),
  Object.keys(filter).length > 0 && h('a', { href: clientsHref({ members: all }) }, 'All clients'));
  return el;
}

const field = (label, control) => h('label', {}, h('span', {}, label), control);

// agentTable has the user agents of all clients.
function agentTable(agents) {
  const name = (a) => [a.name, a.version].filter(Boolean).join(' ');
  return h('section', { 'aria-label': 'User agents' }, h('h2', {}, 'User agents'), table('All clients by user agent and version', [{ name: 'User agent', head: true }, { name: 'Clients', class: 'n' }],
    agents.map((a) => [a.other ? `${number(a.other)} others` : name(a) || h('span', { class: 'none' }, 'not given'),
      a.other || !name(a) ? number(a.clients) : clientsLink(a.clients, { user_agent: name(a) })])));
}

function draw(found, filter, page) {
  const filtered = Object.keys(filter).length > 0;
  if (!found.total) {
    return filtered ? empty('No client matches this filter.', h('a', { href: clientsHref() }, 'Show all clients'))
      : empty('No client is connected.', 'Connect a client to the downstream address of this relay.');
  }
  const part = found.next_page_token || page.query.has('page_token');
  return [clientTable(`${count(found.total, 'client')}${filtered ? ` ${found.total === 1 ? 'matches' : 'match'} this filter` : ''}, the worst first${part ? `; ${number(found.items.length)} of them on this page` : ''}`, found.items, filter),
    pages('clients', page.query, found.next_page_token, filter)];
}

/** drawAll has the worst clients of each member. The list of one member has the others. */
function drawAll({ answers, silent }, filter) {
  return [unanswered(silent), answers.map(({ member, answer: { items, total } }) => h('section', { 'aria-label': `Clients of ${member}` },
    h('h2', {}, member, h('a', { class: 'aside', href: clientsHref({ ...filter, member }) }, count(total, 'client'))),
    total > 0 && clientTable(`The worst first${items.length < total ? `; ${number(items.length)} of them` : ''}`, items, filter, member)))];
}

function clientTable(caption, items, filter, member) {
  return table(caption, [
    { name: 'Node', head: true }, { name: 'State' }, { name: 'Types' }, { name: 'Key' }, { name: 'User agent' }, { name: 'Variant' }, { name: 'Peer' }, { name: 'Open' }],
  items.map((c) => [nodeLink(c.node, member), worstOf(c, filter), typesOf(c), keysOf(c, member), [c.user_agent, c.user_agent_version].filter(Boolean).join(' '), c.variant, c.peer, ago(c.since)]), { class: 'clients' });
}

// worstOf is the state of a client: the worst of its types that the filter selects. The filter may
// spell the key in another way than the client's status.
function worstOf(c, filter) {
  const of = c.types.filter((t) => (!filter.key || t.key === filter.key) && (!filter.type || short(t.type) === filter.type || t.type === filter.type));
  const name = worst((of.length ? of : c.types).map((t) => t.state)) || 'NOT SENT';
  const since = of.filter((t) => t.state === name).map((t) => t.since).sort()[0];
  // The times of types that are SYNCED say nothing about when the client was.
  return [state(name), since && name !== 'SYNCED' && [' ', ago(since)]];
}

// typesOf names the types that are not synced.
function typesOf(c) {
  const others = c.types.filter((t) => t.state !== 'SYNCED');
  const synced = c.types.length - others.length;
  return h('ul', { class: 'chips' }, others.map((t) => h('li', {}, short(t.type), ' ', state(t.state))),
    synced > 0 && h('li', {}, synced === c.types.length ? c.types.map((t) => short(t.type)).join(' ') : `${number(synced)} synced`),
    !c.types.length && h('li', { class: 'none' }, 'no request yet'));
}

function keysOf(c, member) {
  const keys = [...new Set(c.types.map((t) => t.key).filter(Boolean))];
  return keys.length ? [keyLink(keys[0], { member }), keys.length > 1 && [' and ', h('a', { href: nodeHref(c.node, member) }, count(keys.length - 1, 'other'))]] : h('span', { class: 'none' }, 'none');
}
