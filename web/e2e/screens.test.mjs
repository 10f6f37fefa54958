// The screens beside jobs and executions, on an installation with a history and with the
// names, errors and outputs that an attacker would choose.

import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import { seeded, openBrowser, without } from './installation.mjs';

const script = '<img src=x onerror=alert(1)><script>document.title="run"</script>';
const hostile = [script, 'right-to-left \u202Eevil\u202C', 'w'.repeat(200)];

describe('screens', { skip: without }, () => {
  let installation;
  let browser;
  let failing;
  const opened = [];
  const page = async (path, options, token = 'ADMIN_TOKEN') => {
    const one = await browser.page(options);
    one.on('dialog', () => assert.fail('a text was run'));
    opened.push(one);
    await one.signIn(installation, installation.tokens[token], path);
    return one;
  };
  before(async () => {
    installation = await seeded();
    browser = await openBrowser();
    const { api, tokens } = installation;
    const { id } = await api('POST', '/jobs', { name: script, trigger: 'manual', retryConfig: { maxRetries: 0 }, maxConcurrent: 3, jobType: 'http', config: { url: `${tokens.ECHO}/`, expectedStatusCode: 418 } });
    const { id: other } = await api('POST', '/jobs', { name: hostile[2], trigger: 'manual', retryConfig: { maxRetries: 0 }, jobType: 'javascript', config: { source: `export default () => { throw new Error(${JSON.stringify(script)}) }` } });
    const { id: third } = await api('POST', '/jobs', { name: 'third', trigger: 'manual', retryConfig: { maxRetries: 0 }, jobType: 'javascript', config: { source: 'export default () => { throw new Error("another error") }' } });
    for (const job of [third, other, id, id]) failing = (await api('POST', `/jobs/${job}/trigger`, {})).id; // dead letters some 20 seconds after they fail
  }, { timeout: 240_000 });
  after(async () => {
    await browser?.close();
    await installation?.stop();
  });
  afterEach(async () => {
    for (const one of opened.splice(0)) {
      await one.context().close();
      assert.deepEqual(one.errors, [], 'the browser reported errors');
    }
  });
  /** The page is text alone, and no wider than its screen. */
  const harmless = async (one) => {
    assert.equal(await one.locator('main img, main script, dialog img, dialog script').count(), 0, 'a text became markup');
    assert.ok(await one.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'the page is wider than the screen');
  };

  test('a seeded installation: jobs, a history that statistics know, and output that is text', async () => {
    const one = await page('', { viewport: { width: 360, height: 740 } });
    await one.getByText(/[\d,]+ completed, [\d,]+ failed, [\d,]+ skipped/).waitFor();
    await one.goto(`${installation.base}/console/jobs?tag=hostile`);
    await one.getByRole('link', { name: script, exact: true }).first().waitFor();
    await harmless(one);
    await one.goto(`${installation.base}/console/executions?status=failed`);
    await one.getByRole('table', { name: 'Executions' }).getByRole('link').first().waitFor();
    await harmless(one);
    const { items } = await installation.api('GET', `/executions?status=completed&limit=1&to=${installation.before}`);
    await one.goto(`${installation.base}/console/executions/${items[0].id}`);
    await one.getByRole('region', { name: 'Lines' }).getByText('</pre><script>alert(2)</script>').waitFor();
    await harmless(one);
  });

  test('notifications: make one, test it, see the delivery, send it again, turn it off and on, delete it', async () => {
    const one = await page('notifications');
    one.expected = /400/;
    await one.getByRole('button', { name: 'New notification' }).click();
    await one.getByLabel('Name (required)').fill(script);
    await one.getByLabel('URL (required)').fill('not a URL');
    await one.getByRole('button', { name: 'Create the notification' }).click();
    await one.getByRole('alert').waitFor(); // the API's reason; what was typed stays
    await one.getByLabel('URL (required)').fill(installation.tokens.ECHO);
    await one.getByRole('button', { name: 'Create the notification' }).click();
    const secret = await one.getByRole('region', { name: 'The secret' }).textContent();
    await one.keyboard.press('Escape');
    await one.getByRole('link', { name: script }).click();
    assert.equal(await one.content().then((html) => html.includes(secret)), false, 'the secret is still in the page');
    await one.getByText('Nothing has been told yet.').waitFor();
    await one.getByRole('button', { name: 'Send a test' }).click();
    const deliveries = one.getByRole('region', { name: 'Deliveries' });
    await deliveries.getByText('delivered').waitFor();
    await deliveries.getByText('HTTP 200').waitFor();
    await deliveries.getByRole('button', { name: 'Send again' }).click();
    await one.getByLabel('Status').selectOption('failed');
    await one.getByText('No delivery has this status.').waitFor();
    assert.match(one.url(), /status=failed/);
    await one.getByRole('button', { name: 'Turn off' }).click();
    await one.getByRole('button', { name: 'Turn on' }).waitFor();
    assert.equal(await one.getByRole('button', { name: 'Send a test' }).count(), 0);
    await one.getByRole('button', { name: 'Turn on' }).click();
    await one.getByRole('button', { name: 'Edit' }).click();
    assert.equal(await one.getByLabel(/a job fails that did not fail before/).isChecked(), true);
    await one.getByLabel(/any execution fails for good/).check();
    await one.getByRole('button', { name: 'Save the notification' }).click();
    await one.getByText('job.failed, job.recovered, execution.failed').waitFor();
    await one.getByRole('button', { name: 'New secret' }).click();
    await one.getByRole('button', { name: 'Make a new secret' }).click();
    await one.getByRole('region', { name: 'The secret' }).waitFor();
    await one.keyboard.press('Escape');
    await one.setViewportSize({ width: 360, height: 740 });
    await harmless(one);
    await one.getByRole('button', { name: 'Delete' }).click();
    await one.getByRole('button', { name: 'Delete this notification' }).click();
    await one.getByRole('button', { name: 'New notification' }).waitFor();
    await one.getByRole('link', { name: script }).waitFor({ state: 'detached' }); // other files' notifications may be there
  });

  test('a backfill says how much it is first, shows how far it is, and is cancelled', async () => {
    const { id } = await installation.api('POST', '/jobs', { name: hostile[1], cronExpression: '0 0 * * * *', jobType: 'function', config: { modulePath: 'builtin', functionName: 'sleep', parameters: { durationMs: 10 } } });
    const one = await page(`jobs/${id}?tab=backfills`);
    await one.getByText('There are no backfills of this job.').waitFor();
    await one.getByRole('button', { name: 'Run past times again' }).click();
    const day = new Date(Date.now() - 3 * 86_400_000).toISOString().slice(0, 10);
    await one.getByLabel('From (my time)').fill(`${day}T00:00`);
    await one.getByLabel('To (my time)').fill(`${day}T06:00`);
    await one.getByLabel('Executions a minute').fill('1');
    await one.getByRole('button', { name: 'How many are these?' }).click();
    await one.getByText('6 executions, the first of').waitFor();
    await one.getByRole('button', { name: 'Make 6 executions' }).click();
    const row = one.getByRole('region', { name: 'Backfills' }).getByRole('row').nth(1);
    await row.getByText('1 of 6 executions made').waitFor();
    await row.getByText('completed').waitFor();
    await one.getByRole('button', { name: 'Cancel the backfill' }).click();
    await one.getByLabel('Reason').fill('the wrong day');
    await one.getByRole('button', { name: 'Cancel this backfill' }).click();
    await row.getByText('cancelled').waitFor();
    await one.setViewportSize({ width: 360, height: 740 });
    await harmless(one);
  });

  test('functions: a module is uploaded, refused with the reason where it is none, and deleted', async () => {
    const module = Buffer.from('0061736d010000000104016000000302010007' + '0a01065f737461727400000a040102000b', 'hex');
    const one = await page('functions');
    one.expected = /422/;
    await one.getByText('There are no functions yet.').waitFor();
    await one.getByRole('button', { name: 'Upload a module' }).click();
    await one.getByLabel('Name (required)').fill('resize-images');
    await one.getByLabel('Module (required)').setInputFiles({ name: 'a.wasm', mimeType: 'application/wasm', buffer: Buffer.from('<script>alert(1)</script>') });
    await one.getByRole('button', { name: 'Upload the module' }).click();
    await one.getByText('INVALID_MODULE').waitFor();
    await one.getByLabel('Module (required)').setInputFiles({ name: 'a.wasm', mimeType: 'application/wasm', buffer: module });
    await one.getByRole('button', { name: 'Upload the module' }).click();
    await one.getByRole('cell', { name: 'resize-images', exact: true }).waitFor();
    await one.getByRole('button', { name: 'Versions of resize-images' }).click();
    await one.getByRole('region', { name: 'Versions' }).getByRole('cell', { name: /^[0-9a-f]{64}$/ }).waitFor();
    await one.keyboard.press('Escape');
    await one.getByRole('button', { name: 'Delete resize-images' }).click();
    await one.getByRole('button', { name: 'Delete this function' }).click();
    await one.getByText('There are no functions yet.').waitFor();
  });

  test('limits and use', async () => {
    const one = await page('tenant');
    const row = one.getByRole('region', { name: 'Limits' }).getByRole('row').filter({ hasText: /^Jobs/ });
    assert.match(await row.textContent(), /30\d/);
  });

  test('the palette reaches screens, jobs, ids and actions from the keyboard', async () => {
    const one = await page('audit');
    await one.getByRole('heading', { name: 'Audit log' }).waitFor();
    const open = async (typed) => {
      await one.keyboard.press('Control+k');
      await one.getByRole('combobox', { name: 'What to do' }).waitFor();
      await one.keyboard.type(typed);
    };
    await open('use');
    await one.getByRole('option', { name: 'Limits and use screen', selected: true }).waitFor();
    await one.keyboard.press('Enter');
    await one.getByRole('heading', { name: 'Limits and use', level: 1 }).waitFor();
    await open('stock sync, emea');
    await one.getByRole('option', { name: /stock sync, emea .* job/, selected: true }).waitFor();
    await harmless(one);
    await one.keyboard.press('Enter');
    await one.getByRole('heading', { name: /stock sync, emea/, level: 1 }).waitFor();
    await open('theme');
    await one.getByRole('option', { name: 'Theme: light view', selected: true }).waitFor();
    await one.keyboard.press('ArrowDown');
    await one.keyboard.press('Enter');
    await one.locator('html[data-theme=dark]').waitFor();
    const { items } = await installation.api('GET', '/executions?limit=1&status=failed');
    await open(items[0].id);
    await one.getByRole('option', { name: /^The execution/, selected: true }).waitFor();
    await one.keyboard.press('Enter');
    await one.getByRole('heading', { name: 'Attempts' }).waitFor();
    await open('nothing has this name');
    await one.getByRole('option', { name: /^Search the jobs for/, selected: true }).waitFor();
    await one.keyboard.press('Escape');
    await one.getByRole('combobox', { name: 'What to do' }).waitFor({ state: 'detached' });
    const viewer = await page('jobs', {}, 'VIEWER_TOKEN');
    await viewer.getByRole('button', { name: 'Go to…' }).click();
    await viewer.getByRole('combobox', { name: 'What to do' }).fill('new job');
    await viewer.getByRole('option', { name: /^Search the jobs for/ }).waitFor();
    assert.equal(await viewer.getByRole('option', { name: 'New job action' }).count(), 0);
  });

  test('an execution says what its time went to', async () => {
    const one = await page(`executions/${failing}`, {}, 'VIEWER_TOKEN');
    await one.getByText('What its time went to').click();
    await one.getByRole('region', { name: 'Timeline' }).getByText(/^ran/).waitFor();
    await harmless(one);
  });

  test('a job’s runs are shown as bars', async () => {
    const { items: [job] } = await installation.api('GET', '/jobs?tags=hostile&status=active&limit=1');
    const one = await page(`jobs/${job.id}?tab=runs`);
    const bars = one.getByRole('img', { name: /^The last 30 runs/ });
    await bars.waitFor();
    assert.equal(await bars.locator('title').count(), 30);
    await harmless(one);
  });

  test('dead letters: by error, one by one, discarded, replayed', async () => {
    for (;;) {
      const { items } = await installation.api('GET', '/dead-letters');
      if (items.length === 4) break;
      await new Promise((resolve) => setTimeout(resolve, 500));
    }
    const one = await page('dead-letters');
    const groups = one.getByRole('region', { name: 'Errors' });
    await groups.getByRole('row').nth(3).waitFor();
    await groups.getByRole('link', { name: /^Show 2 dead letters/ }).click();
    const list = one.getByRole('region', { name: 'Dead letters' });
    const rows = list.getByRole('link', { name: script });
    await rows.nth(1).waitFor();
    assert.match(one.url(), /fingerprint=/);
    await list.getByRole('button', { name: /^Discard/ }).first().click();
    await rows.nth(1).waitFor({ state: 'detached' });
    await one.goBack();
    await groups.getByRole('button', { name: /^Discard 1/ }).nth(2).waitFor();
    await one.setViewportSize({ width: 360, height: 740 });
    await harmless(one);
    await groups.getByRole('row').filter({ hasText: '200' }).getByRole('button', { name: /^Discard/ }).click();
    await one.getByRole('button', { name: 'Discard 1 dead letter', exact: true }).click();
    await groups.getByRole('row').filter({ hasText: '200' }).waitFor({ state: 'detached' });
    await one.getByLabel('Shown').selectOption('list');
    await list.getByRole('button', { name: /^Replay/ }).nth(1).waitFor();
    await one.getByLabel('Shown').selectOption('by what they have in common');
    await groups.getByRole('row').filter({ hasText: script }).getByRole('button', { name: /^Replay 1 dead letter/ }).click();
    await one.getByRole('button', { name: 'Replay 1 dead letter', exact: true }).click();
    const replays = one.getByRole('region', { name: 'Replays' });
    await replays.getByText('halted').waitFor(); // it fails again
    await harmless(one);
    await replays.getByRole('link', { name: 'The first one' }).click();
    await one.getByText('Repeats').waitFor();
    await one.goto(`${installation.base}/console/dead-letters?view=list`);
    await list.getByRole('row').filter({ hasText: 'another error' }).getByRole('button', { name: /^Replay/ }).click();
    await one.getByText('Repeats').waitFor();
    const viewer = await page('dead-letters?error=TIMEOUT', {}, 'VIEWER_TOKEN');
    await viewer.getByText('No dead letter fits these filters.').waitFor();
  });

  test('the next hour on the overview, and the run calendar: what ran and what is due, by keyboard and by address', async () => {
    await installation.api('POST', '/jobs', { name: 'every minute', cronExpression: '0 * * * * *', jobType: 'function', config: { modulePath: 'builtin', functionName: 'sleep', parameters: { durationMs: 1 } } });
    const one = await page('');
    const hour = one.getByRole('region', { name: 'Runs of the next hour by minute' });
    await hour.waitFor();
    assert.equal(await hour.getByRole('cell').count(), 60);
    await one.getByRole('link', { name: 'See the day' }).click();
    await one.getByRole('region', { name: 'The hours of the day' }).waitFor();
    assert.match(one.url(), /run-calendar\?view=day/);
    await one.getByLabel('Shown').selectOption('month');
    const month = one.getByRole('region', { name: 'The days of the month' });
    await month.getByText('finished').first().waitFor(); // seeded
    await month.getByText('due').first().waitFor();
    await month.getByRole('link').first().focus();
    await one.keyboard.press('ArrowDown');
    const focused = await one.evaluate(() => document.activeElement.getAttribute('aria-label'));
    assert.match(focused, /\b8 /, 'an arrow goes to the day a week later');
    const title = await one.getByRole('heading', { level: 2 }).textContent();
    await one.keyboard.press('PageDown');
    await one.waitForFunction((before) => document.querySelector('h2').textContent !== before, title);
    await one.getByLabel('Whose clock').selectOption('utc');
    await one.getByRole('heading', { level: 2, name: /UTC/ }).waitFor();
    await one.goto(`${installation.base}/console/run-calendar?view=week&date=2026-03-29`); // clocks change, and nothing ran yet
    await one.getByText('Nothing runs in this week.').waitFor();
    await one.setViewportSize({ width: 360, height: 740 });
    await one.goto(`${installation.base}/console/run-calendar`);
    await one.getByRole('region', { name: 'The hours of the week' }).waitFor();
    await harmless(one);
  });

  test('the list of jobs shows the last runs of the jobs in sight, with one question', async () => {
    const { items: [run] } = await installation.api('GET', '/executions?status=completed&triggerType=scheduled&limit=1');
    const one = await page('nowhere');
    const asked = [];
    one.on('request', (request) => /recent-runs/.test(request.url()) && asked.push(request.url()));
    await one.goto(`${installation.base}/console/jobs`);
    await one.getByRole('table', { name: 'Jobs' }).getByRole('img', { name: /The last \d+ runs/ }).first().waitFor();
    await one.waitForLoadState('networkidle');
    const questions = new Set(asked); // a screen that is looked at for long repeats its own
    assert.ok(questions.size <= 2 && asked.every((url) => url.split('jobId=').length <= 51), asked.join(' ')); // the second where the screen was measured late
    await one.goto(`${installation.base}/console/jobs/${run.jobId}?tab=runs`);
    await one.getByRole('img', { name: /The last \d+ runs/ }).waitFor();
  });

  test('a view is saved, chosen, found in the palette and forgotten; only its filters are kept', async () => {
    const name = '<img src=x onerror=alert(1)>';
    const one = await page('jobs?status=active&tag=hostile');
    await one.getByRole('button', { name: 'Save this view' }).click();
    await one.getByLabel('Name (required)').fill(name);
    await one.getByRole('button', { name: 'Save the view' }).click();
    const saved = one.getByLabel('Saved view');
    await saved.waitFor();
    assert.equal(await one.evaluate(() => localStorage.getItem('scheduler.console.views')), JSON.stringify([{ name: name, screen: '/jobs', search: { status: 'active', tag: 'hostile' } }]));
    await one.goto(`${installation.base}/console/jobs`);
    await one.getByLabel('Saved view').selectOption({ label: name });
    await one.waitForURL(/tag=hostile/);
    await one.goto(`${installation.base}/console/executions`);
    await one.getByRole('heading', { level: 1 }).waitFor();
    await one.keyboard.press('Control+k');
    await one.getByRole('combobox', { name: 'What to do' }).fill('saved view');
    await one.getByRole('listbox', { name: 'What can be done' }).getByRole('option', { name }).waitFor();
    await one.keyboard.press('Enter');
    await one.waitForURL(/jobs\?.*tag=hostile/);
    await one.getByRole('button', { name: 'Forget this view' }).click();
    await one.getByRole('button', { name: 'Save this view' }).waitFor();
    assert.equal(await one.evaluate(() => localStorage.getItem('scheduler.console.views')), '[]');
    await harmless(one);
  });

  test('platform administrators: a tenant is made, limited, suspended, resumed and deleted; how the installation is', async () => {
    const one = await page('tenants', {}, 'PLATFORM_ADMIN_TOKEN');
    await one.getByRole('button', { name: 'New tenant' }).click();
    await one.getByLabel('Name (required)').fill(script);
    await one.getByRole('button', { name: 'Create the tenant' }).click();
    await one.getByRole('heading', { level: 1, name: script }).waitFor();
    await one.getByRole('button', { name: 'Change' }).click();
    await one.getByLabel('Jobs', { exact: true }).fill('7');
    await one.getByRole('button', { name: 'Save the tenant' }).click();
    await one.getByRole('region', { name: 'Limits' }).getByText('7', { exact: true }).waitFor();
    await one.getByRole('button', { name: 'Suspend' }).click();
    await one.getByLabel('Why').fill(hostile[1]);
    await one.getByRole('button', { name: 'Suspend this tenant' }).click();
    await one.getByRole('button', { name: 'Resume' }).click();
    await one.getByRole('button', { name: 'Resume this tenant' }).click();
    await one.getByRole('button', { name: 'Delete' }).click();
    await one.getByLabel('Its name, to be sure').fill('another');
    await one.getByRole('button', { name: 'Delete this tenant for good' }).click();
    await one.getByText('This is not the name of the tenant: nothing was deleted.').waitFor();
    await one.getByLabel('Its name, to be sure').fill(script);
    await one.getByRole('button', { name: 'Delete this tenant for good' }).click();
    await one.getByText('deleting').first().waitFor();
    assert.equal(await one.getByRole('button', { name: 'Suspend' }).count(), 0);
    await harmless(one);
    await one.goto(`${installation.base}/console/platform`);
    await one.getByRole('region', { name: 'What it depends on' }).getByText('PostgreSQL').first().waitFor();
    await one.getByRole('link', { name: 'Settings' }).press('Enter');
    await one.waitForURL(/tab=settings/);
    await one.getByRole('region', { name: 'Settings' }).getByText('LOG_LEVEL', { exact: true }).waitFor();
    const admin = await page('');
    assert.equal(await admin.getByRole('navigation', { name: 'Screens' }).getByRole('link', { name: 'Tenants' }).count(), 0);
  });
});
