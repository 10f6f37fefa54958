// What the files of tests have in common: an installation, a browser, and pages that have
// to leave no error behind.

import assert from 'node:assert/strict';
import { after, afterEach, before } from 'node:test';
import { openBrowser } from './installation.mjs';

/** Names that people, importers and attackers make. NUL is refused by the API. */
export const hostile = {
  markup: '<img src=x onerror=alert(1)><script>document.title="run"</script>',
  bidi: 'right-to-left \u202Eevil \u2066mark',
  long: 'w'.repeat(200),
};

/** Starts what the tests of a file need, and ends it. */
export function suite(open, fill = async () => {}) {
  const all = { installation: null, page: null };
  const opened = [];
  let browser;
  before(async () => {
    all.installation = await open();
    browser = await openBrowser();
    await fill(all.installation);
  }, { timeout: 240_000 });
  after(async () => {
    await browser?.close();
    await all.installation?.stop();
  });
  afterEach(async () => {
    for (const one of opened.splice(0)) {
      await one.context().close();
      assert.deepEqual(one.errors, [], 'the browser reported errors');
    }
  });
  /** A page of a screen, signed in as an administrator or with another token; without a path, a page that was not opened yet. Errors may be expected from the start. */
  all.page = async (path, { token = all.installation.tokens.ADMIN_TOKEN, expected, ...options } = {}) => {
    const one = await browser.page(options);
    if (expected) one.expected = expected;
    one.on('dialog', () => assert.fail('a text was run'));
    opened.push(one);
    if (path !== undefined) await one.signIn(all.installation, token, path);
    return one;
  };
  return all;
}

/** A phone. */
export const phone = { viewport: { width: 360, height: 740 } };
export const sleeper = (durationMs = 10) => ({ jobType: 'function', config: { modulePath: 'builtin', functionName: 'sleep', parameters: { durationMs } } });
/** Where a person is who presses Tab until they are there. */
export async function tabTo(one, target, most = 120) {
  await target.waitFor();
  for (let i = 0; i < most; i++) {
    if (await target.evaluate((element) => element === document.activeElement)) return;
    await one.keyboard.press('Tab');
  }
  assert.fail(`Tab does not reach ${target}`);
}

/** Asks again and again until something is as it should be, for at most three minutes. */
export async function until(ask, what) {
  const limit = Date.now() + 180_000;
  for (;;) {
    const got = await ask();
    if (got) return got;
    assert.ok(Date.now() < limit, `not within three minutes: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

/** Waits until an execution has finished. */
export const finished = (installation, id) => until(async () => {
  const run = await installation.api('GET', `/executions/${id}`);
  return ['completed', 'failed', 'cancelled'].includes(run.status) && run;
}, `execution ${id} finishes`);
