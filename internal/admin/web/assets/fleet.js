// The fleet: origins, keys, and the number of clients in each state.
import { empty, h, put, table, update } from './dom.js';
import { Flow, legend } from './flow.js';
import { Curves } from './history.js';
import { ago, bar, clientsLink, count, keyLink, number, types } from './words.js';

export const title = 'fleet';

export async function show(main, page) {
  const tiles = h('dl', { class: 'tiles' });
  const drawing = h('div', { class: 'drawing' });
  const past = h('section', { class: 'past', 'aria-label': 'The last fifteen minutes' });
  const keys = h('section', { 'aria-label': 'Keys' });
  const side = h('section', { 'aria-label': 'Types and origins', id: 'origins' });
  const alarms = h('div', { class: 'alarms', role: 'status' });
  put(main, h('h1', { class: 'unseen' }, 'The fleet'), alarms, tiles, drawing, legend(), past, h('div', { class: 'two' }, keys, side));
  put(tiles, h('p', { class: 'loading' }, 'Waiting for data…'));
  const flow = new Flow(drawing, page.signal);
  const curves = new Curves(past, page);

  page.live.on(page.signal, (o) => {
    curves.see(o);
    update(alarms, alarm(o));
    update(tiles, tileRow(o));
    flow.draw(o);
    drawing.hidden = o.clients === 0;
    update(keys, keyTable(o));
    update(side, typeTable(o), originTable(o));
  });
  if (location.hash === '#origins') scrollTo(side, [alarms, tiles, drawing, past, keys], page.signal);
}

/** scrollTo shows el, again after the parts above it have grown, until the user scrolls. */
function scrollTo(el, above, signal) {
  const grown = new ResizeObserver(() => el.scrollIntoView());
  for (const part of above) grown.observe(part);
  const stop = () => grown.disconnect();
  for (const by of ['wheel', 'touchmove', 'keydown', 'pointerdown']) addEventListener(by, stop, { once: true, signal });
  signal.addEventListener('abort', stop);
}

const LIKE = 3; // texts of one banner

// alarm is a banner for each problem, with its consequence and the next step. Problems with the
// same consequence and step share a banner.
function alarm(o) {
  const linked = (text, key) => {
    const at = key ? text.indexOf(`ey ${key}`) + 3 : 2;
    return at < 3 ? text : [text.slice(0, at), keyLink(key), text.slice(at + key.length)];
  };
  const text = (p) => h('p', {}, h('strong', {}, linked(p.text[0].toUpperCase() + p.text.slice(1), p.key)),
    p.since ? [' (began ', ago(p.since), ')'] : p.last ? [' (last ', ago(p.last), ')'] : '');
  const groups = Map.groupBy(o.problems, (p) => JSON.stringify([p.severity, p.impact, p.next]));
  return [...groups.values()].map((all) => h('div', { class: `problem ${all[0].severity}` },
    all.slice(0, LIKE).map(text),
    all.length > LIKE && h('details', {}, h('summary', {}, `${number(all.length - LIKE)} more like this`), all.slice(LIKE).map(text)),
    h('p', {}, all[0].impact, ' ', h('b', {}, 'Next: '), all[0].next)));
}

function tile(name, value, more, kind) {
  return h('div', { class: kind }, h('dt', {}, name), h('dd', {}, value, more && h('small', {}, more)));
}

function tileRow(o) {
  const st = o.states;
  const share = o.clients ? Math.floor((st.synced / o.clients) * 1000) / 10 : 0;
  const away = o.origins.filter((x) => x.away).length;
  return [
    tile('Clients', clientsLink(o.clients), `${number(o.variants.sotw)} SotW, ${number(o.variants.delta)} delta${o.variants.rest ? `, ${number(o.variants.rest)} REST` : ''}`),
    tile('Synced', o.clients ? `${share} %` : '–', [clientsLink(st.synced, { state: 'SYNCED' }), ' acknowledged the newest version'], o.clients && share < 99 ? 'warn' : 'good'),
    ...(st.unconfirmed ? [tile('Unconfirmed', clientsLink(st.unconfirmed, { state: 'UNCONFIRMED' }), 'keep what they had, until the origin answers', 'warn')] : []),
    tile('Waiting', clientsLink(st.stale + st.not_sent, { state: 'STALE,NOT_SENT' }),
      [clientsLink(st.stale, { state: 'STALE' }), ' stale, ', clientsLink(st.not_sent, { state: 'NOT_SENT' }), ' not sent']),
    tile('NACKed', clientsLink(st.nacked, { state: 'NACKED' }), st.nacked ? h('a', { href: 'nacks' }, 'Show the NACKs') : 'no client', st.nacked ? 'bad' : ''),
    tile('Keys', h('a', { href: 'keys' }, number(o.keys)),
      o.disconnected ? [h('a', { href: 'keys?disconnected=true' }, number(o.disconnected)), ' not connected to an origin']
        : o.clients ? 'connected to an origin' : 'without clients', o.disconnected ? 'bad' : ''),
    tile('Origins', h('a', { href: 'fleet#origins' }, number(o.origins.length)), away ? `${number(away)} away` : 'none is away', away ? 'bad' : ''),
  ];
}

function keyTable(o) {
  if (!o.top.length) {
    return [h('h2', {}, 'Keys'), empty('No key is in use.',
      'Connect a client to the downstream address of this relay. The rules give its node a key. ',
      h('a', { href: 'where' }, 'Try the rules'), '.')];
  }
  // A filter cannot select the clients without a key, of a key that is too long, or of all other keys.
  const clients = (k, n, more) => (k.key && !k.cut ? clientsLink(n, { key: k.key, ...more }, { class: more && 'bad' }) : number(n));
  const nacked = (k) => (k.keys ? clientsLink(k.states.nacked, { state: 'NACKED' }, { class: 'bad', title: 'This list has the NACKed clients of all keys' })
    : clients(k, k.states.nacked, { state: 'NACKED' }));
  const row = (k, name) => [name, bar(k.states), clients(k, k.clients), k.error ? h('span', { class: 'bad', title: k.error }, 'not connected') : k.origin ?? '', number(k.resources), ago(k.received), nacked(k)];
  const rows = o.top.map((k) => row(k, k.key === '' ? h('span', { title: 'No rule gives these clients a key, or they have sent no request yet' }, 'no key')
    : k.cut ? h('span', { class: 'long', title: 'The key is too long for a link' }, k.key) : keyLink(k.key)));
  if (o.rest) rows.push(row({ ...o.rest, key: '' }, h('a', { href: 'keys' }, `${number(o.rest.keys)} other keys`)));
  return [h('h2', {}, 'Keys ', h('a', { class: 'aside', href: 'keys' }, 'all')),
    table(`The ${count(o.top.length, 'key')} with the most clients or with NACKs`, [
      { name: 'Key', head: true }, { name: 'Clients by state' }, { name: 'Clients', class: 'n' }, { name: 'Origin' },
      { name: 'Resources', class: 'n' }, { name: 'Changed' }, { name: 'NACKed', class: 'n' }], rows)];
}

function typeTable(o) {
  if (!o.types?.length) return null;
  return [h('h2', {}, 'Types'), table('States of each type on all streams', [
    { name: 'Type', head: true }, { name: 'Streams by state' }, { name: 'Synced', class: 'n' }, { name: 'Unconfirmed', class: 'n' }, { name: 'Stale', class: 'n' },
    { name: 'Not sent', class: 'n' }, { name: 'NACKed', class: 'n' }],
  o.types.map((t) => [t.type, bar(t.states), ...[['synced', 'SYNCED'], ['unconfirmed', 'UNCONFIRMED'], ['stale', 'STALE'], ['not_sent', 'NOT_SENT'], ['nacked', 'NACKED']]
    .map(([field, state]) => (types.includes(t.type) ? clientsLink(t.states[field], { type: t.type, state }, { class: field === 'nacked' && 'bad' }) : number(t.states[field])))]))];
}

function originTable(o) {
  return [h('h2', {}, 'Origins'), table('In order of preference', [
    { name: 'Origin', head: true }, { name: 'State' }, { name: 'Streams', class: 'n' }, { name: 'Address' }],
  o.origins.map((x) => [h('span', { class: 'long' }, x.name),
    x.away ? h('span', { class: 'state nacked', title: x.last_error }, h('i', { 'aria-hidden': 'true' }, '✕'), x.reached ? ['went away ', ago(x.away_since)] : 'never reached')
      : x.silent_streams ? h('span', { class: 'state stale' }, h('i', { 'aria-hidden': 'true' }, '◐'), `silent on ${count(x.silent_streams, 'stream')}`)
        : x.connections || x.streams ? h('span', { class: 'state synced' }, h('i', { 'aria-hidden': 'true' }, '●'), 'connected')
          : h('span', { class: 'state' }, x.reached ? 'not connected' : 'connecting'),
    number(x.streams), h('span', { class: 'long' }, x.address)])),
  h('p', { class: 'foot' }, 'The relay started ', ago(o.relay.started), '.')];
}
