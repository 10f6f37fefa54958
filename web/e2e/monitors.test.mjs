import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tenancy, openBrowser, without } from './installation.mjs';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

describe('monitors', { skip: without }, () => {
  let installation;
  let browser;
  before(async () => {
    installation = await tenancy();
    browser = await openBrowser();
  }, { timeout: 180_000 });
  after(async () => {
    await browser?.close();
    await installation?.stop();
  });

  test('one is made, pinged, goes down with its log, recovers, is changed and deleted', async () => {
    const one = await browser.page({ permissions: ['clipboard-read', 'clipboard-write'] });
    await one.signIn(installation, installation.tokens.ADMIN_TOKEN, 'monitors');
    await one.getByText('There are no monitors yet.').waitFor();
    await one.getByRole('button', { name: 'New monitor' }).click();
    await one.getByLabel('Name (required)').fill('backup');
    await one.getByRole('textbox', { name: /^Cron expression/ }).fill('30 2 * * 1-5');
    await one.getByText('At 02:30, Monday through Friday').waitFor();
    await one.getByRole('combobox', { name: /^Zone/ }).fill('Asia/Kolkata');
    await one.getByRole('spinbutton', { name: /^Start grace/ }).fill('1.5');
    await one.getByLabel('Unit of Start grace').selectOption('hours');
    await one.getByLabel('Tags, one a line').fill('billing\nnightly');
    await one.getByRole('button', { name: 'Create the monitor' }).click();
    await one.getByText('It waits for its first ping').waitFor();
    const { items: [made] } = await installation.api('GET', '/monitors');
    assert.deepEqual([made.name, made.cronExpression, made.timezone, made.intervalSeconds, made.startGraceSeconds, made.completionGraceSeconds, made.tags], ['backup', '30 2 * * 1-5', 'Asia/Kolkata', null, 5400, 3600, ['billing', 'nightly']]);

    const line = await one.getByRole('region', { name: 'A run begins' }).textContent();
    const address = /"(http\S+)\/start"/.exec(line)[1];
    await one.getByRole('button', { name: 'Copy the line: A run begins' }).click();
    await one.getByText('Copied').waitFor();
    assert.equal(await one.evaluate(() => navigator.clipboard.readText()), line);
    assert.match(await one.getByRole('region', { name: /^All of it/ }).textContent(), /^30 2 \* \* 1-5 curl .*\/start"; YOUR-COMMAND; curl .*\/\$\?"$/);
    const ping = async (signal, body) => (await fetch(address + signal, { method: 'POST', body })).status;
    assert.equal(await ping('/start'), 200);
    await one.getByText('A run goes on since').waitFor();
    assert.equal(await ping('/fail', 'copying\n<b>disk full</b>'), 200);
    await one.getByText('A run said that it failed.').waitFor();
    const runs = one.getByRole('region', { name: 'Runs', exact: true });
    await runs.getByRole('row').nth(1).getByText('it said so').waitFor();
    await runs.getByText('<b>disk full</b>').first().click();
    await runs.getByRole('region', { name: 'Log of run 1' }).filter({ hasText: 'copying' }).waitFor();
    assert.equal(await ping(''), 200);
    await one.getByText('The last run was as it should be.').waitFor();
    await runs.getByRole('row').nth(2).waitFor();
    await runs.getByRole('row').nth(1).getByText('completed').waitFor();

    const viewer = await browser.page();
    await viewer.signIn(installation, installation.tokens.VIEWER_TOKEN, `monitors/${made.id}`);
    await viewer.getByText('The ping address is hidden').waitFor();
    assert.equal(await viewer.getByRole('button', { name: /Pause|Change|New ping address|Delete/ }).count(), 0);
    assert.equal((await viewer.content()).includes(new URL(address).pathname), false, 'a viewer sees the ping key');
    await viewer.context().close(); // its screen would go on asking for what is deleted below
    assert.deepEqual(viewer.errors, [], 'the browser reported errors');

    await one.getByRole('button', { name: 'Pause' }).click();
    await one.getByText('Pings are stored, but nobody judges them').waitFor();
    await one.getByRole('button', { name: 'Resume' }).click();
    await one.getByText('The last run was as it should be.').waitFor();
    await one.getByRole('button', { name: 'New ping address' }).click();
    await one.getByRole('button', { name: 'Make a new address' }).click();
    await one.waitForFunction((old) => !document.querySelector('main').textContent.includes(old), address);
    assert.equal(await ping(''), 404);

    await one.getByRole('button', { name: 'Change' }).click();
    await one.getByLabel('Every so often').check();
    await one.getByRole('spinbutton', { name: /^Interval/ }).fill('90');
    await one.getByLabel('Unit of Interval').selectOption('minutes');
    await one.getByRole('spinbutton', { name: /^Failures in a row/ }).fill('3');
    await one.setViewportSize({ width: 360, height: 740 });
    assert.ok(await one.evaluate(() => document.documentElement.scrollWidth <= innerWidth && document.querySelector('dialog').scrollWidth <= innerWidth), 'the form is wider than the screen');
    await one.evaluate(axe);
    const { violations } = await one.evaluate(() => globalThis.axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'], resultTypes: ['violations'] }));
    assert.deepEqual(violations.map(({ id, nodes }) => [id, nodes.slice(0, 3).map(({ html, failureSummary }) => [html, failureSummary])]), []);
    await one.setViewportSize({ width: 1440, height: 900 });
    await one.getByRole('button', { name: 'Save the monitor' }).click();
    await one.getByText('Every 1 h 30 min').waitFor();
    const changed = await installation.api('GET', `/monitors/${made.id}`);
    assert.deepEqual([changed.cronExpression, changed.intervalSeconds, changed.startGraceSeconds, changed.failureThreshold, changed.tags], [null, 5400, 5400, 3, ['billing', 'nightly']]);

    await one.getByRole('link', { name: 'Monitors' }).first().click();
    const table = one.getByRole('region', { name: 'Monitors' });
    await table.getByRole('button', { name: 'billing' }).click();
    await one.waitForURL(/tag=billing/);
    await one.getByLabel('Status').selectOption('down');
    await one.getByText('No monitor fits these filters.').waitFor();
    await one.getByRole('button', { name: 'Remove the filters' }).click();
    await table.getByRole('link', { name: 'backup' }).click();
    await one.getByRole('button', { name: 'Delete' }).click();
    one.expected = /404/; // the screen may ask once more for what is deleted
    await one.getByRole('button', { name: 'Delete this monitor' }).click();
    await one.getByText('There are no monitors yet.').waitFor();
    assert.deepEqual(one.errors, [], 'the browser reported errors');
  });
});
