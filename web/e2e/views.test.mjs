// Views that are kept, what the run calendar knows of monitors, and workers that run elsewhere.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { tenancy, without } from './installation.mjs';
import { hostile, phone, sleeper, suite, until } from './suite.mjs';

describe('views', { skip: without }, () => {
  const all = suite(tenancy);

  test('the run calendar has what monitors were told and what they expect, and shows them alone', async () => {
    const { api, base } = all.installation;
    await api('POST', '/jobs', { name: 'a job beside them', cronExpression: '0 0 * * * *', ...sleeper() });
    const { id, pingUrl } = await api('POST', '/monitors', { name: hostile.markup, cronExpression: '30 23 * * *', timezone: 'Europe/Berlin' });
    for (const signal of ['', '/1']) assert.equal((await fetch(new URL(pingUrl + signal, base), { method: 'POST', body: hostile.bidi })).status, 200);
    await until(async () => (await api('GET', '/monitor-runs')).buckets.length > 0, 'the pings are stored');
    const one = await all.page('run-calendar?view=month&kind=monitor');
    const month = one.getByRole('region', { name: 'The days of the month' });
    const today = month.locator('[aria-current=date]');
    await today.getByText('finished').waitFor();
    assert.match(await today.textContent(), /2 finished ✕1 failed/);
    assert.match(await month.textContent(), /onerror/, 'the monitor stands in the days to come');
    assert.doesNotMatch(await month.textContent(), /a job beside them/);
    await one.getByRole('combobox', { name: 'Of', exact: true }).selectOption('Jobs and monitors');
    await month.getByText('a job beside them').first().waitFor();
    const tomorrow = new Date(Date.now() + 86_400_000).toISOString().slice(0, 10);
    await one.goto(`${base}/console/run-calendar?view=day&date=${tomorrow}`);
    await one.getByRole('region', { name: 'The hours of the day' }).getByRole('row').filter({ hasText: '23:00' }).getByRole('link', { name: hostile.markup }).click();
    await one.waitForURL(new RegExp(`/monitors/${id}`));
    const viewer = await all.page('run-calendar?kind=job', { token: all.installation.tokens.VIEWER_TOKEN, ...phone });
    await viewer.getByRole('region', { name: 'The hours of the week' }).waitFor();
    await viewer.harmless();
  });

  test('views of dead letters and of the run calendar are saved, chosen and forgotten', async () => {
    const { base } = all.installation;
    for (const { path, other, screen, name } of [
      { path: 'dead-letters?view=list&error=TIMEOUT', other: 'dead-letters', screen: 'Dead letters', name: 'those that took too long' },
      { path: 'run-calendar?view=month&kind=job', other: 'run-calendar', screen: 'Run calendar', name: hostile.markup.slice(0, 60) },
    ]) {
      const one = await all.page(path);
      await one.getByRole('button', { name: 'Save this view' }).click();
      await one.getByLabel('Name (required)').fill(name);
      await one.keyboard.press('Enter');
      await one.getByRole('button', { name: 'Forget this view' }).waitFor();
      await one.goto(`${base}/console/${other}`);
      await one.getByRole('heading', { level: 1, name: screen }).waitFor();
      await one.getByLabel('Saved view').selectOption({ label: name });
      for (const part of path.split('?')[1].split('&')) await one.waitForURL((url) => url.search.includes(part));
      await one.goto(`${base}/console/nowhere`);
      await one.getByRole('heading', { level: 1 }).waitFor();
      await one.keyboard.press('Control+k');
      await one.getByRole('combobox', { name: 'What to do' }).fill(name);
      await one.getByRole('option', { name: /saved view/ }).waitFor();
      await one.keyboard.press('Enter');
      await one.getByRole('heading', { level: 1, name: screen }).waitFor();
      await one.setViewportSize(phone.viewport);
      await one.harmless();
      await one.getByRole('button', { name: 'Forget this view' }).click();
      await one.getByRole('button', { name: 'Save this view' }).waitFor();
    }
  });

  test('remote workers: what lives, what it runs, and deregistering one', async () => {
    const { api, tokens } = all.installation;
    const one = await all.page('workers');
    await one.getByRole('region', { name: 'Lanes' }).waitFor();
    await one.getByRole('link', { name: 'Remote workers' }).click();
    await one.getByText('No remote worker lives.').waitFor();
    await api('POST', '/remote-workers', { name: hostile.markup.slice(0, 60), protocol: 1, slots: 3, leaseSeconds: 300, functions: [{ name: 'send-invoice' }, { name: 'print-invoice' }] });
    const row = one.getByRole('region', { name: 'Remote workers' }).getByRole('row').nth(1);
    await row.getByText('send-invoice').waitFor(); // by itself
    assert.match(await row.textContent(), /0 of 3/);
    const viewer = await all.page('workers?tab=remote', { token: tokens.VIEWER_TOKEN, ...phone });
    await viewer.getByRole('region', { name: 'Remote workers' }).waitFor();
    assert.equal(await viewer.getByRole('button', { name: /^Deregister/ }).count(), 0);
    await viewer.harmless();
    await row.getByRole('button', { name: /^Deregister/ }).click();
    await one.getByRole('button', { name: 'Deregister this worker' }).click();
    await one.getByText('No remote worker lives.').waitFor();
  });
});
