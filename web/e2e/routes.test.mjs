// Each route in light and dark, on a phone, a tablet and a wide screen: readable by all, no wider
// than the screen, and kept as a picture.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { seeded, pictures, without } from './installation.mjs';
import { suite } from './suite.mjs';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const script = '<img src=x onerror=alert(1)><script>document.title="run"</script>';
const hostile = [script, 'right-to-left \u202Eevil\u202C', 'w'.repeat(200)];

describe('routes', { skip: without }, () => {
  const all = suite(seeded);
  const routes = {
    overview: '', jobs: 'jobs', 'hostile jobs': 'jobs?tag=hostile', 'new job': 'jobs/new', job: 'jobs/JOB', runs: 'jobs/JOB?tab=runs', versions: 'jobs/JOB?tab=versions', 'a version': 'jobs/CHANGED?tab=versions&version=1', backfills: 'jobs/JOB?tab=backfills',
    'edit job': 'jobs/JOB/edit', executions: 'executions', execution: 'executions/RUN', 'failed execution': 'executions/FAILED', 'dead letters': 'dead-letters', replays: 'dead-letters?view=replays', monitors: 'monitors', monitor: 'monitors/MONITOR', objectives: 'objectives', calendars: 'calendars', notifications: 'notifications', notification: 'notifications/NOTIFICATION',
    functions: 'functions', secrets: 'secrets', workers: 'workers', 'remote workers': 'workers?tab=remote', tenant: 'tenant', keys: 'keys', audit: 'audit', nowhere: 'nowhere',
    'run calendar': 'run-calendar', 'run calendar of a day': 'run-calendar?view=day', 'run calendar of a month': 'run-calendar?view=month',
  };
  const ofPlatform = { tenants: 'tenants', 'a tenant': 'tenants/TENANT', platform: 'platform', settings: 'platform?tab=settings' };

  /** What axe finds, with the elements that have it. */
  const violations = (one, runOnly) => one.evaluate(async (rules) => {
    // Without preload: no rule of these looks into style sheets, and fetching them takes longer than all rules.
    const found = await globalThis.axe.run(document, { runOnly: rules, resultTypes: ['violations'], preload: false });
    return found.violations.map(({ id, nodes }) => [id, nodes.slice(0, 3).map(({ html, failureSummary }) => [html, failureSummary])]);
  }, runOnly);

  async function look(one, name, path) {
    await one.goto(`${all.installation.base}/console/${path}`);
    await one.settled();
    await one.evaluate(axe);
    for (const colorScheme of ['light', 'dark']) {
      await one.emulateMedia({ colorScheme });
      for (const width of [360, 768, 1440]) {
        const where = `${name}, ${colorScheme} at ${width} px`;
        await one.setViewportSize({ width, height: 900 });
        assert.ok(await one.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${where}: the page is wider than the screen`);
        // In the dark, the page has the same elements in other colours.
        const rules = colorScheme === 'dark' ? { type: 'rule', values: ['color-contrast', 'link-in-text-block'] } : ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];
        assert.deepEqual(await violations(one, rules), [], where);
        if (width !== 768) await one.screenshot({ path: `${pictures}/${name.replaceAll(' ', '-')}-${colorScheme}-${width}.png` });
      }
    }
  }

  test('every route: light and dark, on a phone, a tablet and a wide screen, readable by all', async () => {
    const ids = await things();
    const show = (one, [name, path]) => look(one, name, path.replace(/[A-Z]{3,}/, (thing) => ids[thing]));
    // Two pages at a time: while one waits for the service, the other is looked at.
    const left = Object.entries(routes);
    const pages = await Promise.all([all.page('nowhere'), all.page('nowhere')]);
    await Promise.all(pages.map(async (one) => {
      for (let next = left.shift(); next; next = left.shift()) await show(one, next);
    }));
    const platform = await all.page('nowhere', { token: all.installation.tokens.PLATFORM_ADMIN_TOKEN });
    for (const route of Object.entries(ofPlatform)) await show(platform, route);
  });

  /** A job with a hostile name and runs of it, and a notification. */
  const things = async () => {
    const { api, tokens } = all.installation;
    const { items: [run] } = await api('GET', '/executions?status=completed&limit=1');
    const { items: [failed] } = await api('GET', '/executions?status=failed&limit=1');
    const { items: [job] } = await api('GET', '/jobs?tags=hostile&status=active&limit=1');
    const { id: notification } = await api('POST', '/notifications', { name: 'w'.repeat(200), kind: 'webhook', url: tokens.ECHO, events: ['job.failed'], tags: [hostile[0].slice(0, 50)] });
    await api('POST', `/notifications/${notification}/test`);
    await api('POST', '/calendars', { name: hostile[0], description: hostile[1], timezone: 'Europe/Berlin', days: [{ start: '2026-12-24', name: hostile[2].slice(0, 90) }] });
    await api('POST', '/objectives', { name: hostile[0], kind: 'onTime', tag: hostile[0].slice(0, 50), thresholdMs: 5000, target: 0.999 });
    const { id: monitor, pingUrl } = await api('POST', '/monitors', { name: hostile[2], tags: [hostile[0].slice(0, 50)], cronExpression: '0 2 * * *', timezone: 'Europe/Berlin' });
    for (const signal of ['/start', '/1', '/start']) await fetch(new URL(pingUrl + signal, all.installation.base), { method: 'POST', body: `${hostile[2]}\n${script}` });
    const { id: tenant } = await api('GET', '/tenant');
    await api('POST', '/remote-workers', { name: hostile[2].slice(0, 60), protocol: 1, slots: 3, leaseSeconds: 300, functions: [{ name: 'send-invoice' }, { name: 'print-invoice' }] });
    const sleeps = (name) => ({ name, trigger: 'manual', description: script, jobType: 'function', config: { modulePath: 'builtin', functionName: 'sleep', parameters: { durationMs: 1 } } });
    const { id: changed } = await api('POST', '/jobs', sleeps(hostile[1]));
    await api('PUT', `/jobs/${changed}`, sleeps(hostile[2]));
    return { CHANGED: changed, MONITOR: monitor, TENANT: tenant, RUN: run.id, FAILED: failed.id, JOB: job.id, NOTIFICATION: notification };
  };
});
