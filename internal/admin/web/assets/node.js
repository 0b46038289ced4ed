// One node: its streams, and each type on them.
import { empty, h, name as named, put, table, update } from './dom.js';
import { at, get, shownMember } from './api.js';
import { differences, requested } from './diff.js';
import { pages } from './keys.js';
import { watch } from './watch.js';
import { ago, bytes, clientsHref, count, href, keyLink, nacksHref, number, place, short, span, state, typeName, version } from './words.js';

export const title = 'node';

export async function show(main, page) {
  const body = h('div');
  const compared = differences(page.name, page.signal, page.failed);
  const diff = h('section', { 'aria-label': 'Differences' }, compared.el);
  const names = h('section', { 'aria-label': 'Names' }, requested(page.name, page.signal, page.failed));
  const note = h('div', { class: 'alarms', role: 'status' });
  let drawn;
  const or = (nothing) => (e) => { // no client has the node id
    if (e.status === 404) return nothing;
    throw e;
  };
  await watch(page, () => Promise.all([
    get(at('/clients', page.name), { sort: 'worst', limit: 50, page_token: page.query.get('page_token') }, page.signal).catch(or({ items: [], total: 0 })),
    shownMember() ? null : get('/explain', { node: page.name }, page.signal).catch(or(null))]),
    ([list, explained]) => {
      if (!body.isConnected) put(main, h('h1', {}, named(page.name)), note, body, diff, names);
      diff.hidden = !list.items.some((c) => c.types?.some((t) => t.state !== 'SYNCED'));
      update(body, draw(list, explained, page));
      const now = JSON.stringify(list.items, (name, value) => (name === 'unanswered_seconds' ? undefined : value));
      if (now !== drawn) compared.again();
      drawn = now;
    },
    (what) => update(note, what && h('p', {}, what)));
}

function draw(list, explained, page) {
  if (!list.total) return empty('No stream of this node is open.', 'The client may be reconnecting. This page updates by itself.');
  const part = list.next_page_token || page.query.has('page_token');
  return [h('p', { class: 'help' }, count(list.total, 'open stream'), list.total > 1 && ', the worst first', part && `; ${number(list.items.length)} of them on this page`, '. ',
    list.total > 1 && 'Several clients can have the same node id.'), list.items.map((c) => stream(c, explained)), pages('node', page.query, list.next_page_token, { name: page.name })];
}

const locality = (l) => l && [l.region, l.zone, l.sub_zone].filter(Boolean).join(' / ');

/** giver names the rules that gave a type its key. Clients with one node id can have different keys. */
function giver(t, explained) {
  const x = explained?.types.find((e) => (!e.type || e.type === t.type) && e.key === t.key);
  const by = x?.rules.filter((r) => r.result === 'match') ?? [];
  return by.length > 0 && [' ', h('small', { title: `The rule that gave the key: ${by.map((r) => place(r.place)).join(', ')}` }, by.map((r) => r.rule).join(', '))];
}

function stream(c, explained) {
  const agent = [c.user_agent, c.user_agent_version].filter(Boolean).join(' ');
  return [h('h2', {}, `Stream ${c.stream}`),
    h('dl', { class: 'facts' }, fact('Peer', c.peer), fact('Identity', c.identity && named(c.identity)), fact('Cluster', c.cluster && named(c.cluster)),
      fact('User agent', agent && h('a', { href: clientsHref({ user_agent: agent }) }, agent)), fact('Locality', locality(c.locality)), fact('Variant', { sotw: 'state of the world', delta: 'delta' }[c.variant] ?? c.variant), fact('Connected', ['since ', ago(c.since)])),
    !shownMember() && h('p', {}, h('a', { href: href('where', { node: c.node }) }, 'Explain this client')),
    c.metadata && h('details', {}, h('summary', {}, 'Metadata'), h('pre', {}, h('code', {}, JSON.stringify(c.metadata, null, 2)))),
    c.node_too_large_bytes && h('p', { class: 'none' }, `The page does not show locality and metadata of this node, because it is large (${bytes(c.node_too_large_bytes)}).`),
    c.types?.length ? table('Types on this stream', [
      { name: 'Type', head: true }, { name: 'State' }, { name: 'Since' }, { name: 'Key' }, { name: 'Requested' }, { name: 'Sent' }, { name: 'Acknowledged' },
      { name: 'Responses', class: 'n' }, { name: 'ACKs', class: 'n' }, { name: 'NACKs', class: 'n' }],
    c.types.map((t) => [short(t.type), state(t.state), t.since ? ago(t.since) : t.unanswered_seconds ? span(t.unanswered_seconds) : '', t.key ? [keyLink(t.key, { type: typeName(t.type) }), giver(t, explained)] : h('span', { class: 'none' }, 'none'),
      t.wildcard ? (t.names ? `all, and ${count(t.names, 'name')}` : 'all') : count(t.names, 'name'), version(t.sent), version(t.acked),
      number(t.responses), number(t.acks), t.nacks ? h('a', { class: 'bad', href: nacksHref({ key: t.key, type: typeName(t.type) }) }, number(t.nacks)) : '0']))
      : empty('The client has sent no request on this stream yet.'),
    (c.types ?? []).filter((t) => t.last_nack && t.state === 'NACKED').map((t) => h('div', { class: 'nack' },
      h('p', {}, h('b', {}, short(t.type)), ': the client rejected version ', version(t.last_nack.version), t.last_nack.at ? [' ', ago(t.last_nack.at)] : '', ': ',
        h('span', { class: 'message' }, t.last_nack.message || 'no message')),
      t.key && h('p', {}, h('a', { href: nacksHref({ key: t.key }) }, 'All NACKs of this key')))),
    (c.types ?? []).filter((t) => t.oversized).map((t) => h('p', { class: 'wrong' },
      `The relay does not send version ${t.oversized.version} of ${short(t.type)}: the response is too large (${number(t.oversized.bytes)} bytes)`))];
}

export const fact = (name, value) => (value ? h('div', {}, h('dt', {}, name), h('dd', {}, value)) : null);
