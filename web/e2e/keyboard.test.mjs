// Everything by the keyboard alone: no test of this file touches the mouse.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { tenancy, without } from './installation.mjs';
import { phone, sleeper, suite, tabTo } from './suite.mjs';

describe('by keyboard', { skip: without }, () => {
  const all = suite(tenancy, async ({ api }) => {
    for (let i = 0; i < 5; i++) await api('POST', '/jobs', { name: `row ${i}`, tags: ['rows'], trigger: 'manual', ...sleeper() });
  });

  for (const [where, options] of [['on a wide screen', {}], ['on a phone', phone]]) {
    test(`a job is created, fails, says why, is mended and runs again, ${where}`, async () => {
      const one = await all.page(undefined, options);
      one.expected = /400/; // the check of a definition that is not yet right
      const { base, tokens } = all.installation;
      const name = `mended ${where}`;
      const press = async (role, label, exact = true) => {
        await tabTo(one, one.getByRole(role, { name: label, exact }));
        await one.keyboard.press('Enter');
      };
      const type = async (label, text) => {
        await tabTo(one, one.getByLabel(label));
        await one.keyboard.press('Control+a');
        await one.keyboard.type(text);
      };
      await one.goto(`${base}/console/jobs`);
      await one.getByLabel('Token or API key').waitFor();
      await one.keyboard.insertText(tokens.DEVELOPER_TOKEN); // the field has the focus
      await one.keyboard.press('Enter');
      await press('link', 'New job');
      await type('Name (required)', name);
      await type('URL (required)', `${tokens.ECHO}/`);
      await type('Expected status code', '418');
      await tabTo(one, one.locator('summary').filter({ hasText: 'Retries, limits' }));
      await one.keyboard.press('Enter');
      await type('Max retries', '0');
      await one.getByRole('region', { name: 'When it runs' }).getByRole('listitem').first().waitFor();
      await one.harmless();
      await press('button', 'Create the job');
      await one.getByRole('heading', { name, level: 1 }).waitFor();
      await press('button', 'Run now');
      await press('button', 'Run it now');
      await one.getByText(/failed with/).waitFor();
      await one.getByLabel('Error message').getByText('200').waitFor();
      await one.harmless();
      await press('link', name);
      await press('link', 'Edit');
      await type('Expected status code', '200');
      await press('button', 'Save as a new version');
      await press('button', 'Run now');
      await press('button', 'Run it now');
      await one.getByText(/completed in/).waitFor();
      await press('button', 'Run it again');
      await one.getByText('Repeats').waitFor();
      await one.getByText(/completed in/).waitFor();
      await one.harmless();
    });
  }

  test('a question that is closed gives the focus back to what opened it, or to the screen', async () => {
    const { id } = await all.installation.api('POST', '/jobs', { name: 'asked', cronExpression: '0 0 9 * * *', ...sleeper() });
    const one = await all.page(`jobs/${id}`);
    const focused = () => one.evaluate(() => document.activeElement.textContent?.slice(0, 40) ?? '');
    for (const close of ['Escape', 'Leave it as it is']) {
      await tabTo(one, one.getByRole('button', { name: 'Pause', exact: true }));
      await one.keyboard.press('Enter');
      await one.getByRole('dialog', { name: 'Pause this job' }).waitFor();
      assert.equal(await one.evaluate(() => document.querySelector('dialog').contains(document.activeElement)), true, 'the question has not the focus');
      if (close === 'Escape') await one.keyboard.press('Escape');
      else {
        await tabTo(one, one.getByRole('button', { name: close }));
        await one.keyboard.press('Enter');
      }
      await one.getByRole('dialog').waitFor({ state: 'detached' });
      // The focus comes back once the question is gone: a moment later on a busy machine.
      await one.waitForFunction(() => document.activeElement.textContent === 'Pause').catch(async () => assert.equal(await focused(), 'Pause', `after ${close}`));
    }
    await one.keyboard.press('Enter');
    await tabTo(one, one.getByRole('button', { name: 'Pause this job' }));
    await one.keyboard.press('Enter');
    await one.getByRole('button', { name: 'Resume', exact: true }).waitFor();
    await one.waitForFunction(() => document.activeElement !== document.body); // else the focus is lost after the job was paused
  });

  test('arrows move through the rows of a list, Space selects, and the skip link leads past the screens', async () => {
    const one = await all.page('jobs?tag=rows&sort=name');
    await one.getByText('5 jobs', { exact: true }).waitFor();
    await one.reload();
    await one.getByText('5 jobs', { exact: true }).waitFor();
    await one.keyboard.press('Tab');
    assert.equal(await one.evaluate(() => document.activeElement.textContent), 'Skip to the content');
    await one.keyboard.press('Enter');
    await one.waitForFunction(() => document.activeElement.id === 'main');
    await tabTo(one, one.getByRole('checkbox', { name: 'Select row 0' }));
    await one.keyboard.press('Space');
    await one.keyboard.press('ArrowDown');
    await one.keyboard.press('Space');
    await one.getByText('2 selected').waitFor();
    await one.keyboard.press('ArrowDown');
    await one.keyboard.press('Tab');
    assert.equal(await one.evaluate(() => document.activeElement.textContent), 'row 2');
    await one.keyboard.press('Enter');
    await one.getByRole('heading', { name: 'row 2', level: 1 }).waitFor();
    await one.goBack();
    await one.getByText('5 jobs', { exact: true }).waitFor();
    assert.match(one.url(), /tag=rows/);
  });

  test('the palette leads to each screen that one may see, and to no other', async () => {
    const one = await all.page('jobs', { token: all.installation.tokens.PLATFORM_ADMIN_TOKEN });
    const nav = one.getByRole('navigation', { name: 'Screens' });
    const names = await nav.getByRole('link').allTextContents();
    assert.ok(names.length >= 17, names.join());
    for (const name of names) {
      await one.keyboard.press('Control+k');
      await one.getByRole('combobox', { name: 'What to do' }).waitFor();
      await one.keyboard.type(`${name} screen`);
      await one.getByRole('option', { name: `${name} screen`, exact: true, selected: true }).waitFor();
      await one.keyboard.press('Enter');
      await nav.locator('[aria-current=page]', { hasText: name }).waitFor();
      await one.getByRole('heading', { level: 1 }).waitFor();
      // A moment later on a busy machine.
      await one.waitForFunction(() => document.activeElement.id === 'main').catch(() => assert.fail(`${name} has not the focus`));
    }
    const viewer = await all.page('jobs', { token: all.installation.tokens.VIEWER_TOKEN });
    for (const name of ['Tenants', 'API keys', 'Audit log', 'Platform']) {
      await viewer.keyboard.press('Control+k');
      await viewer.getByRole('combobox', { name: 'What to do' }).fill(`${name} screen`);
      await viewer.getByRole('option', { name: /^Search the jobs for/ }).waitFor();
      assert.equal(await viewer.getByRole('option', { name: `${name} screen`, exact: true }).count(), 0, name);
      await viewer.keyboard.press('Escape');
      await viewer.getByRole('dialog').waitFor({ state: 'detached' });
    }
  });
});
