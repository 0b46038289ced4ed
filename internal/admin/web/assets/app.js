// The page: it selects the view by the address, shows errors, and has what all views share.
import { h, put, visible } from './dom.js';
import { Live } from './live.js';
import { get, hasToken, setToken, showMember, Problem } from './api.js';
import { count, number, tick } from './words.js';
import { search } from './search.js';
import * as clients from './clients.js';
import * as fleet from './fleet.js';
import * as keys from './keys.js';
import * as key from './key.js';
import * as members from './members.js';
import * as node from './node.js';
import * as nacks from './nacks.js';
import * as where from './where.js';

const main = document.getElementById('main');
const replica = document.getElementById('replica');
let shown = new AbortController();
let before = null; // the newest overview before the shown view began to read

const live = new Live((is, why) => {
  const el = document.getElementById('live');
  const words = { live: 'live', lost: 'not connected, trying again', locked: 'token required' };
  if (el.dataset.is !== is) {
    el.dataset.is = is;
    el.textContent = words[is];
  }
  el.title = why ?? '';
  lost(is === 'lost', why);
  if (is === 'locked') login();
});

// lost shows or hides the banner that the shown state is old. Its time is that of this host.
function lost(is, why) {
  const banner = document.getElementById('lost');
  document.body.dataset.lost = is;
  banner.hidden = !is;
  if (!is) return;
  const what = why ? `The relay sends no state to this page: ${why}.` : 'The relay does not answer.';
  const text = live.heard ? `${what} This page shows the state as of ${new Date(live.heard).toLocaleTimeString('en-GB')}.` : what;
  if (banner.textContent !== text) banner.textContent = text;
}

// viewOf selects the view by the last part of an address.
function viewOf(address) {
  const name = address.searchParams.get('name');
  switch (address.pathname.split('/').pop() || 'fleet') {
    case 'fleet': return { view: fleet, nav: 'fleet' };
    case 'clients': return { view: clients, nav: 'clients' };
    case 'keys': return { view: keys, nav: 'keys' };
    case 'key': return name ? { view: key, name, nav: 'keys' } : {};
    case 'node': return name ? { view: node, name } : {};
    case 'nacks': return { view: nacks, nav: 'nacks' };
    case 'members': return { view: members, nav: 'members' };
    case 'where': return { view: where, nav: 'where' };
    default: return {};
  }
}

// views can be about another member of the cluster.
const views = new Set([clients, keys, key, node, nacks]);

/** about makes the view one of a member, and says so; empty: one of this relay. */
function about(member) {
  showMember(member);
  const banner = document.getElementById('about');
  banner.hidden = !member;
  if (member) put(banner, 'This is what member ', h('b', {}, member), ' has. ', h('a', { href: 'members' }, 'All members'));
}

/** show draws the view of the current address. again: the shown error stays until the view is there. */
async function show({ again = false } = {}) {
  before = live.newest;
  shown.abort();
  shown = new AbortController();
  const { signal } = shown;
  const address = new URL(location.href);
  const { view, name, nav } = viewOf(address);
  const member = views.has(view) ? address.searchParams.get('member') ?? '' : '';
  about(member);
  for (const a of document.querySelectorAll('header nav a')) {
    if (a.getAttribute('href') === nav) a.setAttribute('aria-current', 'page');
    else a.removeAttribute('aria-current');
  }
  if (!view) {
    document.title = 'relay: no such page';
    put(main, h('h1', {}, 'There is no such page'), h('p', { class: 'empty' }, h('a', { href: 'fleet' }, 'Go to the fleet')));
    return;
  }
  document.title = visible(`relay: ${name ?? view.title}`);
  if (!again) put(main, h('p', { class: 'loading' }, 'Loading…'));
  const others = view === members || member !== '' || address.searchParams.has('members');
  const page = { name, query: address.searchParams, others, signal, live, go, failed: (e) => failed(e, signal) };
  try {
    await view.show(main, page);
  } catch (e) {
    failed(e, signal);
  }
}

/**
 * failed shows an error in place of the view. It tries again after a newer overview came, if the
 * relay did not answer, had an error, or did not know the name.
 */
function failed(e, signal) {
  if (signal.aborted || e.name === 'AbortError') return;
  if (e instanceof Problem && e.status === 401) {
    login();
    return;
  }
  // The same error keeps its elements, and with them the focus.
  if (document.getElementById('failed')?.textContent !== visible(e.message)) {
    put(main, h('div', { class: 'failed', role: 'alert' },
      h('h1', {}, e.status === 404 ? 'Not found' : 'The page could not be loaded'),
      h('p', { id: 'failed' }, e.message),
      h('p', {}, h('button', { type: 'button', on: { click: show } }, 'Try again'), ' ', h('a', { href: 'fleet' }, 'Go to the fleet'))));
  }
  if (!(e instanceof Problem)) console.error(e);
  else if (e.status === 0 || e.status === 404 || e.status >= 500) live.on(signal, (o) => o !== before && show({ again: true }));
}

/**
 * go changes the address and shows its view. replace: the history loses the current address. quiet:
 * the current view stays.
 */
function go(href, { replace = false, quiet = false } = {}) {
  if (replace) history.replaceState(null, '', href);
  else history.pushState(null, '', href);
  if (quiet) return;
  show();
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
}

/** login asks for the token, until the relay accepts it. */
function login() {
  if (document.getElementById('login')) return;
  shown.abort();
  shown = new AbortController();
  live.stop();
  const wrong = h('p', { class: 'wrong', role: 'alert', id: 'wrong' });
  const field = h('input', { id: 'token', type: 'password', autocomplete: 'off', required: true, 'aria-describedby': 'wrong' });
  const ask = async (event) => {
    event.preventDefault();
    setToken(field.value.trim());
    if (/[^\x21-\x7e]/.test(field.value.trim())) {
      setToken('');
      wrong.textContent = 'A token has only ASCII characters without spaces. This text has others.';
      field.select();
      return;
    }
    try {
      await get('/server_info');
    } catch (e) {
      setToken('');
      wrong.textContent = e.status === 401 ? 'This is not the token of this relay.' : e.message;
      field.select();
      return;
    }
    begin();
  };
  setToken('');
  document.getElementById('forget').hidden = true;
  put(main, h('form', { id: 'login', on: { submit: ask } },
    h('h1', {}, 'This relay requires a token'),
    h('p', {}, 'The token is in the file that ', h('code', {}, 'admin.token_file'), ' names. This browser tab keeps the token until you close the tab.'),
    h('label', { for: 'token' }, 'Token'), field, wrong,
    h('button', { type: 'submit', class: 'first' }, 'Sign in')));
  field.focus();
}

function begin() {
  document.getElementById('forget').hidden = !hasToken();
  live.stop();
  live.start();
  show();
}

// Links between views do not reload the page.
document.addEventListener('click', (event) => {
  const a = event.target.closest?.('a[href]');
  if (!a || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const href = a.getAttribute('href');
  if (href.startsWith('#') || a.hasAttribute('download')) return;
  event.preventDefault();
  go(href);
});
addEventListener('popstate', show);

document.getElementById('theme').addEventListener('click', () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  root.dataset.theme = dark ? 'light' : 'dark';
  try { localStorage.setItem('relay.theme', root.dataset.theme); } catch { /* the choice is not kept */ }
});
document.getElementById('forget').addEventListener('click', login);

live.on(new AbortController().signal, (o) => {
  if (replica.textContent !== o.relay.name) replica.textContent = o.relay.name;
  replica.title = `version ${o.relay.version}, ${o.relay.state}`;
  document.body.dataset.phase = o.relay.state;
  document.getElementById('members').hidden = !o.relay.in_cluster;
  const el = document.getElementById('nacked');
  el.hidden = !o.states.nacked;
  el.textContent = number(o.states.nacked);
  el.title = `${count(o.states.nacked, 'client')} in the state NACKED`;
});
setInterval(tick, 1000);
search(go);
begin();
