// The work on jobs: versions, backfills, many at once, dead letters, output as it is written.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { tenancy, without } from './installation.mjs';
import { finished, hostile, phone, sleeper, suite, until } from './suite.mjs';

describe('work', { skip: without }, () => {
  let dead;
  const all = suite(tenancy, async ({ api }) => {
    dead = (await api('POST', '/jobs', { name: 'dead', trigger: 'manual', retryConfig: { maxRetries: 0 }, maxConcurrent: 5, jobType: 'javascript', config: { source: 'export default () => { throw new Error("the disk is full") }' } })).id;
    for (let i = 0; i < 3; i++) await api('POST', `/jobs/${dead}/trigger`, {}); // dead letters some 20 seconds later
  });
  const api = (...args) => all.installation.api(...args);
  const callback = async (token, what, body) => {
    const response = await fetch(`${all.installation.base}/callbacks/${token}/${what}`, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) });
    assert.ok(response.ok, `${what}: ${response.status} ${await response.text()}`);
  };

  test('versions: what differs is shown field by field, an old one comes back as a new one, and a deep link opens the difference', async () => {
    const { id } = await api('POST', '/jobs', { name: 'versions', description: hostile.markup, tags: ['one'], cronExpression: '0 0 9 * * *', ...sleeper(10) });
    await api('PUT', `/jobs/${id}`, { name: 'versions', description: hostile.bidi, tags: ['one', 'two'], cronExpression: '0 30 9 * * *', ...sleeper(20) });
    const one = await all.page(`jobs/${id}?tab=versions&version=1`, phone);
    const table = one.getByRole('region', { name: 'Differences' });
    const row = (field) => table.getByRole('row').filter({ has: one.getByText(field, { exact: true }) });
    await row('cronExpression').waitFor();
    assert.deepEqual(await row('cronExpression').getByRole('cell').allTextContents(), ['cronExpression', '"0 30 9 * * *"', '"0 0 9 * * *"']);
    assert.deepEqual(await row('config.parameters.durationMs').getByRole('cell').allTextContents(), ['config.parameters.durationMs', '20', '10']);
    await row('description').getByText(hostile.markup.slice(0, 10)).waitFor();
    await one.harmless();
    await one.getByRole('button', { name: 'Bring version 1 back' }).click();
    await one.getByText('(brought back 1)').waitFor();
    await one.goto(`${all.installation.base}/console/jobs/${id}?tab=versions&version=1`);
    await one.getByText('They do not differ.').waitFor();
    assert.equal(await one.getByRole('button', { name: /^Bring version/ }).count(), 0);
    const stored = await api('GET', `/jobs/${id}`);
    assert.deepEqual([stored.version, stored.cronExpression, stored.description, stored.config.parameters.durationMs], [3, '0 0 9 * * *', hostile.markup, 10]);
  });

  test('a backfill shows its progress until all is made, and what became of it', async () => {
    const { id } = await api('POST', '/jobs', { name: 'backfilled', cronExpression: '0 0 * * * *', timezone: 'UTC', maxConcurrent: 5, ...sleeper() });
    const one = await all.page(`jobs/${id}?tab=backfills`);
    one.expected = /400/;
    await one.getByRole('button', { name: 'Run past times again' }).click();
    const day = new Date(Date.now() - 4 * 86_400_000).toISOString().slice(0, 10);
    await one.getByLabel('From (my time)').fill(`${day}T06:00`);
    await one.getByLabel('To (my time)').fill(`${day}T06:00`);
    await one.getByRole('button', { name: 'How many are these?' }).click();
    await one.getByRole('alert').waitFor(); // the range is empty; what was typed stays
    await one.getByLabel('To (my time)').fill(`${day}T09:00`);
    await one.getByLabel('Executions a minute').fill('1000');
    await one.getByRole('button', { name: 'How many are these?' }).click();
    await one.getByRole('button', { name: 'Make 3 executions' }).click();
    const row = one.getByRole('region', { name: 'Backfills' }).getByRole('row').nth(1);
    await row.getByText('3 of 3 executions made').waitFor();
    await until(async () => (await api('GET', `/executions?jobId=${id}&status=completed`)).items.length === 3, 'the backfill has run');
    await one.reload();
    await row.getByText('completed').last().waitFor();
    await one.getByRole('link', { name: 'Runs' }).click();
    await one.getByText('3 executions').waitFor();
  });

  test('many jobs: the dry run counts and changes nothing, what is refused says why, and a pause is undone for those that it paused', async () => {
    const ids = [];
    for (let i = 0; i < 6; i++) ids.push((await api('POST', '/jobs', { name: `many ${i}`, tags: ['many'], cronExpression: '0 0 9 * * *', ...sleeper() })).id);
    await api('POST', `/jobs/${ids[0]}/pause`, { reason: 'before' });
    const statuses = async () => (await api('GET', '/jobs?tags=many&sort=name')).items.map((job) => job.status).join(' ');
    const one = await all.page('jobs?tag=many&sort=name', phone);
    await one.getByRole('checkbox', { name: 'Select many 0' }).check();
    await one.getByRole('checkbox', { name: 'Select many 1' }).check();
    await one.getByText('2 selected').waitFor();
    await one.getByLabel('All that match').check();
    await one.getByText('All jobs that match').waitFor();
    await one.getByRole('button', { name: 'Pause', exact: true }).click();
    const question = one.getByRole('dialog');
    await question.getByText(/jobs would be paused/).waitFor();
    assert.equal(await statuses(), 'paused active active active active active', 'the dry run changed something');
    await one.harmless();
    await question.getByLabel('Reason').fill(hostile.markup);
    await question.getByRole('button', { name: /^Pause \d jobs/ }).click();
    await question.getByRole('heading', { name: /jobs paused/ }).waitFor();
    assert.equal(await statuses(), 'paused paused paused paused paused paused');
    await question.getByRole('button', { name: 'Undo: resume 5 jobs' }).click();
    await question.getByRole('heading', { name: '5 jobs resumed' }).waitFor();
    assert.equal(await statuses(), 'paused active active active active active', 'a job that was paused before is resumed');
    await question.getByRole('button', { name: 'Close' }).click();
    await question.waitFor({ state: 'detached' });
    await one.getByLabel('All that match').check();
    await one.getByRole('button', { name: 'Stop', exact: true }).click();
    await question.getByText('6 jobs would be stopped').waitFor();
    await question.getByRole('button', { name: 'Leave them as they are' }).click();
    assert.equal(await statuses(), 'paused active active active active active', 'a question that was left changed something');
  });

  test('output is followed while it is written, with its progress, and kept when it has ended', async () => {
    const { key } = await api('POST', '/api-keys', { name: 'worker', scopes: ['workers:run'] });
    const worker = await api('POST', '/remote-workers', { name: 'w', protocol: 1, leaseSeconds: 300, functions: [{ name: 'report' }] }, key);
    const { id } = await api('POST', '/jobs', { name: 'followed', trigger: 'manual', retryConfig: { maxRetries: 0 }, jobType: 'remote', config: { functionName: 'report' } });
    const { id: run } = await api('POST', `/jobs/${id}/trigger`, {});
    const claim = await until(async () => (await api('POST', `/remote-workers/${worker.id}/claim`, { waitSeconds: 0 }, key)).executions[0], 'the worker gets the execution');
    const one = await all.page(`executions/${run}`, { ...phone, token: all.installation.tokens.VIEWER_TOKEN });
    await one.getByText('It has written nothing yet.').waitFor();
    await callback(claim.token, 'output', { firstLine: 1, lines: [{ text: 'begins' }, { stream: 'stderr', text: hostile.markup }] });
    const lines = one.getByRole('region', { name: 'Lines' });
    await lines.getByText('begins').waitFor();
    await lines.getByText(hostile.markup).waitFor();
    await callback(claim.token, 'progress', { progress: 40, message: hostile.bidi });
    await one.getByText('40 %').waitFor();
    const many = Array.from({ length: 200 }, (_, i) => ({ text: `line ${i} ${'w'.repeat(100)}` }));
    await callback(claim.token, 'output', { firstLine: 3, lines: many });
    await lines.getByText('line 199').waitFor();
    assert.ok(await lines.evaluate((box) => box.scrollTop + box.clientHeight >= box.scrollHeight - 40), 'the newest line is not in sight');
    await lines.evaluate((box) => { box.scrollTop = 0; });
    await callback(claim.token, 'output', { firstLine: 203, lines: [{ text: 'the last line' }] });
    await lines.getByText('the last line').waitFor();
    assert.equal(await lines.evaluate((box) => box.scrollTop), 0, 'who reads further up is moved');
    await one.harmless();
    await callback(claim.token, 'complete', { result: { rows: 7 } });
    await one.getByText(/completed in/).waitFor();
    await one.getByLabel('Lines with').fill('LAST');
    await one.getByText('1 line', { exact: true }).waitFor();
    await one.getByLabel('Result as JSON').getByText('"rows": 7').waitFor();
  });

  test('a run is started with parameters; those that are no JSON are refused before they are sent', async () => {
    const { id } = await api('POST', '/jobs', { name: 'parameters', trigger: 'manual', ...sleeper(1) });
    const one = await all.page(`jobs/${id}`, { token: all.installation.tokens.OPERATOR_TOKEN });
    await one.getByRole('button', { name: 'Run now' }).click();
    await one.getByLabel('Parameters, as JSON').fill('{"durationMs": 2');
    await one.getByRole('button', { name: 'Run it now' }).click();
    await one.getByText(/The parameters are no JSON/).waitFor();
    assert.equal((await api('GET', `/executions?jobId=${id}`)).items.length, 0);
    await one.getByLabel('Parameters, as JSON').fill('{"durationMs": 2}');
    await one.getByRole('button', { name: 'Run it now' }).click();
    await one.getByText(/completed in/).waitFor();
    await one.getByLabel('Parameters as JSON').getByText('"durationMs": 2').waitFor();
  });

  test('a job is copied, and its copy is another job', async () => {
    const { id } = await api('POST', '/jobs', { name: 'original', tags: ['copied'], cronExpression: '0 0 9 * * *', timezone: 'Asia/Kolkata', ...sleeper(7) });
    const one = await all.page(`jobs/${id}`);
    await one.getByRole('link', { name: 'Copy' }).click();
    await one.getByRole('heading', { name: 'New job', level: 1 }).waitFor();
    await one.getByRole('textbox', { name: 'Name (required)', exact: true }).fill('the copy');
    await one.getByRole('button', { name: 'Create the job' }).click();
    await one.getByRole('heading', { name: 'the copy', level: 1 }).waitFor();
    const { items } = await api('GET', '/jobs?tags=copied&sort=name');
    assert.deepEqual(items.map(({ name, timezone, config }) => [name, timezone, config.parameters.durationMs]), [['original', 'Asia/Kolkata', 7], ['the copy', 'Asia/Kolkata', 7]]);
  });

  test('dead letters of one error are replayed together: one first, then the others', async () => {
    const id = dead;
    await until(async () => (await api('GET', `/dead-letters?jobId=${id}`)).items.length === 3, 'three dead letters');
    await api('PUT', `/jobs/${id}`, { name: 'dead', trigger: 'manual', retryConfig: { maxRetries: 0 }, maxConcurrent: 5, jobType: 'javascript', config: { source: 'export default () => "mended"' } });
    const one = await all.page(`dead-letters?job=${id}`, { token: all.installation.tokens.OPERATOR_TOKEN });
    const groups = one.getByRole('region', { name: 'Errors' });
    await groups.getByText('the disk is full').waitFor();
    await groups.getByRole('button', { name: /^Replay 3 dead letters/ }).click();
    await one.getByLabel('A minute, at most (required)').fill('3000');
    assert.equal(await one.getByLabel(/One first/).isChecked(), true);
    await one.getByRole('dialog').getByRole('button', { name: 'Replay 3 dead letters' }).click();
    const row = one.getByRole('region', { name: 'Replays' }).getByRole('row').nth(1);
    await row.getByText('3 of 3').waitFor();
    await row.getByText('completed').waitFor();
    await row.getByRole('link', { name: 'The first one' }).click();
    await one.getByText(/completed in/).waitFor();
    await one.goto(`${all.installation.base}/console/dead-letters?job=${id}`);
    await one.getByText('No dead letter fits these filters.').waitFor();
  });
});
