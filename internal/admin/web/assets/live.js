// The fleet in numbers, which the relay sends each second: one stream for the
// page, which is closed while the page is hidden.
import { events, Problem } from './api.js';
import { clockIs } from './words.js';

/** Live calls its listeners with the newest, and says how it stands. */
export class Live {
  newest = null;
  #listeners = new Set();
  #says;
  #stop = null;

  constructor(says) {
    this.#says = says;
    document.addEventListener('visibilitychange', () => (document.hidden ? this.stop() : this.start()));
    addEventListener('pagehide', () => this.stop());
    addEventListener('pageshow', () => this.start());
  }

  /** on calls f with the newest, now if there is one, until signal. */
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

  async #run(signal) {
    for (let pause = 500; !signal.aborted; pause = Math.min(pause * 2, 10000)) {
      try {
        for await (const e of events('/events', signal)) {
          pause = 500;
          if (e) {
            clockIs(e.at);
            this.newest = e.data;
          }
          this.#says('live');
          if (e) for (const f of this.#listeners) f(e.data);
        }
      } catch (e) {
        if (signal.aborted) return;
        if (e instanceof Problem && e.status === 401) {
          this.stop();
          this.#says('locked');
          return;
        }
        if (e instanceof Problem && e.status) {
          this.#says('lost', e.message);
        }
      }
      if (signal.aborted) return;
      this.#says('lost');
      await new Promise((go) => {
        const t = setTimeout(go, pause);
        signal.addEventListener('abort', () => { clearTimeout(t); go(); }, { once: true });
      });
    }
  }
}
