// What surrounds the jobs: calendars, secrets, functions, notifications, workers, limits, the audit log, the platform.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { tenancy, without } from './installation.mjs';
import { hostile, phone, sleeper, suite, until } from './suite.mjs';

describe('settings', { skip: without }, () => {
  const all = suite(tenancy);
  const api = (...args) => all.installation.api(...args);

  test('a calendar with a wrong day is refused with the reason, then leaves its day out of a job, and cannot go while the job names it', async () => {
    const one = await all.page('calendars', phone);
    one.expected = /400|409/;
    const soon = new Date(Date.now() + 2 * 86_400_000).toISOString().slice(0, 10);
    await one.getByRole('button', { name: 'New calendar' }).click();
    await one.getByLabel('Name (required)').fill('closed');
    await one.getByLabel('Zone').fill('Nowhere/Land');
    await one.getByLabel('Days, one a line').fill('2026-02-30');
    await one.getByRole('button', { name: 'Create the calendar' }).click();
    await one.getByRole('alert').waitFor();
    assert.equal(await one.getByLabel('Days, one a line').inputValue(), '2026-02-30');
    await one.harmless();
    await one.getByLabel('Zone').fill('UTC');
    await one.getByLabel('Days, one a line').fill(`${soon} stocktaking`);
    await one.getByRole('button', { name: 'Create the calendar' }).click();
    await one.getByRole('cell', { name: 'closed', exact: true }).waitFor();
    const { items: [calendar] } = await api('GET', '/calendars');
    const { id } = await api('POST', '/jobs', { name: 'by calendar', cronExpression: '0 0 9 * * *', timezone: 'UTC', calendars: [{ calendarId: calendar.id, mode: 'exclude' }], ...sleeper() });
    await one.getByRole('button', { name: 'Delete closed' }).click();
    await one.getByRole('button', { name: 'Delete this calendar' }).click();
    await one.getByRole('alert').waitFor();
    await one.goto(`${all.installation.base}/console/jobs/${id}`);
    await one.getByText('a calendar leaves it out').waitFor();
    await one.goto(`${all.installation.base}/console/calendars`);
    await one.getByRole('button', { name: 'Edit closed' }).click();
    await one.getByLabel('Days, one a line').fill('');
    await one.getByRole('button', { name: 'Save the calendar' }).click();
    await one.getByRole('dialog').waitFor({ state: 'detached' });
    await one.goto(`${all.installation.base}/console/jobs/${id}`);
    await one.getByRole('region', { name: 'Next runs' }).getByRole('listitem').nth(9).waitFor();
    assert.equal(await one.getByText('a calendar leaves it out').count(), 0);
  });

  test('a secret goes in and never comes out: not in a page, not in an answer, not in the audit log', async () => {
    const value = 'hunter2-hunter2-hunter2';
    const one = await all.page('secrets');
    one.expected = /409/;
    const seen = [];
    one.on('response', async (response) => /\/api\//.test(response.url()) && seen.push(await response.text().catch(() => '')));
    await one.getByRole('button', { name: 'New secret' }).click();
    assert.equal(await one.getByLabel('Value (required)').getAttribute('type'), 'password');
    await one.getByLabel('Name (required)').fill('billing');
    await one.getByLabel('Value (required)').fill(value);
    await one.getByLabel('Description').fill(hostile.markup);
    await one.getByRole('button', { name: 'Keep the secret' }).click();
    await one.getByRole('cell', { name: 'billing', exact: true }).waitFor();
    const { id } = await api('POST', '/jobs', { name: 'sends it', trigger: 'manual', jobType: 'http', config: { url: all.installation.tokens.ECHO, headers: { Authorization: 'Bearer {{secret:billing}}' } } });
    await one.goto(`${all.installation.base}/console/jobs/${id}`);
    await one.getByLabel('Config').getByText('{{secret:billing}}').waitFor();
    await one.getByRole('button', { name: 'Run now' }).click();
    await one.getByRole('button', { name: 'Run it now' }).click();
    await one.getByText(/completed in|failed with/).waitFor();
    await one.settled();
    assert.ok(!(await one.content()).includes(value), 'the execution shows the value');
    await one.goto(`${all.installation.base}/console/audit?action=putSecret`);
    await one.locator('summary').first().click();
    await one.settled();
    assert.ok(seen.length > 3 && !seen.some((text) => text.includes(value)) && !(await one.content()).includes(value), 'an answer has the value');
    await one.goto(`${all.installation.base}/console/secrets`);
    await one.getByRole('button', { name: 'Delete billing' }).click();
    await one.getByRole('button', { name: 'Delete this secret' }).click();
    await one.getByRole('alert').getByText('1 job refers to this secret').waitFor();
    await api('DELETE', `/jobs/${id}`);
    await one.getByRole('button', { name: 'Delete this secret' }).click();
    await one.getByText('There are no secrets yet.').waitFor();
    const viewer = await all.page('secrets', { token: all.installation.tokens.VIEWER_TOKEN, expected: /403/ });
    await viewer.settled();
    assert.equal(await viewer.getByRole('button', { name: /New secret|Replace|Delete/ }).count(), 0);
  });

  test('a function gets versions; one that is no module, or ends badly, says why', async () => {
    const good = Buffer.from('0061736d010000000104016000000302010007' + '0a01065f737461727400000a040102000b', 'hex');
    const trap = Buffer.from('0061736d010000000104016000000302010007' + '0a01065f737461727400000a05010300000b', 'hex'); // unreachable
    const one = await all.page('functions', phone);
    one.expected = /422|400|409/;
    const upload = async (buffer) => {
      await one.getByLabel('Module (required)').setInputFiles({ name: 'a.wasm', mimeType: 'application/wasm', buffer });
      await one.getByRole('button', { name: 'Upload the module' }).click();
    };
    await one.getByRole('button', { name: 'Upload a module' }).click();
    await one.getByLabel('Name (required)').fill('crunch');
    await upload(good);
    await one.getByRole('cell', { name: 'crunch', exact: true }).waitFor();
    await one.getByRole('button', { name: 'New version of crunch' }).click();
    await upload(good.subarray(0, 20));
    await one.getByRole('alert').getByText('INVALID_MODULE').waitFor();
    await one.harmless();
    await upload(trap);
    await one.getByRole('dialog').waitFor({ state: 'detached' });
    await one.getByRole('cell', { name: '2', exact: true }).waitFor();
    const { id } = await api('POST', '/jobs', { name: 'crunches', trigger: 'manual', retryConfig: { maxRetries: 0 }, jobType: 'wasm', config: { function: 'crunch' } });
    const { id: run } = await api('POST', `/jobs/${id}/trigger`, {});
    await one.goto(`${all.installation.base}/console/executions/${run}`);
    await one.getByText(/failed with/).waitFor();
    await one.getByLabel('Error message').waitFor();
    await one.goto(`${all.installation.base}/console/functions`);
    await one.getByRole('button', { name: 'Delete crunch' }).click();
    await one.getByRole('button', { name: 'Delete this function' }).click();
    await one.getByRole('dialog').getByRole('alert').waitFor(); // a job runs it
  });

  test('a notification whose target does not answer shows each attempt and the reason, and is sent again once it does', async () => {
    const one = await all.page('notifications', phone);
    await one.getByText('There are no notifications yet.').waitFor();
    const { id } = await api('POST', '/notifications', { name: 'told', kind: 'webhook', url: 'https://nothing.invalid/', events: ['job.failed'] });
    await api('POST', `/notifications/${id}/test`);
    await one.goto(`${all.installation.base}/console/notifications/${id}`);
    const deliveries = one.getByRole('region', { name: 'Deliveries' });
    await deliveries.locator('.bad, .status.good').first().waitFor();
    await one.harmless();
    const stored = await api('GET', `/notifications/${id}`);
    await api('PUT', `/notifications/${id}`, { name: stored.name, kind: stored.kind, events: stored.events, url: all.installation.tokens.ECHO });
    await one.reload();
    await deliveries.getByRole('button', { name: /^Send again/ }).first().click();
    await deliveries.getByText('HTTP 200').first().waitFor();
    await deliveries.locator('summary').first().click();
    await deliveries.getByRole('region', { name: 'Events as JSON' }).first().waitFor();
    await one.goto(`${all.installation.base}/console/notifications/${id}?status=delivered`);
    await deliveries.getByText('delivered').first().waitFor();
  });

  test('workers and queues: what runs and what waits, lane by lane, as it changes', async () => {
    const one = await all.page('workers', phone);
    const lane = (name) => one.getByRole('region', { name: 'Lanes' }).getByRole('row').filter({ has: one.getByRole('cell', { name, exact: true }) });
    await lane('high').waitFor();
    const { id } = await api('POST', '/jobs', { name: 'urgent', priority: 9, trigger: 'manual', ...sleeper(600_000) });
    await api('POST', `/jobs/${id}/trigger`, {});
    await until(async () => (await lane('high').getByRole('cell').nth(1).textContent()) === '1', 'the lane shows the running one');
    await one.getByRole('region', { name: 'Workers' }).getByRole('row').nth(1).waitFor();
    await one.harmless();
    await api('DELETE', `/jobs/${id}`);
    await until(async () => (await lane('high').getByRole('cell').nth(1).textContent()) === '0', 'the lane is empty again');
  });

  test('a limit that is nearly used up says so, and one that is says what may not be made any more', async () => {
    const { installation } = all;
    const tenant = await installation.platform.api('GET', `/tenants/${installation.id}`);
    await installation.platform.api('PUT', `/tenants/${installation.id}`, { name: tenant.name, limits: { ...tenant.limits, maxCalendars: tenant.usage.calendars + 1, maxSecrets: 0 } });
    const one = await all.page('tenant', phone);
    one.expected = /4\d\d/;
    const row = (name) => one.getByRole('region', { name: 'Limits' }).getByRole('row').filter({ hasText: name });
    await row('Secrets').getByText('used up').waitFor();
    await one.harmless();
    await one.goto(`${installation.base}/console/calendars`);
    await one.settled();
    await api('POST', '/calendars', { name: 'the last one', days: [] });
    await one.getByRole('button', { name: 'New calendar' }).click();
    await one.getByLabel('Name (required)').fill('one too many');
    await one.getByRole('button', { name: 'Create the calendar' }).click();
    await one.getByRole('alert').getByText(/calendars/).waitFor();
    assert.equal(await one.getByLabel('Name (required)').inputValue(), 'one too many');
    await one.goto(`${installation.base}/console/tenant`);
    await row('Calendars').getByText('✕ used up').waitFor();
    await installation.platform.api('PUT', `/tenants/${installation.id}`, { name: tenant.name, limits: tenant.limits });
  });

  test('the audit log: filters stand in the address, what differs opens, and hostile people are text', async () => {
    const { installation } = all;
    const { id } = await api('POST', '/jobs', { name: 'audited', cronExpression: '0 0 9 * * *', ...sleeper() }, installation.token('admin', hostile.markup));
    await api('PUT', `/jobs/${id}`, { name: 'audited again', cronExpression: '0 0 9 * * *', ...sleeper() }, installation.token('admin', hostile.bidi));
    const one = await all.page(`audit?object=${id}`, phone);
    const rows = one.getByRole('region', { name: 'Changes' }).getByRole('row');
    await rows.nth(2).waitFor();
    assert.equal(await rows.count(), 3);
    assert.equal(await one.getByLabel('Id of the thing').inputValue(), id);
    await rows.nth(1).locator('summary').click();
    await rows.nth(1).getByLabel('After').getByText('audited again').waitFor();
    await one.harmless();
    await one.getByLabel('By').fill(hostile.markup);
    await one.getByRole('button', { name: 'Show' }).click();
    await until(async () => (await rows.count()) === 2, 'one change is left');
    await one.reload();
    await rows.nth(1).getByText('createJob').waitFor();
    assert.equal(await one.getByLabel('By').inputValue(), hostile.markup);
    await one.getByLabel('Operation').fill('deleteJob');
    await one.getByRole('button', { name: 'Show' }).click();
    await one.getByText('No change fits.').waitFor();
    await one.goBack();
    await one.goto(`${installation.base}/console/audit?limit=%00&cursor=zzz&actor=`);
    await rows.nth(1).waitFor();
  });

  test('platform settings: values, where they come from and who changed them; not for others', async () => {
    const { installation } = all;
    const one = await all.page('platform', { ...phone, token: installation.tokens.PLATFORM_ADMIN_TOKEN });
    await one.getByRole('region', { name: 'What it depends on' }).getByText('PostgreSQL').first().waitFor();
    await one.getByRole('link', { name: 'Settings' }).press('Enter');
    const settings = one.getByRole('region', { name: 'Settings' });
    await settings.getByText('LOG_LEVEL', { exact: true }).waitFor();
    await settings.getByText('the environment').first().waitFor();
    await one.harmless();
    const admin = await all.page('platform');
    admin.expected = /403/;
    await admin.settled();
    assert.equal(await admin.getByText('LOG_LEVEL').count(), 0);
    assert.equal(await admin.getByRole('navigation', { name: 'Screens' }).getByRole('link', { name: 'Platform' }).count(), 0);
  });

  test('views of monitors are saved, replaced and chosen; what others wrote into the browser’s storage is left out', async () => {
    for (const name of ['backup', 'report']) await api('POST', '/monitors', { name, tags: [name], cronExpression: '0 2 * * *' });
    const one = await all.page('monitors?tag=backup', phone);
    const save = async () => {
      await one.getByRole('button', { name: 'Save this view' }).click();
      await one.getByLabel('Name (required)').fill('mine');
      await one.getByRole('button', { name: 'Save the view' }).click();
      await one.getByRole('button', { name: 'Forget this view' }).waitFor();
    };
    await save();
    await one.goto(`${all.installation.base}/console/monitors?tag=report`);
    await save();
    const kept = await one.evaluate(() => JSON.parse(localStorage.getItem('scheduler.console.views')));
    assert.deepEqual(kept, [{ name: 'mine', screen: '/monitors', search: { tag: 'report' } }]);
    await one.evaluate((mine) => localStorage.setItem('scheduler.console.views', JSON.stringify([...mine, null, { name: 7 }, { name: 'x', screen: 'https://evil.example', search: {} }, { name: 'y', screen: '/jobs', search: { status: { $ne: 1 }, q: 'kept' } }])), kept);
    await one.goto(`${all.installation.base}/console/monitors`);
    await one.getByLabel('Saved view').selectOption({ label: 'mine' });
    await one.waitForURL(/tag=report/);
    await one.getByRole('region', { name: 'Monitors' }).getByRole('link', { name: 'report' }).waitFor();
    assert.equal(await one.getByRole('region', { name: 'Monitors' }).getByRole('link', { name: 'backup' }).count(), 0);
    assert.deepEqual(await one.getByLabel('Saved view').locator('option').allTextContents(), ['Not saved', 'mine']);
    await one.harmless();
    await one.evaluate(() => localStorage.setItem('scheduler.console.views', '{broken'));
    await one.reload();
    await one.getByRole('region', { name: 'Monitors' }).waitFor();
    const viewer = await all.page('monitors?tag=backup', { token: all.installation.tokens.VIEWER_TOKEN });
    await viewer.getByRole('button', { name: 'Save this view' }).waitFor(); // a view is the reader’s own
  });
});
