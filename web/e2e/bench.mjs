// Measures the console against its bars, on the installation that `make run` started and
// `make seed` filled: `node e2e/bench.mjs [DATA_DIR]`. What the API takes for an answer is
// an upper bound of what PostgreSQL does.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { openBrowser } from './installation.mjs';

const data = process.argv[2] ?? fileURLToPath(new URL('../../.data', import.meta.url));
const tokens = Object.fromEntries([...readFileSync(join(data, 'tokens'), 'utf8').matchAll(/(\w+)=(\S+)/g)].map(([, name, value]) => [name, value]));
const base = new URL(tokens.API).origin;
const installation = { base, tokens };
const repeats = 7;

const percentile = (values, share) => [...values].sort((a, b) => a - b)[Math.min(values.length - 1, Math.ceil(values.length * share) - 1)];
const missed = [];
const line = (what, value, bar, unit) => {
  const held = value <= bar;
  if (!held) missed.push(what);
  console.log(`${what.padEnd(52)} ${String(Math.round(value)).padStart(7)} ${unit.padEnd(3)} ${held ? ' ' : '!'} bar ${bar} ${unit}`);
};

const browser = await openBrowser();

/** The page, signed in, with what it asks. */
async function open(path, throttle = 1) {
  const page = await browser.page();
  page.setDefaultTimeout(60_000);
  await page.signIn(installation, tokens.ADMIN_TOKEN, 'nowhere');
  if (throttle > 1) await (await page.context().newCDPSession(page)).send('Emulation.setCPUThrottlingRate', { rate: throttle });
  const asked = [];
  page.on('requestfinished', (request) => /\/api\/v1\//.test(request.url()) && asked.push({ url: request.url().slice(base.length + '/api/v1/scheduler'.length), ms: request.timing().responseEnd }));
  const began = performance.now();
  await page.goto(`${base}/console/${path}`);
  return { page, asked, began };
}

/** What the first load of the list weighs, compressed. */
async function weight() {
  const page = await browser.page();
  const cdp = await page.context().newCDPSession(page);
  await cdp.send('Network.enable');
  let bytes = 0;
  const assets = new Set();
  cdp.on('Network.responseReceived', ({ requestId, response }) => /\/console\//.test(response.url) && assets.add(requestId));
  cdp.on('Network.loadingFinished', ({ requestId, encodedDataLength }) => { if (assets.has(requestId)) bytes += encodedDataLength; });
  await page.signIn(installation, tokens.ADMIN_TOKEN, 'jobs');
  await page.getByRole('table', { name: 'Jobs' }).getByRole('row').nth(1).waitFor();
  await page.context().close();
  line('first load of the list, compressed', bytes / 1024, 150, 'KB');
}

async function usable() {
  for (const throttle of [1, 4]) {
    const times = [];
    for (let i = 0; i < repeats; i++) {
      const { page, began } = await open('jobs', throttle);
      await page.getByRole('table', { name: 'Jobs' }).getByRole('row').nth(10).waitFor();
      times.push(performance.now() - began);
      await page.context().close();
    }
    line(`list usable, CPU ×${throttle}, median`, percentile(times, 0.5), 1500, 'ms');
  }
}

/** From the moment at which a filter stands in the address to the rows that fit. */
async function filters(screen, all) {
  const { page } = await open(screen);
  await page.getByRole('table').getByRole('row').nth(1).waitFor();
  const times = [];
  for (let i = 0; i < repeats; i++) {
    for (const filter of all) {
      const took = await page.evaluate(async ({ screen, filter }) => {
        const began = performance.now();
        history.pushState(history.state, '', `/console/${screen}?${filter}`);
        dispatchEvent(new PopStateEvent('popstate', { state: history.state }));
        // The list is empty or shows a sign of life until the answer is there.
        await new Promise((resolve) => {
          const look = () => {
            const current = location.search.slice(1) === filter && !document.querySelector('.loading') && document.querySelector('[role=table] .inside, .empty');
            if (current) resolve();
            else requestAnimationFrame(look);
          };
          requestAnimationFrame(() => requestAnimationFrame(look));
        });
        return performance.now() - began;
      }, { screen, filter });
      times.push({ filter, took });
      await page.evaluate((screen) => { history.pushState(history.state, '', `/console/${screen}`); dispatchEvent(new PopStateEvent('popstate', { state: history.state })); }, screen);
      await page.waitForFunction(() => !document.querySelector('.loading') && document.querySelector('[role=table] .inside'));
    }
  }
  for (const filter of all) line(`${screen}?${filter}, p95`, percentile(times.filter((one) => one.filter === filter).map(({ took }) => took), 0.95), 300, 'ms');
  await page.context().close();
}

async function requests(path) {
  const { page, asked } = await open(path);
  await page.getByRole('heading', { level: 1 }).waitFor();
  await page.waitForLoadState('networkidle');
  const first = new Map(asked.map(({ url, ms }) => [url, ms]));
  line(`${path || 'overview'}: requests`, first.size, 2, '');
  for (const [url, ms] of first) line(`    ${url.slice(0, 46)}`, ms, 50, 'ms');
  await page.context().close();
}

await weight();
await usable();
await filters('jobs', ['q=stock', 'q=00042', 'status=paused', 'status=inactive', 'type=javascript', 'tag=staging', 'tag=nothing', 'q=nothing+has+this+name', 'status=paused&tag=billing']);
await filters('executions', ['status=failed', 'status=running', 'status=cancelled', 'trigger=manual', 'error=TIMEOUT', 'status=failed&error=NETWORK_ERROR']);
const token = { headers: { Authorization: `Bearer ${tokens.ADMIN_TOKEN}` } };
const { items: [job] } = await (await fetch(`${tokens.API}/jobs?limit=1`, token)).json();
const { items: [run] } = await (await fetch(`${tokens.API}/executions?limit=1`, token)).json();
for (const path of ['', 'jobs', 'executions', 'run-calendar', 'run-calendar?view=month', 'dead-letters', `jobs/${job.id}`, `jobs/${job.id}?tab=runs`, `jobs/${job.id}?tab=versions`, `jobs/${job.id}?tab=backfills`, `executions/${run.id}`, 'calendars', 'monitors', 'notifications', 'functions', 'workers', 'tenant', 'audit', 'keys', 'secrets']) await requests(path);
await browser.close();
console.log(missed.length ? `\n${missed.length} bars are missed: ${missed.join('; ')}` : '\nall bars are held');
