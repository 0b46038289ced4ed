// Drawings of a key: a version's progress to its clients, and the times of versions.
import { h, s, put } from './dom.js';
import { bound, count, number, span } from './words.js';

const HEIGHT = 204;
const LEFT = 44;
const RIGHT = 14;
const TOP = 26;
const LABEL = 88; // px, the largest width of p50 or p99 with its time
const DECADE = 52; // px, the largest width of a label below the axis
const BOTTOM = 26;

/**
 * points are the shares of the clients that had acknowledged, by time. buckets are the numbers of
 * clients by the longest time that they took. Each bucket's time is twice that of the one before;
 * empty buckets are absent. The last bucket may have no time.
 */
export function points(buckets, total) {
  let sum = 0;
  let last = 0;
  const out = [];
  for (const b of buckets) {
    const at = b.at_most || last * 2 || 0.001;
    if (at / 2 > last) out.push({ at: at / 2, share: sum / total, sum });
    sum += b.count;
    out.push({ at, share: Math.min(1, sum / total), sum });
    last = at;
  }
  return out;
}

/** convergence draws the share of clients that acknowledged a version, over time. */
export function convergence(v) {
  const took = v.ack_seconds ?? [];
  const total = took.reduce((sum, b) => sum + b.count, 0) + v.pending + v.nacking;
  const all = points(took, total);
  const el = h('div', { class: 'plot' });
  if (!all.length) {
    put(el, h('p', { class: 'none' }, total ? 'No client that was connected when this version came has acknowledged it yet.' : 'No client that was connected when this version came needed it.'));
    return el;
  }
  const draw = () => {
    const width = Math.max(280, Math.floor(el.clientWidth));
    const from = Math.log10(Math.min(all[0].at, 0.001));
    const to = Math.max(Math.log10(all.at(-1).at), from + 2);
    const x = (t) => LEFT + ((Math.log10(t) - from) / (to - from)) * (width - LEFT - RIGHT);
    const y = (share) => TOP + (1 - share) * (HEIGHT - TOP - BOTTOM);
    const grid = [];
    for (const share of [0, 0.25, 0.5, 0.75, 1]) {
      grid.push(s('line', { class: 'grid', x1: LEFT, x2: width - RIGHT, y1: y(share), y2: y(share) }),
        s('text', { x: LEFT - 6, y: y(share) + 4, 'text-anchor': 'end' }, `${share * 100} %`));
    }
    const step = Math.ceil(DECADE / (x(10 ** (from + 1)) - LEFT)); // decades between two labels
    for (let d = Math.ceil(from - 0.001); d <= to; d += step) {
      grid.push(s('line', { class: 'grid', x1: x(10 ** d), x2: x(10 ** d), y1: TOP, y2: HEIGHT - BOTTOM }),
        s('text', { x: x(10 ** d), y: HEIGHT - 8, 'text-anchor': x(10 ** d) > width - 40 ? 'end' : 'middle' }, span(10 ** d)));
    }
    const line = all.map((p, i) => `${i ? 'L' : 'M'}${x(p.at).toFixed(1)} ${y(p.share).toFixed(1)}`).join('');
    const area = `${line}L${x(all.at(-1).at).toFixed(1)} ${y(0)}L${x(all[0].at).toFixed(1)} ${y(0)}Z`;
    // The labels are above the plot: p50 to the left of its line, p99 to the right of its line.
    const within = (at, least, most) => Math.max(least, Math.min(at, most));
    const p50 = within(x(v.ack_seconds_p50 || 0.001), LABEL, width - LABEL - 8);
    const p99 = within(x(v.ack_seconds_p99 || 0.001), p50 + 8, width - LABEL);
    const marks = [['p50', v.ack_seconds_p50, p50, 'end'], ['p99', v.ack_seconds_p99, p99, 'start']].filter(([, t]) => t > 0).map(([name, t, label, anchor]) => {
      const at = within(x(t), LEFT, width - RIGHT);
      return [s('line', { class: 'mark', x1: at, x2: at, y1: TOP - 4, y2: HEIGHT - BOTTOM }),
        s('text', { class: 'mark', x: label, 'text-anchor': anchor, y: TOP - 9 }, `${name} ${bound(t)}`)];
    });
    put(el, s('svg', { class: 'curve', viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: 'img',
      'aria-label': `${Math.round(all.at(-1).share * 100)} % of ${number(total)} have acknowledged; half of those within ${bound(v.ack_seconds_p50)}, 99 % within ${bound(v.ack_seconds_p99)}` },
    grid, s('path', { class: 'area', d: area }), s('path', { class: 'line', d: line }),
    all.map((p) => s('circle', { cx: x(p.at).toFixed(1), cy: y(p.share).toFixed(1), r: 2.6 }, s('title', {}, `${number(p.sum)} within ${span(p.at)}`))),
    marks));
  };
  const sized = new ResizeObserver(draw);
  sized.observe(el);
  return el;
}

const ROW = 24;

/**
 * timeline draws when versions came. Each type has a row, and each version a dot. The colour says
 * whether clients rejected it or have not answered.
 */
export function timeline(types, now) {
  const el = h('div', { class: 'plot' });
  const all = types.flatMap((t) => t.versions.map((v) => Date.parse(v.received)));
  if (!all.length) return null;
  const to = Math.max(now, ...all);
  const from = Math.min(...all);
  const wide = Math.max(to - from, 10000);
  const height = types.length * ROW + 24;
  const draw = () => {
    const width = Math.max(280, Math.floor(el.clientWidth));
    const x = (t) => LEFT + 14 + ((t - (to - wide)) / wide) * (width - LEFT - RIGHT - 14);
    const parts = [];
    types.forEach((t, i) => {
      const y = i * ROW + ROW / 2 + 2;
      parts.push(s('text', { x: 0, y: y + 4 }, t.short), s('line', { class: 'grid', x1: LEFT, x2: width - RIGHT, y1: y, y2: y }));
      for (const v of t.versions) {
        const kind = v.nacked || v.nacking ? 'nacked' : v.pending ? 'stale' : 'synced';
        parts.push(s('circle', { class: kind, cx: x(Date.parse(v.received)).toFixed(1), cy: y, r: 5 },
          s('title', {}, `${t.short} ${v.version}: ${count(v.acknowledged, 'ACK')}, ${count(v.nacked, 'NACK')}, ${number(v.pending)} pending`)));
      }
    });
    for (const part of width < 480 ? [0, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1]) {
      const t = to - wide + wide * part;
      parts.push(s('text', { x: x(t), y: height - 4, 'text-anchor': part === 0 ? 'start' : part === 1 ? 'end' : 'middle' },
        part === 1 ? 'now' : `${span((to - t) / 1000)} ago`));
    }
    put(el, s('svg', { class: 'curve', viewBox: `0 0 ${width} ${height}`, width, height, role: 'img',
      'aria-label': `Times of the last ${all.length} versions` }, parts));
  };
  new ResizeObserver(draw).observe(el);
  return el;
}
