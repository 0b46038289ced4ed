// A view that stays current: it is read again when the fleet has changed.

const LEAST = 2000; // ms between two requests

/**
 * watch reads and draws, and does so again after changes, at most every two
 * seconds. What fails at first is thrown; what fails later is said and tried
 * again.
 */
export async function watch(page, read, draw, say) {
  let last = 0;
  let busy = false;
  let timer = 0;
  let waiting = false;
  const once = async () => {
    busy = true;
    last = performance.now();
    try {
      const x = await read();
      if (!page.signal.aborted) draw(x);
    } finally {
      busy = false;
    }
  };
  await once();
  const again = async () => {
    timer = 0;
    waiting = false;
    try {
      await once();
      say?.('');
    } catch (e) {
      if (e.name === 'AbortError' || page.signal.aborted) return;
      if (e.status === 401) page.failed(e);
      else say?.(`The page may be out of date: ${e.message}`);
    }
    if (waiting) soon();
  };
  const soon = () => {
    if (busy) waiting = true;
    else if (!timer) timer = setTimeout(again, Math.max(0, last + LEAST - performance.now()));
  };
  let first = true;
  page.live.on(page.signal, () => {
    if (first) first = false; // what was known when the view was opened
    else soon();
  });
  page.signal.addEventListener('abort', () => clearTimeout(timer));
  return soon;
}
