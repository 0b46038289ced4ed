// The members of the cluster: what each says of itself, and whether it answers this relay.
import { empty, h, put, table, update } from './dom.js';
import { getFromAll, shownMember } from './api.js';
import { watch } from './watch.js';
import { ago, count, href, number } from './words.js';

export const title = 'members';

export async function show(main, page) {
  const note = h('div', { class: 'alarms', role: 'status' });
  const list = h('div');
  try {
    await watch(page, () => getFromAll('/members', {}, page.signal), (found) => {
      if (!list.isConnected) put(main, h('h1', {}, 'Members of the cluster'), note, list);
      update(list, draw(found));
    }, (what) => update(note, what && h('p', {}, what)));
  } catch (e) {
    if (e.status !== 404) throw e;
    put(main, h('h1', {}, 'Members of the cluster'), empty('This relay is in no cluster.', 'It has no cluster.name.'));
  }
}

function draw({ members, answers, silent }) {
  const own = new Map(answers.map((a) => [a.member, a.answer.items.find((m) => m.self)]));
  const sum = (of) => number([...own.values()].reduce((n, m) => n + of(m), 0));
  // Of two starts of one name, the one that is not alive has no answer.
  const answered = (m) => m.state !== 'dead' && m.state !== 'left' && own.get(m.name);
  const load = (m, of, view, filter) => (answered(m) ? h('a', { href: href(view, { ...filter, member: m.self ? '' : m.name }) }, number(of(own.get(m.name)))) : '–');
  return [unanswered(silent), h('dl', { class: 'tiles' },
    tile('Members', number(answers.length), silent.length ? `${number(silent.length)} did not answer` : 'all answer', silent.length && 'bad'),
    tile('Clients', h('a', { href: 'clients?members=true' }, sum((m) => m.streams)), 'of all members'),
    tile('Keys', h('a', { href: 'keys?members=true' }, sum((m) => m.keys_owned)), `owned; ${sum((m) => m.keys_followed)} times followed, ${sum((m) => m.keys_direct)} direct`)),
  table(`${count(members.length, 'member')}, as this relay sees them`, [
    { name: 'Member', head: true }, { name: 'State' }, { name: 'Keys owned', class: 'n', title: 'it subscribes to them at origins, and serves them to the others' },
    { name: 'Followed', class: 'n', title: 'keys that it subscribes to at another member' },
    { name: 'Direct', class: 'n', title: 'keys that it subscribes to at origins, although another member owns them' },
    { name: 'Clients', class: 'n' }, { name: 'Version' }, { name: 'Address' }, { name: 'Compat', title: 'only members with the same compat share keys' }],
  members.map((m) => [[m.name, m.self && ' (this relay)'], [stateOf(m), m.problem && h('div', { class: 'bad' }, m.problem)],
    load(m, (l) => l.keys_owned, 'keys'), load(m, (l) => l.keys_followed, 'keys'), load(m, (l) => l.keys_direct, 'keys'), load(m, (l) => l.streams, 'clients'),
    m.version, m.address, h('code', {}, m.compat)]))];
}

const tile = (name, value, more, kind) => h('div', { class: kind }, h('dt', {}, name), h('dd', {}, value, h('small', {}, more)));

function stateOf(m) {
  const alive = m.state === 'alive';
  const text = !alive ? m.state : m.draining ? 'draining' : m.ready ? 'ready' : 'not ready';
  const [kind, mark] = text === 'ready' ? ['synced', '●'] : text === 'dead' ? ['nacked', '✕'] : ['stale', '◐'];
  return h('span', { class: `state ${kind}` }, h('i', { 'aria-hidden': 'true' }, mark), text, ' since ', ago(m.since));
}

/** unanswered names the members that did not answer. */
export const unanswered = (silent) => silent.length > 0 && h('div', { class: 'problem' },
  h('p', {}, h('strong', {}, `No answer of ${count(silent.length, 'member')}.`), ' What they have is not on this page.'), silent.map((why) => h('p', {}, why)));

/** aside leads from the list of one relay to that of all members, and back. */
export function aside(view, page, filter) {
  if (page.query.has('members')) return [' ', h('a', { class: 'aside', href: href(view, filter) }, 'of this relay only')];
  return page.live.newest?.relay.in_cluster && !shownMember() && [' ', h('a', { class: 'aside', href: href(view, { ...filter, members: true }) }, 'of all members')];
}
