// What the console does when something is away, slow or has ended.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { tenancy, without } from './installation.mjs';
import { phone, sleeper, suite } from './suite.mjs';

const unreachable = /ERR_|Failed to fetch/;

describe('trouble', { skip: without }, () => {
  const all = suite(tenancy, async ({ api }) => {
    for (const name of ['alpha', 'alphabet']) await api('POST', '/jobs', { name, cronExpression: '0 0 9 * * *', ...sleeper() });
  });
  const unauthorized = { status: 401, contentType: 'application/json', body: JSON.stringify({ error: { code: 'UNAUTHORIZED', message: 'the token has expired', details: [] } }) };
  /** Holds the requests that fit until they are released, in whatever order; those that come once it is open pass. */
  const hold = async (one, fits) => {
    const held = [];
    held.open = false;
    await one.route((url) => url.pathname.startsWith('/api/') && fits(url), async (route) => {
      if (!held.open) await new Promise((resolve) => held.push({ url: new URL(route.request().url()), release: resolve }));
      await route.continue().catch(() => {}); // the page may have given it up
    });
    return held;
  };
  /** The first of them that fits, once it is there. */
  const arrives = async (held, fits = () => true) => {
    for (;;) {
      const found = held.find(({ url }) => fits(url));
      if (found) return found;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  };

  test('a session that ends while a question is open keeps what was typed in it, also after Escape', async () => {
    const one = await all.page('secrets', phone);
    one.expected = /401/;
    await one.getByRole('button', { name: 'New secret' }).click();
    await one.getByLabel('Name (required)').fill('kept');
    await one.getByLabel('Value (required)').fill('typed-before');
    await one.route('**/api/**', (route) => route.fulfill(unauthorized));
    await one.getByRole('button', { name: 'Keep the secret' }).click();
    const again = one.getByRole('dialog', { name: 'Sign in again' });
    await again.getByText('the token has expired').waitFor();
    for (let i = 0; i < 3; i++) await one.keyboard.press('Escape'); // browsers close a question that refuses to close, at the second try
    await again.getByLabel('Token or API key').waitFor();
    await one.harmless();
    await one.unroute('**/api/**');
    await again.getByLabel('Token or API key').fill(all.installation.tokens.ADMIN_TOKEN);
    await one.keyboard.press('Enter');
    await again.waitFor({ state: 'detached' });
    assert.equal(await one.getByLabel('Value (required)').inputValue(), 'typed-before');
    await one.getByRole('button', { name: 'Keep the secret' }).click();
    await one.getByRole('cell', { name: 'kept', exact: true }).waitFor();
  });

  test('screens that could not be reached say so, and go on by themselves', async () => {
    const one = await all.page('nowhere');
    one.expected = unreachable;
    for (const path of ['jobs', 'calendars', 'audit', '', 'executions', 'tenant']) {
      await one.route('**/api/**', (route) => route.abort('connectionrefused'));
      await one.evaluate((to) => { history.pushState(null, '', `/console/${to}`); dispatchEvent(new PopStateEvent('popstate')); }, path);
      await one.getByText('The service cannot be reached. The console tries again by itself.').first().waitFor();
      await one.unroute('**/api/**');
      await one.getByRole('alert').first().waitFor({ state: 'detached' }).catch(() => assert.fail(`${path || 'overview'} does not go on by itself`));
      await one.settled();
    }
  });

  test('without a network a verb is refused at once, and is not done later behind one’s back', async () => {
    const { id } = await all.installation.api('POST', '/jobs', { name: 'offline', trigger: 'manual', ...sleeper() });
    const one = await all.page(`jobs/${id}`);
    one.expected = unreachable;
    await one.getByRole('button', { name: 'Run now' }).click();
    await one.context().setOffline(true);
    await one.getByRole('button', { name: 'Run it now' }).click();
    await one.getByRole('dialog').getByText('The service cannot be reached.').waitFor();
    await one.context().setOffline(false);
    await one.keyboard.press('Escape');
    await one.getByRole('link', { name: 'Runs' }).click();
    await one.getByText('This job has not run yet.').waitFor();
    assert.equal((await all.installation.api('GET', `/executions?jobId=${id}`)).items.length, 0);
  });

  test('a slow network: the screen says that it loads, two clicks make one job, and the last search counts', async () => {
    const one = await all.page('nowhere');
    one.expected = /400/;
    const lists = await hold(one, (url) => url.pathname.endsWith('/jobs') && url.search.includes('limit=100'));
    await one.getByRole('link', { name: 'Jobs', exact: true }).click();
    await one.getByText('Loading jobs…').waitFor();
    (await arrives(lists)).release();
    await one.getByRole('table', { name: 'Jobs' }).waitFor();
    // By what they search for: on a busy machine the list asks again by itself meanwhile.
    const search = (q) => arrives(lists, (url) => url.searchParams.get('q') === q);
    await one.getByLabel('Name or description').fill('alpha');
    await search('alpha');
    await one.getByLabel('Name or description').fill('alphabet');
    const last = await search('alphabet');
    lists.open = true;
    last.release();
    await one.getByText('1 job', { exact: true }).waitFor();
    for (const each of lists) each.release(); // the answer to what was typed before comes last
    await one.settled();
    await one.getByText('1 job', { exact: true }).waitFor();
    await one.unrouteAll({ behavior: 'ignoreErrors' });

    await one.goto(`${all.installation.base}/console/jobs/new`);
    await one.getByLabel('Name (required)').fill('clicked twice');
    await one.getByLabel('URL (required)').fill(all.installation.tokens.ECHO);
    await one.settled();
    const made = await hold(one, (url) => url.pathname.endsWith('/jobs'));
    await one.getByRole('button', { name: 'Create the job' }).dblclick({ force: true });
    await arrives(made);
    await one.getByRole('button', { name: 'Create the job' }).click({ force: true, noWaitAfter: true });
    for (const each of made) each.release();
    await one.getByRole('heading', { name: 'clicked twice', level: 1 }).waitFor();
    assert.equal((await all.installation.api('GET', '/jobs?q=clicked+twice')).items.length, 1);
  });

  test('a sign-out that does not reach the service says so, and is made up for', async () => {
    const one = await all.page('jobs');
    one.expected = unreachable;
    await one.route('**/console/session', (route) => (route.request().method() === 'DELETE' ? route.abort('connectionrefused') : route.continue()));
    await one.getByRole('button', { name: 'Sign out' }).click();
    await one.getByRole('alert').filter({ hasText: 'this browser still keeps your session' }).waitFor();
    const ended = one.waitForResponse((response) => response.url().endsWith('/console/session') && response.request().method() === 'DELETE');
    await one.unroute('**/console/session');
    assert.equal((await ended).status(), 204);
    await one.getByRole('alert').waitFor({ state: 'detached' });
    await one.reload();
    await one.getByLabel('Token or API key').waitFor();
  });

  test('what the API refuses is said in its words, with the request to quote', async () => {
    const one = await all.page('nowhere');
    one.expected = /429|503|500/;
    const answers = { jobs: [429, 'RATE_LIMITED', 'too many requests'], executions: [503, 'UNAVAILABLE', 'the database is busy or restarting'], calendars: [500, 'INTERNAL', 'something went wrong'] };
    for (const [path, [status, code, message]] of Object.entries(answers)) {
      await one.route(`**/api/v1/scheduler/${path}?*`, (route) => route.fulfill({ status, contentType: 'application/json', body: JSON.stringify({ error: { code, message: `${message} <b>now</b>`, details: [] } }), headers: { 'X-Request-Id': 'req-7' } }));
      await one.goto(`${all.installation.base}/console/${path}`);
      const said = one.getByRole('alert');
      await said.getByText(`${message} <b>now</b>`).waitFor();
      await said.getByText(`${code}, HTTP ${status}, request req-7`).waitFor();
      await one.unrouteAll();
      await said.getByRole('button', { name: 'Try again' }).click();
      await said.waitFor({ state: 'detached' });
    }
    // A proxy answers with a page.
    await one.route('**/api/v1/scheduler/jobs?*', (route) => route.fulfill({ status: 502, contentType: 'text/html', body: '<html><h1>Bad gateway</h1>' }));
    one.expected = /502/;
    await one.goto(`${all.installation.base}/console/jobs`);
    await one.getByRole('alert').getByText('HTTP 502', { exact: true }).waitFor();
    await one.harmless();
  });

  test('two people change one job: the second is told, and keeps what was typed', async () => {
    const { id } = await all.installation.api('POST', '/jobs', { name: 'shared', cronExpression: '0 0 9 * * *', ...sleeper() });
    const one = await all.page(`jobs/${id}/edit`);
    one.expected = /409|412/;
    await one.getByRole('textbox', { name: 'Name (required)', exact: true }).fill('mine');
    await all.installation.api('PUT', `/jobs/${id}`, { name: 'theirs', cronExpression: '0 0 9 * * *', ...sleeper() });
    await one.getByRole('button', { name: 'Save as a new version' }).click();
    await one.getByRole('alert').filter({ hasText: /version/i }).waitFor();
    assert.equal(await one.getByRole('textbox', { name: 'Name (required)', exact: true }).inputValue(), 'mine');
    assert.equal((await all.installation.api('GET', `/jobs/${id}`)).name, 'theirs', 'a change was undone');
  });
});
