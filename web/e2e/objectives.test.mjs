import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { tenancy, openBrowser, without } from './installation.mjs';

describe('objectives', { skip: without }, () => {
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

  test('are made, changed and deleted by those who may, and shown to others', async () => {
    const one = await browser.page();
    await one.signIn(installation, installation.tokens.ADMIN_TOKEN, 'objectives');
    await one.getByText('There are no objectives yet.').waitFor();
    await one.getByRole('button', { name: 'New objective' }).click();
    await one.getByLabel('Name').fill('reports start on time');
    await one.getByLabel('Executions have to').selectOption('start on time');
    await one.getByRole('textbox', { name: /^Tag/ }).fill('report');
    await one.getByLabel('At most so late').fill('2500');
    await one.getByLabel('Target in percent').fill('99.9');
    await one.getByRole('button', { name: 'Create the objective' }).click();
    const table = one.getByRole('region', { name: 'Objectives' });
    await table.getByText('99.9 % of jobs with the tag report start on time within 2,500 ms, over 30 d').waitFor();
    await table.getByText('nothing counted yet').waitFor();
    await table.getByRole('button', { name: 'Change' }).click();
    await one.getByLabel('Target in percent').fill('95');
    await one.getByLabel('Window in days').fill('7');
    await one.getByRole('button', { name: 'Save the objective' }).click();
    await table.getByText('95 % of jobs with the tag report start on time within 2,500 ms, over 7 d').waitFor();
    const { items: [stored] } = await installation.api('GET', '/objectives');
    assert.deepEqual([stored.version, stored.target, stored.windowDays, stored.thresholdMs], [2, 0.95, 7, 2500]);
    const viewer = await browser.page();
    await viewer.signIn(installation, installation.tokens.VIEWER_TOKEN, 'objectives');
    await viewer.getByRole('region', { name: 'Objectives' }).getByText('reports start on time').waitFor();
    assert.equal(await viewer.getByRole('button', { name: /New objective|Change|Delete/ }).count(), 0);
    await table.getByRole('button', { name: 'Delete' }).click();
    await one.getByRole('button', { name: 'Delete this objective' }).click();
    await one.getByText('There are no objectives yet.').waitFor();
    assert.deepEqual([...one.errors, ...viewer.errors], [], 'the browser reported errors');
  });
});
