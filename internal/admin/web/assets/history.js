// The curves of the last fifteen minutes. The relay has the samples up to now. The page adds new
// ones from the overviews.
import { h, put, s } from './dom.js';
import { get } from './api.js';
import { now, number, span } from './words.js';

const EVERY = 10000; // ms between two samples, as in the relay
const WIDE = 15 * 60 * 1000;
const NARROW = 2 * 60 * 1000; // for a relay that has just started
const HEIGHT = 96;
const TOP = 8;
const LEFT = 50; // for the greatest value
const BOTTOM = 20;

const charts = [
  { title: 'Clients', lines: [{ name: 'clients', class: 'all', of: (x) => x.clients }] },
  { title: 'Types that are not synced', lines: [
    { name: 'stale or not sent', class: 'stale', of: (x) => x.types_by_state.stale + x.types_by_state.not_sent },
    { name: 'NACKED', class: 'nacked', of: (x) => x.types_by_state.nacked }] },
  { title: 'Answers per second', lines: [
    { name: 'ACKs', class: 'synced', of: (x) => x.acks_per_second },
    { name: 'NACKs', class: 'nacked', of: (x) => x.nacks_per_second }] },
];

const rate = (n) => number(n < 10 ? Math.round(n * 10) / 10 : Math.round(n));

/** Curves draws into an element. */
export class Curves {
  #samples = null; // the oldest first; null: not read yet
  #page;
  #newest = null; // overview
  #before = null; // its totals at the last sample
  #heard = 0;

  constructor(el, page) {
    this.el = el;
    this.#page = page;
    const resized = new ResizeObserver(() => this.draw());
    resized.observe(el);
    const timer = setInterval(() => this.#next(), EVERY);
    page.signal.addEventListener('abort', () => {
      resized.disconnect();
      clearInterval(timer);
    });
    this.#read();
  }

  /** see takes the newest overview. */
  see(o) {
    this.#newest = o;
    this.#before ??= { at: now(), acks: o.acks, nacks: o.nacks };
  }

  async #read() {
    let found;
    try {
      found = await get('/history', {}, this.#page.signal);
    } catch {
      return; // #next reads them again
    }
    this.#samples = found.items.map((x) => ({ ...x, at: Date.parse(x.at) }));
    this.draw();
  }

  // #next adds a sample. It reads all again if the page missed some, as while it was hidden.
  #next() {
    const { live } = this.#page;
    const at = now();
    const o = this.#newest;
    const before = this.#before;
    if (!o || live.heard === this.#heard) return;
    this.#heard = live.heard;
    this.#before = { at, acks: o.acks, nacks: o.nacks };
    const last = this.#samples?.at(-1)?.at ?? 0;
    if (at - last > 2 * EVERY) {
      this.#read();
      return;
    }
    const sum = (state) => (o.types ?? []).reduce((all, t) => all + t.states[state], 0);
    const per = (name) => Math.max(0, o[name] - before[name]) / ((at - before.at) / 1000);
    this.#samples.push({ at, clients: o.clients, types_by_state: { stale: sum('stale'), not_sent: sum('not_sent'), nacked: sum('nacked') },
      acks_per_second: per('acks'), nacks_per_second: per('nacks') });
    this.draw();
  }

  draw() {
    if (!this.#samples) return;
    const to = now();
    this.#samples = this.#samples.filter((x) => x.at > to - WIDE);
    put(this.el, charts.map((c) => this.#chart(c, to)));
  }

  #chart(c, to) {
    const columns = innerWidth > 980 ? 3 : 1;
    const width = Math.max(200, Math.floor(this.el.clientWidth / columns) - 40);
    const all = this.#samples;
    const most = Math.max(1, ...c.lines.flatMap((l) => all.map(l.of)));
    const wide = Math.min(WIDE, Math.max(NARROW, to - all[0]?.at || 0));
    const x = (at) => width - ((to - at) / wide) * (width - LEFT);
    const y = (v) => TOP + (1 - v / most) * (HEIGHT - TOP - BOTTOM);
    const last = all.at(-1);
    const present = last ? c.lines.map((l) => `${rate(l.of(last))} ${l.name}`) : [];
    const path = (l) => all.map((p, i) => {
      const joined = i && p.at - all[i - 1].at < 3 * EVERY;
      return `${joined ? 'L' : 'M'}${x(p.at).toFixed(1)} ${y(l.of(p)).toFixed(1)}`;
    }).join('');
    return h('div', { class: 'panel' },
      h('h3', {}, c.title, present.map((text, i) => h('small', { class: `key ${c.lines[i].class}` }, text))),
      all.length < 2 ? h('p', { class: 'none' }, 'The relay has just started. The curve begins in twenty seconds.')
        : s('svg', { class: 'curve history', viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: 'img',
          'aria-label': `${c.title} in the last ${span(wide / 1000)}, at most ${rate(most)}; now ${present.join(', ')}` },
        [0, 1].map((part) => s('line', { class: 'grid', x1: LEFT, x2: width, y1: y(part * most), y2: y(part * most) })),
        s('text', { x: LEFT, y: HEIGHT - 5 }, `${span(wide / 1000)} ago`), s('text', { x: width, y: HEIGHT - 5, 'text-anchor': 'end' }, 'now'),
        c.lines.map((l) => s('path', { class: l.class, d: path(l) })),
        s('text', { x: LEFT - 6, y: TOP + 4, 'text-anchor': 'end' }, rate(most))));
  }
}
