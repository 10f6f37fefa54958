// Names, tags, errors and people that an attacker would choose, on each screen with a list.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { tenancy, without } from './installation.mjs';
import { finished, hostile, phone, sleeper, suite, until } from './suite.mjs';

/** Marks of direction that reach the text behind them: what follows in the same line is shown in reverse. */
const leaking = () => {
  const isolated = (element) => ['isolate', 'isolate-override', 'plaintext'].includes(getComputedStyle(element).unicodeBidi);
  const found = [];
  for (const root of document.querySelectorAll('header, main, dialog')) {
    const walk = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    for (let node = walk.nextNode(); node; node = walk.nextNode()) {
      if (!/[\u202A-\u202E\u2066-\u2068]/.test(node.data)) continue;
      let element = node.parentElement;
      let safe = false;
      while (element && !(safe = isolated(element)) && getComputedStyle(element).display.startsWith('inline') && getComputedStyle(element).display === 'inline') element = element.parentElement;
      if (safe || !element) continue;
      const rest = document.createRange();
      rest.setStartAfter(node);
      rest.setEndAfter(element.lastChild);
      if (rest.toString().trim() !== '') found.push(element.outerHTML.slice(0, 200));
    }
  }
  return found;
};

describe('hostile texts', { skip: without }, () => {
  let ids;
  const all = suite(tenancy, async ({ api, tokens, token }) => {
    ids = {};
    const people = Object.values(hostile).map((subject) => token('admin', subject));
    for (const [i, text] of Object.values(hostile).entries()) {
      const as = (method, path, body) => api(method, path, body, people[i]);
      const tag = text.slice(0, 50);
      const { id } = await as('POST', '/jobs', { name: text, description: text, tags: [tag, 'hostile'], cronExpression: '0 * * * * *', ...sleeper() });
      const failing = await as('POST', '/jobs', { name: text, tags: [tag], trigger: 'manual', retryConfig: { maxRetries: 0 }, jobType: 'javascript', config: { source: `export default () => { console.log(${JSON.stringify(text)}); throw new Error(${JSON.stringify(text)}) }` } });
      ids[i] = { job: id, failing: failing.id, failed: (await as('POST', `/jobs/${failing.id}/trigger`, {})).id };
      await as('PUT', `/jobs/${id}`, { name: `${text.slice(0, 190)} again`, description: text, tags: [tag, 'hostile'], cronExpression: '0 * * * * *', ...sleeper() });
      await as('POST', `/jobs/${id}/pause`, { reason: text });
      await as('POST', '/calendars', { name: text, description: text, timezone: 'Europe/Berlin', days: [{ start: '2026-12-24', name: text.slice(0, 90) }] });
      ids[i].notification = (await as('POST', '/notifications', { name: text, kind: 'webhook', url: tokens.ECHO, events: ['job.failed'], tags: [tag] })).id;
      await as('POST', `/notifications/${ids[i].notification}/test`);
      ids[i].monitor = (await as('POST', '/monitors', { name: text, tags: [tag], cronExpression: '0 2 * * *', timezone: 'Europe/Berlin' })).id;
      await as('POST', '/objectives', { name: text, kind: 'onTime', tag, thresholdMs: 5000, target: 0.999 });
      await as('POST', '/api-keys', { name: text, scopes: ['jobs:read'] });
      await as('PUT', `/secrets/key-${i}${i === 2 ? 'w'.repeat(58) : ''}`, { value: 'hunter2-hunter2', description: text });
      await api('PUT', `/functions/f-${i}${i === 2 ? 'w'.repeat(60) : ''}`, Buffer.from('0061736d010000000104016000000302010007' + '0a01065f737461727400000a040102000b', 'hex'), people[i], 'application/wasm');
    }
    for (const each of Object.values(ids)) await finished({ api }, each.failed);
    await until(async () => (await api('GET', '/dead-letters')).items.length === 3, 'three dead letters');
  });
  const screens = () => [
    '', 'jobs', 'jobs?tag=hostile', `jobs?tag=${encodeURIComponent(hostile.bidi.slice(0, 50))}`, 'executions', 'executions?status=failed', 'run-calendar?view=day', 'run-calendar', 'run-calendar?view=month', 'dead-letters', 'dead-letters?view=list', 'monitors',
    'objectives', 'calendars', 'notifications', 'functions', 'secrets', 'workers', 'tenant', 'keys', 'audit',
    ...Object.values(ids).flatMap((each) => [`jobs/${each.job}`, `jobs/${each.job}?tab=versions&version=1`, `jobs/${each.job}?tab=json`, `jobs/${each.job}/edit`, `jobs/${each.failing}?tab=runs`, `executions/${each.failed}`, `notifications/${each.notification}`, `monitors/${each.monitor}`]),
  ];

  for (const [where, options] of [['on a phone', phone], ['on a wide screen', {}]]) {
    test(`are text, fit and turn no other text around, ${where}`, async () => {
      const pages = await Promise.all([0, 1].map(() => all.page('nowhere', { ...options, token: all.installation.token('admin', hostile.bidi) })));
      const paths = screens();
      await Promise.all(pages.map(async (one) => {
        one.expected = /400/;
        for (let path = paths.shift(); path !== undefined; path = paths.shift()) {
          await one.goto(`${all.installation.base}/console/${path}`);
          await one.settled();
          await one.harmless(path);
          assert.deepEqual(await one.evaluate(leaking), [], `${path}: a mark of direction reaches other texts`);
          assert.doesNotMatch(await one.title(), /^run$/);
        }
      }));
    });
  }

  test('stand in questions about them as text, on a phone', async () => {
    for (const each of Object.values(ids).slice(1)) {
      const one = await all.page(`jobs/${each.failing}`, phone);
      for (const verb of ['Run now', 'Pause', 'Stop', 'Delete']) {
        await one.getByRole('button', { name: verb, exact: true }).click();
        await one.getByRole('dialog').waitFor();
        await one.harmless(verb);
        await one.keyboard.press('Escape');
        await one.getByRole('dialog').waitFor({ state: 'detached' });
      }
      for (const [path, button] of [['calendars', /^Edit/], ['calendars', /^Delete/], ['keys', /^Rotate/], ['secrets', /^Replace/], ['objectives', /^Change/], [`monitors/${each.monitor}`, /^Change/], [`notifications/${each.notification}`, /^Edit/]]) {
        await one.goto(`${all.installation.base}/console/${path}`);
        await one.settled();
        await one.getByRole('button', { name: button }).last().click();
        await one.getByRole('dialog').waitFor();
        await one.harmless(`${path} ${button}`);
        assert.deepEqual(await one.evaluate(leaking), [], `${path} ${button}: a mark of direction reaches other texts`);
      }
    }
  });

  test('a name is found by the search and the palette, opens, and is kept as it was typed', async () => {
    const one = await all.page('jobs', phone);
    for (const [i, text] of Object.values(hostile).entries()) {
      await one.goto(`${all.installation.base}/console/jobs`);
      await one.getByLabel('Name or description').fill(text.slice(0, 100));
      await one.getByText('2 jobs', { exact: true }).waitFor();
      await one.keyboard.press('Control+k');
      await one.getByRole('combobox', { name: 'What to do' }).fill(text.slice(0, 100));
      await one.getByRole('option', { name: /job$/ }).first().waitFor();
      await one.harmless();
      await one.keyboard.press('Escape');
      await one.getByRole('link', { name: text, exact: true }).click();
      await one.getByRole('heading', { level: 1, name: text, exact: true }).waitFor();
      assert.equal(await one.title(), `${text.replace(/\s+/g, ' ').trim()} – Scheduler`);
      assert.equal((await all.installation.api('GET', `/jobs/${ids[i].failing}`)).name, text);
    }
  });
});
