// What each screen asks the API when it opens: at most two things, so that a slow network
// costs two round trips at most, and the database little.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { tenancy, without } from './installation.mjs';
import { finished, sleeper, suite, until } from './suite.mjs';

describe('requests', { skip: without }, () => {
  const ids = {};
  const all = suite(tenancy, async ({ api, tokens, id }) => {
    ids.TENANT = id;
    ids.JOB = (await api('POST', '/jobs', { name: 'counted', cronExpression: '0 * * * * *', tags: ['one'], ...sleeper() })).id;
    await api('PUT', `/jobs/${ids.JOB}`, { name: 'counted again', cronExpression: '0 * * * * *', tags: ['one'], ...sleeper() });
    const { id: failing } = await api('POST', '/jobs', { name: 'fails', trigger: 'manual', retryConfig: { maxRetries: 0 }, jobType: 'javascript', config: { source: 'export default () => { console.log("x"); throw new Error("y") }' } });
    ids.RUN = (await api('POST', `/jobs/${ids.JOB}/trigger`, {})).id;
    ids.FAILED = (await api('POST', `/jobs/${failing}/trigger`, {})).id;
    await finished({ api }, ids.RUN);
    await finished({ api }, ids.FAILED);
    const from = new Date(Date.now() - 86_400_000).toISOString();
    await api('POST', `/jobs/${ids.JOB}/backfills`, { from, to: new Date(Date.parse(from) + 180_000).toISOString(), ratePerMinute: 1000 });
    for (const rate of [1, 2]) await api('POST', `/jobs/${ids.JOB}/backfills`, { from, to: new Date(Date.parse(from) + 3_600_000).toISOString(), ratePerMinute: rate }); // they run while it is counted
    ids.NOTIFICATION = (await api('POST', '/notifications', { name: 'told', kind: 'webhook', url: tokens.ECHO, events: ['job.failed'] })).id;
    await api('POST', `/notifications/${ids.NOTIFICATION}/test`);
    ids.MONITOR = (await api('POST', '/monitors', { name: 'watched', cronExpression: '0 2 * * *' })).id;
    await api('POST', '/calendars', { name: 'days', days: [] });
    await api('POST', '/objectives', { name: 'good', kind: 'onTime', tag: 'one', thresholdMs: 5000, target: 0.999 });
    await api('PUT', '/secrets/billing', { value: 'hunter2-hunter2' });
    await until(async () => (await api('GET', '/overview')).failures?.length > 0, 'the failure is counted');
  });

  const paths = [
    '', 'jobs', 'jobs/new', 'jobs/JOB', 'jobs/JOB/edit', 'jobs/JOB?tab=runs', 'jobs/JOB?tab=versions', 'jobs/JOB?tab=versions&version=1', 'jobs/JOB?tab=json', 'executions', 'executions?status=failed', 'executions/RUN', 'executions/FAILED', 'run-calendar', 'run-calendar?view=day', 'run-calendar?view=month', 'run-calendar?kind=monitor',
    'jobs/JOB?tab=backfills', 'dead-letters', 'dead-letters?view=list', 'dead-letters?view=replays', 'monitors', 'monitors/MONITOR', 'objectives', 'calendars', 'notifications', 'notifications/NOTIFICATION', 'functions', 'secrets', 'workers', 'workers?tab=remote', 'tenant', 'keys', 'audit',
    'tenants', 'tenants/TENANT', 'platform', 'platform?tab=settings',
  ];
  test('each screen asks at most two things when it opens', async (t) => {
    const one = await all.page('nowhere', { token: all.installation.tokens.PLATFORM_ADMIN_TOKEN });
    one.expected = /400/;
    const asked = [];
    // The session is of the page, the contract a file that changes with the program alone.
    one.on('request', (request) => /\/api\/v1\/|\/health/.test(request.url()) && asked.push(`${request.method()} ${request.url().slice(all.installation.base.length)}`));
    const wrong = [];
    for (const path of paths) {
      await one.goto(`${all.installation.base}/console/nowhere`);
      await one.settled();
      asked.length = 0;
      await one.goto(`${all.installation.base}/console/${path.replace(/[A-Z]{3,}/, (thing) => ids[thing])}`);
      await one.settled();
      const things = [...new Set(asked)];
      t.diagnostic(`${path || 'overview'}: ${things.length}`);
      if (things.length > 2) wrong.push(`${path || 'overview'} asks ${things.join(', ')}`);
    }
    assert.deepEqual(wrong, []);
  });

  test('the overview asks once when it opens, and between two overviews for the state alone', async () => {
    const one = await all.page('nowhere');
    const began = await one.evaluate(() => performance.now());
    await one.getByRole('link', { name: 'Overview' }).click();
    await one.getByText('What failed last').waitFor();
    await one.getByRole('region', { name: 'Runs of the next hour by minute' }).waitFor();
    // By the page's own times: on a busy machine the state was asked for several times before anybody looks.
    const found = await one.waitForFunction((since) => {
      const asked = performance.getEntriesByType('resource').filter(({ name, startTime }) => startTime > since && name.includes('/api/v1/'));
      return asked.some(({ name }) => name.endsWith('/status')) && asked.map(({ name, startTime }) => ({ path: new URL(name).pathname.replace('/api/v1/scheduler', ''), at: startTime }));
    }, began);
    const [first, ...later] = await found.jsonValue();
    assert.deepEqual([first.path, ...new Set(later.map(({ path }) => path))], ['/overview', '/status']);
    assert.ok(later[0].at - first.at > 4_000, 'the state is asked for when the screen opens');
  });

  test('a screen that is hidden asks nothing', async () => {
    const shown = [];
    for (const path of ['', 'jobs', 'executions', 'workers']) {
      const one = await all.page('nowhere');
      const last = one.waitForResponse((response) => path !== 'jobs' || /recent-runs/.test(response.url())); // asked for once the rows in sight are known
      await one.getByRole('link', { name: path === '' ? 'Overview' : path, exact: true }).or(one.getByRole('link', { name: path === 'workers' ? 'Workers and queues' : path[0]?.toUpperCase() + path.slice(1), exact: true })).first().click();
      await last;
      await one.settled();
      await one.evaluate(() => {
        Object.defineProperty(document, 'visibilityState', { configurable: true, get: () => 'hidden' });
        Object.defineProperty(document, 'hidden', { configurable: true, get: () => true });
        document.dispatchEvent(new Event('visibilitychange'));
        window.dispatchEvent(new Event('visibilitychange'));
      });
      await one.settled(); // on a busy machine it may have asked just before
      const asked = [];
      one.on('request', (request) => /\/api\//.test(request.url()) && asked.push(request.url()));
      shown.push({ path, asked });
    }
    // Longer than any of these screens waits to ask again; the clock of a hidden page is the browser's.
    const visible = await all.page('workers');
    await visible.settled();
    await visible.waitForRequest((request) => request.url().endsWith('/queues'));
    await visible.waitForResponse((response) => response.url().endsWith('/queues'));
    await visible.waitForRequest((request) => request.url().endsWith('/queues'));
    for (const { path, asked } of shown) assert.deepEqual(asked, [], `${path} asks while it is hidden`);
  });
});
