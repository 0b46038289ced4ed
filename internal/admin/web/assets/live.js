// The stream of overviews. The relay sends one each second if it differs from the one before. The
// page has one such stream, and closes it while the page is hidden.
import { answers, events, Problem } from './api.js';
import { clockIs } from './words.js';

// The relay sends an event or an empty message each second, or less often if it is busy. After this
// time without a message, the page asks whether the relay still answers.
const SILENCE = 10000; // ms

/**
 * Live reads the stream, and connects again when it ends. It calls its listeners with each
 * overview. It calls says with the state of the connection, which is live, lost or locked, and with
 * the reason of lost, if the relay gave one.
 */
export class Live {
  /** newest is the newest overview; null: none came yet. */
  newest = null;
  /** heard is the time of the last message in ms, by the clock of this host; 0: none came yet. */
  heard = 0;
  #listeners = new Set();
  #says;
  #stop = null;

  constructor(says) {
    this.#says = says;
    document.addEventListener('visibilitychange', () => (document.hidden ? this.stop() : this.start()));
    addEventListener('pagehide', () => this.stop());
    addEventListener('pageshow', () => this.start());
  }

  /** on calls f with the newest overview, if any, and with each later one until signal aborts. */
  on(signal, f) {
    if (signal.aborted) return;
    this.#listeners.add(f);
    signal.addEventListener('abort', () => this.#listeners.delete(f));
    if (this.newest) f(this.newest);
  }

  start() {
    if (this.#stop || document.hidden) return;
    this.#stop = new AbortController();
    this.#run(this.#stop.signal);
  }

  stop() {
    this.#stop?.abort();
    this.#stop = null;
  }

  /** #tell calls the listeners. A view's error must not look like a relay that does not answer. */
  #tell(newest) {
    for (const f of this.#listeners) {
      try { f(newest); } catch (e) { console.error(e); }
    }
  }

  async #run(signal) {
    for (let pause = 500; !signal.aborted; pause = Math.min(pause * 2, 10000)) {
      let why;
      const attempt = new AbortController();
      const either = AbortSignal.any([signal, attempt.signal]);
      let last = performance.now();
      const watch = setInterval(async () => {
        if (performance.now() - last < SILENCE) return;
        last = performance.now();
        if (!await answers(SILENCE / 2, either)) attempt.abort();
      }, 1000);
      try {
        for await (const e of events('/events', either)) {
          pause = 500;
          last = performance.now();
          this.heard = Date.now();
          if (e) {
            clockIs(e.at);
            this.newest = e.data;
          }
          this.#says('live');
          if (e) this.#tell(e.data);
        }
      } catch (e) {
        if (signal.aborted) return;
        if (e instanceof Problem && e.status === 401) {
          this.stop();
          this.#says('locked');
          return;
        }
        if (e instanceof Problem && e.status) {
          why = e.message;
        }
      } finally {
        clearInterval(watch);
        attempt.abort();
      }
      if (signal.aborted) return;
      this.#says('lost', why);
      await new Promise((go) => {
        const t = setTimeout(go, pause);
        signal.addEventListener('abort', () => { clearTimeout(t); go(); }, { once: true });
      });
    }
  }
}
