// The key that a node gets: each rule, with the values that it read.
import { h, name as named, put, table } from './dom.js';
import { get, post } from './api.js';
import { ago, count, keyLink, nodeLink, number, place, short, types } from './words.js';

export const title = 'key of a node';

const EXAMPLE = {
  id: 'edge-1', cluster: 'edge', metadata: { team: 'shop' }, locality: { region: 'eu', zone: 'eu-1' },
};

export async function show(main, page) {
  const node = h('textarea', { id: 'node', rows: 12, spellcheck: 'false', required: true, 'aria-describedby': 'node-help',
    placeholder: JSON.stringify(EXAMPLE, null, 2) });
  const peer = h('textarea', { id: 'peer', rows: 4, spellcheck: 'false', placeholder: '{"address": "10.0.0.1", "uri_sans": ["spiffe://cluster/ns/a/sa/b"]}' });
  const type = h('select', { id: 'type' }, h('option', { value: '' }, 'all types'), types.map((t) => h('option', { value: t }, t)));
  const out = h('section', { id: 'explained', 'aria-live': 'polite', 'aria-label': 'Result' });
  const inForce = h('section', { 'aria-label': 'Rules', class: 'rules' });
  let asked = new AbortController();
  const ask = async (event) => {
    event?.preventDefault();
    asked.abort(); // an older answer must not replace a newer one
    asked = new AbortController();
    try {
      const signal = AbortSignal.any([asked.signal, page.signal]);
      if (!event && page.query.has('node')) { // a connected client
        const id = page.query.get('node');
        put(out, h('p', { class: 'help' }, 'The node and the peer are those of the client ', named(id), '.'), ...result(await get('/explain', { node: id }, signal)));
        return;
      }
      // The relay reads YAML and JSON. The peer is a second document.
      const body = peer.value.trim() ? `${node.value}\n---\n${peer.value}` : node.value;
      put(out, ...result(await post('/explain', { type: type.value }, body, signal)));
    } catch (e) {
      if (e.name === 'AbortError') return;
      if (e.status === 401) page.failed(e);
      else put(out, h('p', { class: 'wrong', role: 'alert' }, e.message));
    }
  };
  const example = (event) => {
    node.value = JSON.stringify(EXAMPLE, null, 2);
    ask(event);
  };
  const hurry = (event) => { if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) ask(event); };
  put(main, h('h1', {}, 'Which key does a node get?'),
    h('div', { class: 'two where' },
      h('form', { class: 'ask', on: { submit: ask, keydown: hurry } },
        h('label', { for: 'node' }, 'Node or Envoy bootstrap, as YAML or JSON'), node,
        h('p', { class: 'help', id: 'node-help' }, 'An envoy.config.core.v3.Node, or a whole bootstrap with one. The page sends it only to this relay, and the relay does not keep it. ',
          h('button', { type: 'button', class: 'plain', on: { click: example } }, 'Use an example')),
        h('label', { for: 'peer' }, 'Peer, as YAML or JSON, if rules use it'), peer,
        h('label', { for: 'type' }, 'Type'), type,
        h('p', {}, h('button', { type: 'submit', class: 'first' }, 'Explain'), ' ', h('kbd', {}, 'Ctrl'), ' ', h('kbd', {}, 'Enter'))),
      out), inForce);
  get('/rules', {}, page.signal).then((found) => put(inForce, ruleTable(found)), (e) => {
    if (e.name === 'AbortError') return;
    if (e.status === 401) page.failed(e);
    else put(inForce, h('p', { class: 'wrong', role: 'alert' }, e.message));
  });
  put(out, h('p', { class: 'empty' }, 'Paste a node to see its key, and each rule with the values that it read.'));
  if (page.query.has('node')) await ask();
}

function result(x) {
  return x.types.flatMap((t) => [
    h('h2', {}, t.type ? `${short(t.type)}: ` : '',
      t.refused ? h('span', { class: 'bad' }, 'the relay refuses the node') : ['key ', keyLink(t.key)]),
    t.refused && h('p', { class: 'wrong' }, t.refused),
    t.own && h('p', {}, 'No rule matched. The node gets its own key.'),
    h('ol', { class: 'rules' }, t.rules.map((r) => rule(r))),
  ]);
}

/** ruleTable has what each rule does to the connected clients. */
function ruleTable({ items, notices = [], examined_clients: clients, partial }) {
  const last = (f) => (f ? [nodeLink(f.node), ' ', ago(f.at), ': ', f.error] : '–');
  return [h('h2', {}, 'Rules in force'), notices.map((n) => h('p', { class: 'wrong' }, n)),
    table(`What the rules do to ${count(clients, 'client')}${partial ? ', which are not all' : ''}`, [
      { name: 'Rule', head: true }, { name: 'Match' }, { name: 'Key' }, { name: 'Clients', class: 'n', title: 'that get a key from the rule, for one of their types' }, { name: 'Keys', class: 'n' },
      { name: 'Failures', class: 'n', title: 'of match and key, since the rules are in force' }, { name: 'Last failure' }],
    items.map((r) => [[r.rule, h('div', {}, h('small', {}, place(r.place)))], [h('code', {}, r.match), r.types?.length > 0 && ` for ${r.types.map(short).join(', ')}`], h('code', {}, r.key.join(', ')),
      number(r.clients), number(r.keys), number(r.errors + r.key_errors), last(r.last_failure)]))];
}

const mark = (result) => (result === 'match' ? 'synced' : result.includes('failed') ? 'nacked' : '');

function rule(r) {
  return h('li', { class: mark(r.result) },
    h('p', { class: 'rule' }, h('b', {}, r.rule), ' ', h('small', {}, place(r.place)), ' ', h('span', { class: `result ${mark(r.result)}` }, r.result)),
    r.types?.length ? h('p', {}, `only for ${r.types.map(short).join(', ')}`) : null,
    h('p', {}, h('code', {}, r.match)),
    r.error && h('p', { class: 'wrong' }, r.error),
    r.values?.length ? table('Values that the rule read', [{ name: 'Expression', head: true }, { name: 'Value' }],
      r.values.map((v) => [h('code', {}, v.expr), v.error ? h('span', { class: 'bad' }, v.error) : h('code', {}, JSON.stringify(v.value))])) : null,
    r.key?.length ? table('Elements of the key', [{ name: 'Element', head: true }, { name: 'Value' }],
      r.key.map((v) => [h('code', {}, v.expr), v.error ? h('span', { class: 'bad' }, v.error) : h('code', {}, v.value ?? '')])) : null);
}
