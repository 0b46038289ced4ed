// Requests to the relay. Only this tab has the token, and sends it in a header. There is no cookie,
// so the page of another site cannot use it.

// ROOT is the path of the relay: /, or the prefix that a proxy adds to all paths.
const ROOT = new URL('..', import.meta.url).pathname;

const KEPT = `relay.token ${ROOT}`;
let token = '';
try { token = sessionStorage.getItem(KEPT) ?? ''; } catch { /* kept in memory */ }

export const hasToken = () => token !== '';

export function setToken(text) {
  token = text;
  try {
    if (text) sessionStorage.setItem(KEPT, text);
    else sessionStorage.removeItem(KEPT);
  } catch { /* kept in memory */ }
}

/** Problem is the error of a request. status is the HTTP status; 0: there was no answer. */
export class Problem extends Error {
  constructor(what, status) {
    super(what);
    this.status = status;
  }
}

async function fetched(path, init) {
  const headers = { ...init.headers };
  if (token) headers.Authorization = `Bearer ${token}`;
  let answer;
  try {
    answer = await fetch(ROOT + path.slice(1), { ...init, headers, cache: 'no-store', credentials: 'omit', redirect: 'error' });
  } catch (e) {
    if (e.name === 'AbortError') throw e;
    throw new Problem(`${path.split('?')[0]}: the relay cannot be reached`, 0);
  }
  if (answer.ok) return answer;
  let why = answer.statusText;
  try { why = (await answer.json()).error ?? why; } catch { /* the body is not from the relay */ }
  throw new Problem(why, answer.status);
}

const url = (path, query) => {
  const q = new URLSearchParams();
  for (const [k, v] of Object.entries(query ?? {})) if (v !== undefined && v !== null && v !== '') q.set(k, v);
  return q.size ? `${path}${path.includes('?') ? '&' : '?'}${q}` : path;
};

// The member of the cluster that the shown view is about; empty: the relay that has the page.
let member = '';

/** shownMember is the member that the shown view is about; empty: the relay that has the page. */
export const shownMember = () => member;

/** showMember sets the member that get reads from. */
export function showMember(name) { member = name; }

const of = (name, path) => (name ? `/members/${encodeURIComponent(name)}${path}` : path);

/** get reads JSON, from the shown member. */
export async function get(path, query, signal) {
  return (await fetched(url(of(member, path), query), { signal })).json();
}

/**
 * getFromAll reads JSON from all members of the cluster, over this relay. Each of silent is why a member
 * has no answer. A member that left is not asked. One that died is: others may only be cut off from it.
 */
export async function getFromAll(path, query, signal) {
  const { items: members } = await get('/members', {}, signal);
  const names = new Set(members.filter((m) => m.state !== 'left').map((m) => m.name));
  const answers = [];
  const silent = [];
  await Promise.all([...names].map(async (name) => {
    try {
      answers.push({ member: name, answer: await (await fetched(url(of(name, path), query), { signal })).json() });
    } catch (e) {
      if (!(e instanceof Problem) || e.status === 401) throw e;
      silent.push(e.status === 504 ? e.message : `member ${name}: ${e.message}`);
    }
  }));
  answers.sort((a, b) => (a.member < b.member ? -1 : 1));
  return { members, answers, silent: silent.sort() };
}

/** post sends YAML or JSON, and reads JSON. */
export async function post(path, query, body, signal) {
  return (await fetched(url(path, query), { method: 'POST', body, signal, headers: { 'Content-Type': 'application/yaml' } })).json();
}

/** answers reports whether the relay answers within a time in milliseconds. */
export async function answers(within, signal) {
  try {
    return (await fetch(`${ROOT}live`, { cache: 'no-store', credentials: 'omit', signal: AbortSignal.any([signal, AbortSignal.timeout(within)]) })).ok;
  } catch {
    return false;
  }
}

/** at appends a name of any characters to a path. The browser would remove . and .. from the path. */
export const at = (path, name) => (name === '.' || name === '..' ? `${path}/?name=${name}` : `${path}/${encodeURIComponent(name)}`);

/**
 * events reads server-sent events. It yields the id and the data of each, or null for an empty
 * message. It uses fetch, because EventSource cannot send the token.
 */
export async function* events(path, signal) {
  const answer = await fetched(path, { signal, headers: { Accept: 'text/event-stream' } });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const messages = (rest + value).split('\n\n');
    rest = messages.pop();
    for (const m of messages) {
      const lines = m.split('\n');
      const field = (name) => lines.filter((l) => l.startsWith(`${name}: `)).map((l) => l.slice(name.length + 2)).join('\n');
      const data = field('data');
      yield data ? { at: field('id'), data: JSON.parse(data) } : null;
    }
  }
}
