// Addresses, clocks and permissions: what one sees, and where one comes to.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { tenancy, without } from './installation.mjs';
import { finished, phone, sleeper, suite } from './suite.mjs';

describe('addresses', { skip: without }, () => {
  let run;
  let job;
  const all = suite(tenancy, async ({ api }) => {
    job = (await api('POST', '/jobs', { name: 'linked', tags: ['one'], cronExpression: '0 30 2 * * *', timezone: 'America/New_York', ...sleeper() })).id;
    run = await finished({ api }, (await api('POST', `/jobs/${job}/trigger`, {})).id);
    await api('POST', '/calendars', { name: 'days', days: [] });
    await api('POST', '/monitors', { name: 'watched', tags: ['one'], cronExpression: '0 2 * * *' });
    await api('POST', '/objectives', { name: 'good', kind: 'onTime', tag: 'one', thresholdMs: 5000, target: 0.999 });
    await api('POST', '/notifications', { name: 'told', kind: 'webhook', url: 'https://example.com/', events: ['job.failed'] });
    await api('PUT', '/secrets/billing', { value: 'hunter2-hunter2' });
    await api('POST', '/api-keys', { name: 'kept', scopes: ['jobs:read'] });
  });

  test('the filters of each screen stand in its address: a colleague who opens it sees the same', async () => {
    const one = await all.page('jobs', phone);
    const open = async (path) => {
      await one.goto(`${all.installation.base}/console/${path}`);
      await one.settled();
    };
    for (const [path, label, want] of [
      ['jobs?status=paused&tag=one&sort=name', 'Status', 'paused'], ['jobs?type=function', 'Type', 'function'], ['jobs?sort=-name', 'Order', null], ['jobs?q=link', 'Name or description', 'link'],
      ['executions?status=failed', 'Status', 'failed'], ['executions?trigger=manual', 'Made by', 'manual'], ['executions?error=TIMEOUT', 'Error', 'TIMEOUT'],
      ['dead-letters?view=replays', 'Shown', 'replays'], ['dead-letters?error=TIMEOUT&view=list', 'Error', 'TIMEOUT'], ['monitors?status=down&tag=one', 'Status', 'down'], ['run-calendar?view=month&date=2026-03-29', 'Shown', 'month'],
      ['audit?actor=demo&action=createJob', 'Operation', 'createJob'],
    ]) {
      await open(path);
      const field = one.locator('main').getByLabel(label).first();
      if (want) assert.equal(await field.inputValue(), want, path);
      else assert.ok(await field.inputValue(), path);
      await one.harmless(path);
    }
    await open('executions');
    await one.getByLabel('Status').selectOption('completed');
    await one.waitForURL(/status=completed/);
    await one.getByRole('link', { name: 'linked' }).click();
    await one.getByRole('heading', { name: 'linked', level: 1 }).waitFor();
    await one.goBack();
    await one.getByRole('table', { name: 'Executions' }).waitFor();
    assert.equal(await one.getByLabel('Status').inputValue(), 'completed', 'going back loses the filter');
  });

  test('nonsense in an address is left out, and an id that nothing has says so', async () => {
    const one = await all.page('jobs', phone);
    one.expected = /40[04]/;
    const open = async (path) => {
      await one.goto(`${all.installation.base}/console/${path}`);
      await one.settled();
      await one.harmless(path);
    };
    for (const path of ['jobs?status=%3Cscript%3E&sort=drop&tag[]=a', 'executions?status=none&from=yesterday&to=%00', 'executions?from=2026-13-45', 'run-calendar?date=2026-99-99&view=year', 'monitors?status=7', 'dead-letters?view=%F0%9F%92%A9', `jobs/${job}?tab=nothing&version=-3`, `jobs/${job}?tab=versions&version=1e9`]) {
      await open(path);
      if (!path.includes('1e9')) assert.equal(await one.getByRole('alert').count(), 0, `${path}: ${(await one.getByRole('alert').allTextContents()).join()}`);
    }
    for (const path of ['jobs/00000000-0000-7000-8000-000000000000', 'executions/00000000-0000-7000-8000-000000000000', 'jobs/..%2F..%2Fhealth', 'executions/x', 'monitors/x', 'notifications/x']) {
      await one.goto(`${all.installation.base}/console/${path}`);
      await one.getByRole('alert').first().waitFor();
      await one.harmless(path);
    }
    await one.goto(`${all.installation.base}/console/nothing/of/this`);
    await one.getByText('This address shows no screen.').waitFor();
  });

  test('the clock is switched for all screens at once, stays, and says its zone', async () => {
    const one = await all.page(`executions/${run.id}`, { timezoneId: 'Asia/Kolkata' });
    const fact = one.locator('dl.facts div').filter({ hasText: 'Scheduled' }).locator('time').first();
    const at = new Date(run.scheduledAt);
    const clock = (zone) => at.toLocaleTimeString('en-GB', { timeZone: zone });
    await fact.waitFor();
    assert.match(await fact.textContent(), new RegExp(clock('Asia/Kolkata')));
    await one.getByLabel('Whose clock').selectOption('utc');
    assert.match(await fact.textContent(), new RegExp(`${clock('UTC')}.*UTC`));
    await one.goto(`${all.installation.base}/console/jobs/${job}`);
    const next = one.getByRole('region', { name: 'Next runs' }).getByRole('listitem').first();
    await next.getByText(/0[67]:30:00/).waitFor();
    await one.getByLabel('Whose clock').selectOption('job');
    await next.getByText(/0[23]:30:00/).waitFor();
    await one.reload();
    await next.getByText(/0[23]:30:00/).waitFor();
    await one.keyboard.press('Control+k');
    await one.getByRole('combobox', { name: 'What to do' }).fill('times utc');
    await one.keyboard.press('Enter');
    await next.getByText(/0[67]:30:00/).waitFor();
    assert.equal(await one.getByLabel('Whose clock').inputValue(), 'utc');
  });

  const verbs = /^(New|Create|Delete|Edit|Change|Pause|Resume|Stop|Run|Copy|Cancel|Replay|Discard|Rotate|Replace|Upload|Send|Turn|Bring|Make|Suspend|Save the)/;
  test('a viewer sees every screen that it may read, and no verb on any', async () => {
    const one = await all.page('', { ...phone, token: all.installation.tokens.VIEWER_TOKEN });
    one.expected = /40[03]/;
    const names = await one.getByRole('navigation', { name: 'Screens' }).getByRole('link').evaluateAll((links) => links.map((link) => link.getAttribute('href')));
    assert.ok(names.length > 8, names.join());
    for (const path of [...names, `/console/jobs/${job}`, `/console/jobs/${job}?tab=runs`, `/console/jobs/${job}?tab=versions&version=1`, `/console/jobs/${job}?tab=backfills`, `/console/executions/${run.id}`]) {
      await one.goto(all.installation.base + path);
      await one.settled();
      const shown = [...await one.locator('main').getByRole('button').allTextContents(), ...await one.locator('main a.button').allTextContents()];
      assert.deepEqual(shown.filter((text) => verbs.test(text.trim())), [], path);
      assert.equal(await one.locator('main').getByRole('alert').count(), 0, path);
    }
    await one.goto(`${all.installation.base}/console/jobs/new`);
    await one.getByText('You may read jobs, but not change them.').waitFor();
    assert.equal(await one.getByRole('button', { name: 'Create the job' }).count(), 0);
  });

  test('somebody with one permission sees the screens of it; the others say what is missing', async () => {
    const { key } = await all.installation.api('POST', '/api-keys', { name: 'narrow', scopes: ['executions:read'] });
    const one = await all.page(`executions/${run.id}`, { ...phone, token: key });
    one.expected = /403/;
    await one.getByText(/completed in/).waitFor();
    assert.deepEqual(await one.getByRole('navigation', { name: 'Screens' }).getByRole('link').allTextContents(), ['Executions', 'Dead letters']);
    for (const path of ['', 'jobs', `jobs/${job}`, 'calendars', 'secrets', 'keys', 'audit', 'tenant', 'tenants', 'platform', 'workers', 'monitors', 'run-calendar']) {
      await one.goto(`${all.installation.base}/console/${path}`);
      await one.getByRole('alert').first().waitFor();
      assert.match(await one.getByRole('alert').first().textContent(), /FORBIDDEN|permission|may not/i, path);
      await one.harmless(path);
    }
    const monitoring = await all.installation.api('POST', '/api-keys', { name: 'overseer', scopes: ['monitoring:read'] });
    const other = await all.page('', { token: monitoring.key });
    await other.getByText(/On time|No worker lives|Late by/).waitFor();
    assert.equal(await other.getByRole('alert').count(), 0);
    assert.equal(await other.getByText('The last 24 hours').count(), 0);
  });
});
