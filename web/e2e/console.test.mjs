import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import { tenancy, openBrowser, without } from './installation.mjs';

const sleeper = { jobType: 'function', config: { modulePath: 'builtin', functionName: 'sleep', parameters: { durationMs: 10 } } };

/** Names that people, importers and attackers make. NUL is refused by the API. */
const hostile = [
  '<img src=x onerror=alert(1)><script>document.title="run"</script>',
  'right-to-left \u202Eevil\u202C \u2066mark\u2069',
  'w'.repeat(200),
  '"quoted\' & {{job.name}} ${1+1} `x`',
];

describe('console', { skip: without }, () => {
  let installation;
  let browser;
  const opened = [];
  const page = async (options) => {
    const one = await browser.page(options);
    opened.push(one);
    return one;
  };
  before(async () => {
    installation = await tenancy();
    browser = await openBrowser();
    const { api } = installation;
    for (const [i, name] of hostile.entries()) await api('POST', '/jobs', { name, description: name, tags: ['hostile', `t${i}`, '<b>tag</b>'], trigger: 'manual', ...sleeper });
    for (let i = 0; i < 150; i++) await api('POST', '/jobs', { name: `job ${String(i).padStart(3, '0')}`, tags: [i % 2 ? 'odd' : 'even'], cronExpression: '0 0 9 * * 1-5', timezone: 'Asia/Shanghai', ...sleeper });
  }, { timeout: 180_000 });
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

  test('one click signs in once', async () => {
    const one = await page();
    await one.goto(installation.link);
    await one.getByRole('navigation', { name: 'Screens' }).getByRole('link', { name: 'Jobs' }).waitFor();
    assert.equal(new URL(one.url()).hash, '', 'the code stays in the address');
    await one.reload();
    await one.getByRole('navigation', { name: 'Screens' }).waitFor();
    assert.equal(await one.evaluate(() => JSON.stringify(localStorage) + JSON.stringify(sessionStorage) + document.cookie).then((all) => all.includes('eyJ')), false, 'a script can read the token where it is kept');
    await one.getByRole('button', { name: 'Sign out' }).click();
    await one.getByLabel('Token or API key').waitFor();
    one.expected = /401/;
    await one.goto('about:blank');
    await one.goto(installation.link);
    await one.getByText('this sign-in was already used').waitFor();
  });

  test('a bad token is refused with the reason of the API, a viewer sees no verb', async () => {
    const one = await page();
    one.expected = /401/;
    await one.goto(`${installation.base}/console/jobs?status=active`);
    await one.getByLabel('Token or API key').fill('nonsense');
    await one.getByRole('button', { name: 'Sign in' }).click();
    await one.getByText('not a well-formed JWT').waitFor();
    await one.getByLabel('Token or API key').fill(installation.tokens.VIEWER_TOKEN);
    await one.keyboard.press('Enter');
    await one.getByRole('table', { name: 'Jobs' }).waitFor();
    assert.match(one.url(), /status=/, 'the deep link is lost');
    assert.equal(await one.getByRole('link', { name: 'New job' }).count(), 0);
    assert.equal(await one.getByLabel('All that match').count(), 0);
  });

  test('jobs: pages, search, filters, and the address that restores them', async () => {
    const one = await page();
    await one.signIn(installation, installation.tokens.ADMIN_TOKEN, 'jobs?tag=even');
    const rows = one.getByRole('table', { name: 'Jobs' }).getByRole('row');
    await one.getByText('75 jobs', { exact: true }).waitFor();
    await one.getByLabel('Name or description').fill('job 01');
    await one.getByText('5 jobs', { exact: true }).waitFor();
    assert.equal(await rows.count(), 6);
    await one.reload();
    await one.getByText('5 jobs', { exact: true }).waitFor();
    assert.equal(await one.getByLabel('Name or description').inputValue(), 'job 01');
    await one.goto(`${installation.base}/console/jobs?sort=name`);
    await one.getByText('100 of 154 jobs').waitFor();
    assert.ok(await rows.count() < 60, 'rows out of sight exist');
    await one.getByRole('table', { name: 'Jobs' }).evaluate((list) => { list.scrollTop = list.scrollHeight; });
    await one.getByText('154 jobs', { exact: true }).waitFor();
    await one.goto(`${installation.base}/console/jobs?q=nothing+has+this+name`);
    await one.getByRole('button', { name: 'Remove the filters' }).click();
    await one.getByText('of 154 jobs').waitFor();
  });

  test('jobs: a verb for all that match says to how many first, by keyboard', async () => {
    const one = await page();
    await one.signIn(installation, installation.tokens.ADMIN_TOKEN, 'jobs?tag=odd&q=job+0');
    await one.getByText('50 jobs', { exact: true }).waitFor();
    await one.getByLabel('All that match').focus();
    await one.keyboard.press('Space');
    await one.getByRole('button', { name: 'Pause', exact: true }).focus();
    await one.keyboard.press('Enter');
    const go = one.getByRole('button', { name: 'Pause 50 jobs' });
    await go.waitFor();
    assert.equal((await installation.api('GET', '/jobs?status=paused')).items.length, 0, 'the dry run changed something');
    await go.focus();
    await one.keyboard.press('Enter');
    await one.getByRole('heading', { name: '50 jobs paused' }).waitFor();
    await one.keyboard.press('Escape');
    await one.getByLabel('Status').selectOption('paused');
    await one.getByText('50 jobs', { exact: true }).waitFor();
    await one.getByLabel('All that match').check();
    await one.getByRole('button', { name: 'Resume' }).click();
    await one.getByRole('button', { name: 'Resume 50 jobs' }).click();
    await one.getByRole('heading', { name: '50 jobs resumed' }).waitFor();
  });

  test('hostile names are text', async () => {
    const one = await page({ viewport: { width: 360, height: 740 } });
    one.on('dialog', () => assert.fail('a name was run'));
    await one.signIn(installation, installation.tokens.ADMIN_TOKEN, 'jobs?tag=hostile');
    await one.getByText('4 jobs', { exact: true }).waitFor();
    for (const name of hostile) assert.equal(await one.getByRole('link', { name, exact: true }).count(), 1, name);
    assert.equal(await one.locator('main img, main script').count(), 0);
    assert.ok(await one.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'the page is wider than the screen');
  });

  test('a first job: create it, see it fail, find out why, mend it, run it again, delete it', async () => {
    const one = await page();
    one.expected = /400/; // the check of a definition that is not yet right
    await one.signIn(installation, installation.tokens.DEVELOPER_TOKEN, 'jobs');
    await one.getByRole('link', { name: 'New job' }).click();
    await one.getByLabel('Name (required)').fill('mended');
    await one.getByLabel('Cron expression (required)').fill('0 0 61 * * *');
    await one.locator('.field.wrong .error').filter({ hasText: '61' }).waitFor();
    await one.getByLabel('Cron expression (required)').fill('0 30 2 * * 1-5');
    await one.getByText(/^At 02:30, /).waitFor();
    await one.getByLabel('Zone').fill('Europe/Berlin');
    await one.getByLabel('URL (required)').fill(`${installation.tokens.ECHO}/`);
    await one.getByLabel('Expected status code').fill('418');
    await one.getByText('Retries, limits').click();
    await one.getByLabel('Max retries').fill('0');
    await one.getByRole('region', { name: 'When it runs' }).getByText('02:30:00').first().waitFor();
    await one.getByRole('button', { name: 'Create the job' }).click();
    await one.getByRole('heading', { name: 'mended', level: 1 }).waitFor();
    const next = one.getByRole('region', { name: 'Next runs' }).getByRole('listitem');
    await next.nth(9).waitFor();
    assert.equal(await next.count(), 10);

    await one.getByRole('button', { name: 'Run now' }).click();
    await one.getByRole('button', { name: 'Run it now' }).click();
    await one.getByText(/failed with/).waitFor();
    await one.getByLabel('Error message').getByText('200').waitFor();

    await one.getByRole('link', { name: 'mended' }).click();
    await one.getByRole('link', { name: 'Edit' }).click();
    await one.getByRole('button', { name: 'As JSON' }).click();
    const json = one.getByLabel('Definition as JSON');
    await json.fill((await json.inputValue()).replace('418', '200'));
    await one.getByRole('button', { name: 'Save as a new version' }).click();
    await one.getByRole('button', { name: 'Run now' }).click();
    await one.getByRole('button', { name: 'Run it now' }).click();
    await one.getByText(/completed in/).waitFor();
    await one.getByRole('button', { name: 'Run it again' }).click();
    await one.getByText('Repeats').waitFor();
    await one.getByText(/completed in/).waitFor();

    await one.getByRole('link', { name: 'mended' }).click();
    await one.getByRole('link', { name: 'Versions' }).click();
    await one.getByRole('link', { name: 'Compare version 1' }).waitFor();
    assert.deepEqual(await one.locator('.tabs [aria-current]').allTextContents(), ['Versions']);
    await one.getByRole('link', { name: 'Compare version 1' }).click();
    await one.getByRole('region', { name: 'Differences' }).getByText('config.expectedStatusCode').waitFor();
    await one.getByRole('button', { name: 'Bring version 1 back' }).click();
    await one.getByText('(brought back 1)').waitFor();
    await one.getByRole('link', { name: 'Runs' }).click();
    await one.getByText('3 executions').waitFor();
    await one.getByRole('button', { name: 'Delete' }).click();
    await one.getByRole('button', { name: 'Delete this job' }).click();
    await one.getByRole('heading', { name: 'Jobs', level: 1 }).waitFor();
  });

  test('a job is paused with a reason, resumed, stopped, and shown on three clocks', async () => {
    const { id } = await installation.api('POST', '/jobs', { name: 'clocks', cronExpression: '0 30 2 * * *', timezone: 'America/New_York', ...sleeper });
    const one = await page();
    await one.signIn(installation, installation.tokens.OPERATOR_TOKEN, `jobs/${id}`);
    const next = one.getByRole('region', { name: 'Next runs' });
    await next.getByText(/\d CET|\d CEST/).first().waitFor();
    await one.getByLabel('Whose clock').selectOption('job');
    await next.getByText('02:30:00').first().waitFor();
    await one.getByLabel('Whose clock').selectOption('utc');
    await next.getByText(/UTC/).first().waitFor();
    await one.getByRole('button', { name: 'Pause' }).click();
    await one.getByLabel('Reason').fill('<b>moving</b>');
    await one.getByRole('button', { name: 'Pause this job' }).click();
    await one.getByText('<b>moving</b>').waitFor();
    await one.getByRole('button', { name: 'Resume' }).click();
    await one.getByRole('button', { name: 'Resume this job' }).click();
    await one.getByRole('button', { name: 'Stop' }).click();
    await one.keyboard.press('Escape');
    assert.equal((await installation.api('GET', `/jobs/${id}`)).status, 'active', 'Escape stopped the job');
    await one.getByRole('button', { name: 'Stop' }).click();
    await one.getByRole('button', { name: 'Stop this job' }).click();
    await one.getByText('inactive').first().waitFor();
  });

  test('executions: the list is live, filtered by its address; what runs can be cancelled', async () => {
    const { id } = await installation.api('POST', '/jobs', { name: 'long', trigger: 'manual', jobType: 'function', config: { modulePath: 'builtin', functionName: 'sleep', parameters: { durationMs: 600000 } } });
    const one = await page();
    await one.signIn(installation, installation.tokens.ADMIN_TOKEN, `executions?job=${id}`);
    await one.getByText('No execution fits').waitFor();
    await installation.api('POST', `/jobs/${id}/trigger`, {});
    await one.getByRole('cell', { name: 'running' }).waitFor();
    await one.getByRole('table', { name: 'Executions' }).getByRole('link', { name: 'long' }).click();
    await one.getByRole('button', { name: 'Cancel it' }).click();
    await one.getByLabel('Reason').fill('enough');
    await one.getByRole('button', { name: 'Cancel this execution' }).click();
    await one.getByText('Cancelled by demo: enough.').waitFor();
    await one.goto(`${installation.base}/console/executions?job=${id}&status=completed`);
    await one.getByText('No execution fits').waitFor();
    await one.getByRole('button', { name: 'Remove the filters' }).click();
    await one.getByRole('table', { name: 'Executions' }).waitFor();
  });

  test('overview: says in words whether all is on time, and what failed', async () => {
    const one = await page();
    await one.signIn(installation, installation.tokens.VIEWER_TOKEN);
    await one.getByText('On time').waitFor();
    await one.getByRole('link', { name: /active jobs/ }).click();
    await one.getByRole('heading', { name: 'Jobs', level: 1 }).waitFor();
  });

  test('a token that ends keeps the screen and what was typed', async () => {
    const one = await page();
    one.expected = /401/;
    await one.signIn(installation, installation.tokens.ADMIN_TOKEN, 'jobs/new');
    await one.getByLabel('Name (required)').fill('kept');
    await one.route('**/api/**', (route) => route.fulfill({ status: 401, contentType: 'application/json', body: JSON.stringify({ error: { code: 'UNAUTHORIZED', message: 'the token has expired', details: [] } }) }));
    await one.getByLabel('Zone').fill('UTC');
    await one.getByRole('heading', { name: 'Sign in again' }).waitFor();
    await one.unroute('**/api/**');
    await one.getByLabel('Token or API key').fill(installation.tokens.ADMIN_TOKEN);
    await one.keyboard.press('Enter');
    await one.getByRole('heading', { name: 'Sign in again' }).waitFor({ state: 'hidden' });
    assert.equal(await one.getByLabel('Name (required)').inputValue(), 'kept');
  });

  test('secrets are kept and never shown; an API key is shown once; the audit log has it all', async () => {
    const one = await page();
    await one.signIn(installation, installation.tokens.ADMIN_TOKEN, 'secrets');
    await one.getByText('There are no secrets yet.').waitFor();
    await one.getByRole('button', { name: 'New secret' }).click();
    one.expected = /400/;
    await one.getByLabel('Name (required)').fill('-bad-');
    await one.getByLabel('Value (required)').fill('hunter2-hunter2');
    await one.getByRole('button', { name: 'Keep the secret' }).click();
    await one.getByRole('alert').waitFor(); // the API's reason; what was typed stays
    await one.getByLabel('Name (required)').fill('billing');
    await one.getByRole('button', { name: 'Keep the secret' }).click();
    await one.getByRole('cell', { name: 'billing', exact: true }).waitFor();
    assert.equal(await one.content().then((html) => html.includes('hunter2')), false, 'the value is in the page');
    await one.getByRole('button', { name: 'Replace billing' }).click();
    await one.getByLabel('Value (required)').fill('another-value');
    await one.getByRole('button', { name: 'Replace the value' }).click();
    await one.getByRole('cell', { name: '2', exact: true }).waitFor();

    await one.getByRole('link', { name: 'API keys' }).click();
    await one.getByRole('button', { name: 'New API key' }).click();
    await one.getByLabel('Name (required)').fill('deployment');
    await one.getByLabel('jobs:read').check();
    await one.getByRole('button', { name: 'Make the key' }).click();
    const key = await one.getByRole('region', { name: 'The key' }).textContent();
    await one.keyboard.press('Escape');
    await one.getByRole('cell', { name: 'deployment', exact: true }).waitFor();
    assert.equal(await one.content().then((html) => html.includes(key)), false, 'the key is still in the page');
    assert.ok((await installation.api('GET', '/jobs', undefined, key)).items.length > 0, 'the key does not work');

    await one.getByRole('link', { name: 'Audit log' }).click();
    await one.getByRole('cell', { name: 'createApiKey' }).first().waitFor();
    await one.getByLabel('Operation').fill('putSecret');
    await one.getByRole('button', { name: 'Show' }).click();
    await one.getByRole('row').filter({ hasText: 'billing' }).nth(1).waitFor();
    assert.match(one.url(), /action=putSecret/);

    const narrow = await page();
    narrow.expected = /401/; // it asks for the jobs again, and by then its key may be deleted
    await narrow.signIn(installation, key, 'jobs');
    assert.deepEqual(await narrow.getByRole('navigation', { name: 'Screens' }).getByRole('link').allTextContents(), ['Jobs', 'Run calendar', 'Calendars']);
    await one.goto(`${installation.base}/console/keys`);
    await one.getByRole('button', { name: 'Delete deployment' }).click();
    await one.getByRole('button', { name: 'Delete this API key' }).click();
    await one.getByText('There are no API keys yet.').waitFor();
  });

  test('calendars are written as lines of days', async () => {
    const one = await page();
    await one.signIn(installation, installation.tokens.DEVELOPER_TOKEN, 'calendars');
    await one.getByRole('button', { name: 'New calendar' }).click();
    await one.getByLabel('Name (required)').fill('holidays');
    await one.getByLabel('Zone').fill('Europe/Berlin');
    await one.getByLabel('Days, one a line').fill('2026-12-24..2026-12-26 yearly Christmas time\n2027-01-01');
    await one.getByRole('button', { name: 'Create the calendar' }).click();
    await one.getByRole('cell', { name: 'holidays', exact: true }).waitFor();
    await one.getByRole('button', { name: 'Edit holidays' }).click();
    assert.equal(await one.getByLabel('Days, one a line').inputValue(), '2026-12-24..2026-12-26 yearly Christmas time\n2027-01-01');
    await one.getByLabel('Days, one a line').fill('2026-12-24..2026-12-26 yearly Christmas time');
    await one.getByRole('button', { name: 'Save the calendar' }).click();
    await one.getByRole('cell', { name: '1', exact: true }).waitFor();
    await one.getByRole('button', { name: 'Delete holidays' }).click();
    await one.getByRole('button', { name: 'Delete this calendar' }).click();
    await one.getByText('There are no calendars yet.').waitFor();
  });

  test('output is shown while it is written, as text', async () => {
    const { id } = await installation.api('POST', '/jobs', { name: 'writes', trigger: 'manual', jobType: 'javascript', retryConfig: { maxRetries: 0 }, config: { source: "export default async () => { for (let i = 1; i <= 7; i++) console.log(`line ${i}`); console.log('<script>alert(1)</script>'); }" } });
    const { id: run } = await installation.api('POST', `/jobs/${id}/trigger`, {});
    const one = await page();
    await one.signIn(installation, installation.tokens.VIEWER_TOKEN, `executions/${run}`);
    const lines = one.getByRole('region', { name: 'Lines' });
    await lines.getByText('line 7').waitFor();
    await lines.getByText('<script>alert(1)</script>').waitFor();
    await one.getByLabel('Lines with').fill('LINE 1');
    await one.getByText('1 line', { exact: true }).waitFor();
  });

  test('workers and queues', async () => {
    const one = await page();
    await one.signIn(installation, installation.tokens.VIEWER_TOKEN, 'workers');
    await one.getByRole('region', { name: 'Lanes' }).getByRole('cell', { name: 'normal' }).waitFor();
    await one.getByRole('region', { name: 'Workers' }).getByText('http').first().waitFor();
  });
});
