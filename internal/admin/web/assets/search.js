// The field that finds keys and nodes. / focuses it; the arrow keys and Enter select.
import { h, name as named, put } from './dom.js';
import { get } from './api.js';
import { keyHref, nodeHref, state } from './words.js';

const PAUSE = 120; // ms between the last key press and the request

export function search(go) {
  const field = document.getElementById('search');
  const list = document.getElementById('found');
  let asked = new AbortController();
  let timer;
  let at = -1;
  let shownFor = ''; // the text whose results the list has

  const options = () => [...list.querySelectorAll('[role=option]')];

  function close() {
    asked.abort();
    clearTimeout(timer);
    list.hidden = true;
    field.setAttribute('aria-expanded', 'false');
    field.removeAttribute('aria-activedescendant');
    at = -1;
  }

  // The results of what was typed last may come after an arrow key. They do not undo its choice.
  function open(...what) {
    const chosen = at > 0 && options()[at]?.dataset.href;
    put(list, ...what);
    list.hidden = false;
    field.setAttribute('aria-expanded', 'true');
    mark(Math.max(0, options().findIndex((o) => o.dataset.href === chosen)));
  }

  function mark(to) {
    const all = options();
    if (!all.length) return;
    at = (to + all.length) % all.length;
    all.forEach((o, i) => o.setAttribute('aria-selected', String(i === at)));
    field.setAttribute('aria-activedescendant', all[at].id);
    all[at].scrollIntoView({ block: 'nearest' });
  }

  function option(id, href, kind, name, more) {
    const take = (event) => {
      event.preventDefault();
      field.value = '';
      close();
      go(href);
    };
    // Not click: the field loses the focus before it, and closes the list.
    return h('li', { role: 'option', id, 'aria-selected': 'false', title: name, data: { href }, on: { mousedown: take } },
      h('span', { class: 'kind' }, kind), h('span', { class: 'long' }, named(name)), more);
  }

  async function ask() {
    asked.abort();
    asked = new AbortController();
    const text = field.value.trim();
    if (!text) {
      close();
      return;
    }
    try {
      const found = await get('/find', { text }, asked.signal);
      shownFor = text;
      const all = [
        ...found.keys.map((k, i) => option(`key-${i}`, keyHref(k), 'key', k)),
        ...found.nodes.map((n, i) => option(`node-${i}`, nodeHref(n.node), 'node', n.node, n.state && state(n.state))),
      ];
      if (!all.length) open(h('li', { class: 'note' }, 'No key or node has this text in its name.'));
      else open(...all, found.more && h('li', { class: 'note' }, 'There are more. Type more of the name.'));
    } catch (e) {
      if (e.name !== 'AbortError') open(h('li', { class: 'note' }, `The search failed: ${e.message}`));
    }
  }

  field.addEventListener('input', () => {
    clearTimeout(timer);
    timer = setTimeout(ask, PAUSE);
  });
  field.addEventListener('focus', () => field.value && ask());
  field.addEventListener('blur', close);
  field.addEventListener('keydown', async (event) => {
    switch (event.key) {
      case 'ArrowDown': mark(at + 1); break;
      case 'ArrowUp': mark(at - 1); break;
      case 'Escape':
        if (list.hidden) field.blur();
        field.value = '';
        close();
        break;
      case 'Enter': {
        if (list.hidden || shownFor !== field.value.trim()) { // the list is of an older text
          clearTimeout(timer);
          await ask();
        }
        const href = options()[at]?.dataset.href;
        if (href) {
          field.value = '';
          field.blur();
          go(href);
        }
        break;
      }
      default: return;
    }
    event.preventDefault();
  });

  document.addEventListener('keydown', (event) => {
    const typing = event.target.closest?.('input, textarea, select, [contenteditable]');
    if (event.key !== '/' || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    field.focus();
    field.select();
  });
}
