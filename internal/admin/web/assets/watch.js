// A view that stays current while it is open.

const EVERY = 2000; // ms between two reads
const OTHERS = 5; // times as long, of what other members have

/**
 * watch reads and draws a view. It does both again after a newer overview came, and after a read
 * failed, at most every two seconds. Overviews are about this
 * relay, so it reads what other members have each ten seconds. It throws the error of the first read. It gives the error of
 * a later read to say, and '' after a read that worked.
 */
export async function watch(page, read, draw, say) {
  const { live, signal } = page;
  let seen; // the newest overview before the last read that worked
  let busy = false;
  let turns = 0; // since the last read
  const once = async () => {
    const newest = live.newest;
    const answer = await read();
    if (signal.aborted) return;
    draw(answer);
    seen = newest;
  };
  await once();
  if (signal.aborted) return;
  const timer = setInterval(async () => {
    if (busy || (page.others ? ++turns < OTHERS : live.newest === seen)) return;
    busy = true;
    turns = 0;
    try {
      await once();
      say('');
    } catch (e) {
      if (signal.aborted) return;
      if (e.status === 401) page.failed(e);
      else say(`The page may be out of date: ${e.message}`);
    } finally {
      busy = false;
    }
  }, EVERY);
  signal.addEventListener('abort', () => clearInterval(timer));
}
