// The formats of numbers, times and states.
import { shownMember } from './api.js';
import { h, name } from './dom.js';

const whole = new Intl.NumberFormat('en');

export const number = (n) => whole.format(n ?? 0);

export const count = (n, one, many = one + 's') => `${number(n)} ${n === 1 ? one : many}`;

export function bytes(n) {
  if (!n) return '0 B';
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  const i = Math.min(Math.floor(Math.log10(n) / 3), units.length - 1);
  const v = n / 1000 ** i;
  return `${i && v < 10 ? v.toFixed(1) : Math.round(v)} ${units[i]}`;
}

/** span formats seconds: 3 ms, 4.2 s, 5 min, 3 h, 2 d. */
export function span(seconds) {
  if (seconds === undefined || seconds === null || !Number.isFinite(seconds)) return '–';
  if (seconds < 0.001) return seconds > 0 ? `${Math.max(1, Math.round(seconds * 1e6))} µs` : '0 s';
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1).replace(/\.0$/, '')} s`;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 129600) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

// The relay writes this bound for times that are longer than half of it.
const UNBOUNDED = 2097; // s

/** bound formats an upper bound in seconds: ≤ 4 ms. */
export const bound = (seconds) => (!seconds ? '–' : seconds >= UNBOUNDED ? `> ${span(seconds / 2)}` : `≤ ${span(seconds)}`);

// How far the relay's clock is ahead of this host's.
let ahead = 0; // ms

/** clockIs takes the relay's present time. */
export function clockIs(text) {
  const t = Date.parse(text ?? '');
  if (Number.isFinite(t)) ahead = t - Date.now();
}

/** now is the relay's time. */
export const now = () => Date.now() + ahead;

const age = (then) => Math.max(0, (now() - then) / 1000);

const agoText = (then) => {
  const a = age(then);
  return a < 1 ? 'now' : `${span(Math.floor(a))} ago`;
};

/** ago is an element with the age of a time. tick keeps it current. */
export function ago(time) {
  const then = Date.parse(time ?? '');
  if (!Number.isFinite(then) || then <= 0) return h('span', { class: 'none' }, '–');
  return h('time', { datetime: time, title: new Date(then).toLocaleString(), data: { then } }, agoText(then));
}

/** tick updates all ages on the page. */
export function tick() {
  for (const el of document.querySelectorAll('time[data-then]')) {
    const text = agoText(Number(el.dataset.then));
    if (el.textContent !== text) el.textContent = text;
  }
}

// States, the worst first. Each has a shape as well as a colour.
export const states = [
  { name: 'NACKED', field: 'nacked', mark: '✕', says: 'rejected a version, and has not accepted newer content of the rejected resources since' },
  { name: 'STALE', field: 'stale', mark: '◐', says: 'has not answered, or the relay has not sent it everything' },
  { name: 'NOT SENT', field: 'not_sent', mark: '○', says: 'was sent nothing yet, or lacks only names that the origin has not answered' },
  { name: 'UNCONFIRMED', field: 'unconfirmed', mark: '◍', says: 'keeps what it had when it connected, until the origin answers' },
  { name: 'SYNCED', field: 'synced', mark: '●', says: 'acknowledged the newest version' },
];

const byName = new Map(states.map((s) => [s.name, s]));

export function state(name, ...more) {
  const s = byName.get(name) ?? { field: 'unknown', mark: '·', says: '' };
  return h('span', { class: `state ${s.field}`, title: s.says }, h('i', { 'aria-hidden': 'true' }, s.mark), name, ...more);
}

export const worst = (names) => states.find((s) => names.includes(s.name))?.name ?? '';

const shorts = {
  'envoy.config.listener.v3.Listener': 'LDS', 'envoy.config.route.v3.RouteConfiguration': 'RDS',
  'envoy.config.route.v3.ScopedRouteConfiguration': 'SRDS', 'envoy.config.route.v3.VirtualHost': 'VHDS',
  'envoy.config.cluster.v3.Cluster': 'CDS', 'envoy.config.endpoint.v3.ClusterLoadAssignment': 'EDS',
  'envoy.extensions.transport_sockets.tls.v3.Secret': 'SDS', 'envoy.service.runtime.v3.Runtime': 'RTDS',
  'envoy.config.core.v3.TypedExtensionConfig': 'ECDS',
};

/** types are the short names of types. */
export const types = ['LDS', 'RDS', 'SRDS', 'VHDS', 'CDS', 'EDS', 'SDS', 'RTDS', 'ECDS'];

/** short is the short name of a type, or the last part of its URL. */
export const short = (url) => shorts[String(url).replace('type.googleapis.com/', '')] ?? String(url).split('/').pop();

/** typeName is the name of a type in a filter: its short name, or its URL. */
export const typeName = (url) => (types.includes(short(url)) ? short(url) : url);

/** place is the place of a rule in a file. */
export const place = (p) => [p?.file, p?.line].filter(Boolean).join(':');

/** version shortens a long version. The title has all of it. */
export function version(v) {
  if (v === undefined || v === null || v === '') return h('span', { class: 'none' }, '–');
  const text = String(v);
  return h('code', { class: 'version', title: text }, text.length > 18 ? `${text.slice(0, 12)}…${text.slice(-4)}` : text);
}

// All addresses of the page are relative, because a proxy may add a prefix to all paths. A name is no
// part of a path, because the proxy may decode a slash in it.
/** href is the address of a view, without empty parameters. It is about the shown member, or that of query. */
export const href = (view, query = {}) => {
  const q = new URLSearchParams(Object.entries({ ...query, member: query.member ?? shownMember() }).filter(([, value]) => value));
  return q.size ? `${view}?${q}` : view;
};

export const keyHref = (key, query) => href('key', { name: key, ...query });
export const nodeHref = (node, member) => href('node', { name: node, member });

/** clientsHref is the address of the list of clients that a filter selects. */
export const clientsHref = (filter) => href('clients', filter);

/** nacksHref is the address of the list of NACKs that a filter selects: key, type and version. */
export const nacksHref = (filter) => href('nacks', filter);

/** clientsLink is a number of clients, with a link to their list. */
export const clientsLink = (n, filter, props) => (n ? h('a', { href: clientsHref(filter), ...props }, number(n)) : '0');

export const keyLink = (key, query) => h('a', { href: keyHref(key, query), class: 'long', title: key }, name(key));
export const nodeLink = (node, member) => (node ? h('a', { href: nodeHref(node, member), class: 'long', title: node }, name(node)) : h('span', { class: 'none' }, 'no id'));

/** bar shows states in proportion, with numbers as its text alternative. */
export function bar(counts) {
  const all = states.map((s) => ({ ...s, n: counts[s.field] ?? 0 })).filter((s) => s.n > 0).reverse();
  const total = all.reduce((sum, s) => sum + s.n, 0);
  const text = all.map((s) => `${number(s.n)} ${s.name}`).join(', ') || 'no clients';
  const el = h('span', { class: 'bar', role: 'img', 'aria-label': text, title: text });
  for (const s of all) {
    const part = h('span', { class: s.field });
    part.style.flexGrow = Math.max(s.n, total / 50);
    el.append(part);
  }
  return el;
}
