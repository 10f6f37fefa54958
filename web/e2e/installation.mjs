// A real installation for the tests: the standalone program on stores of its own, and
// Debian's Chromium in front of it.

import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { createHmac, randomBytes } from 'node:crypto';
import { existsSync, mkdtempSync, mkdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { promisify } from 'node:util';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { createServer } from 'node:net';
import { chromium } from 'playwright-core';

const root = fileURLToPath(new URL('../../', import.meta.url));
export const pictures = join(root, '.data/console');
export const browserPath = [process.env.CHROMIUM, '/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find((path) => path && existsSync(path));

/** The reason to leave the tests out; false where there is none. */
export const without = browserPath ? false : 'no Chromium is installed and none can be: `apt-get install chromium` brings it, or set CHROMIUM to its path';

const freePort = () => new Promise((resolve, reject) => {
  const server = createServer();
  server.once('error', reject);
  server.listen(0, '127.0.0.1', () => {
    const { port } = server.address();
    server.close(() => resolve(port));
  });
});

/** A token as an auth service signs it, good for an hour. */
function mint(secret, tenant, role, subject) {
  const now = Math.floor(Date.now() / 1000);
  const part = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');
  const text = `${part({ alg: 'HS256', typ: 'JWT' })}.${part({ sub: subject, tenant_id: tenant, roles: [role], iat: now, exp: now + 3600 })}`;
  return `${text}.${createHmac('sha256', secret).update(text).digest('base64url')}`;
}

const readTokens = (data) => Object.fromEntries([...(existsSync(join(data, 'tokens')) ? readFileSync(join(data, 'tokens'), 'utf8') : '').matchAll(/(\w+)=(\S+)/g)].map(([, name, value]) => [name, value]));

/** What tests do with an installation as a tenant of it. */
const handle = (running, tokens) => ({
  ...running, tokens,
  /** Calls the API as an administrator. */
  async api(method, path, body, token = tokens.ADMIN_TOKEN, kind = 'application/json') {
    for (let tries = 1; ; tries++) {
      const response = await fetch(`${running.base}/api/v1/scheduler${path}`, {
        method, headers: { Authorization: `Bearer ${token}`, ...(body && { 'Content-Type': kind }) }, ...(body && { body: typeof body === 'object' && !(body instanceof Uint8Array) ? JSON.stringify(body) : body }),
      });
      const text = await response.text();
      if (response.status === 503 && tries < 10) { // on a busy machine the database did not answer in time
        await new Promise((resolve) => setTimeout(resolve, 500));
        continue;
      }
      if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
      return text ? JSON.parse(text) : null;
    }
  },
  /** Fills the demo tenant with jobs and a history, see cmd/seed. */
  seed: (...flags) => promisify(execFile)(join(root, '.data/bin/seed'), ['-data', running.data, ...flags]),
});

/** Starts an installation and waits until it says that it is ready. Where others sign its tokens, it has none. */
export async function install(env = {}) {
  const data = mkdtempSync(join(tmpdir(), 'console-e2e-'));
  mkdirSync(pictures, { recursive: true });
  const [port, echo] = [await freePort(), await freePort()];
  const secret = randomBytes(48).toString('base64url');
  const settings = { DATA_DIR: data, HTTP_ADDR: `127.0.0.1:${port}`, ECHO_ADDR: `127.0.0.1:${echo}`, METRICS_ENABLED: 'false', LOG_LEVEL: 'warn', ...(!env.JWT_JWKS_URL && { JWT_SECRET: secret }), ...env };
  let program;
  const start = () => new Promise((resolve, reject) => {
    program = spawn(join(root, '.data/bin/standalone'), { env: { ...process.env, ...settings }, stdio: ['ignore', 'pipe', 'pipe'] });
    let said = '';
    let complained = '';
    const limit = setTimeout(() => reject(new Error(`the installation is not ready after two minutes: ${said}${complained}`)), 120_000);
    program.stderr.on('data', (text) => { complained += text; });
    program.stdout.on('data', (text) => {
      said += text;
      const found = /http\S+\/console\/(#sign-in=\S+)?/.exec(said);
      if (found && said.includes('Ctrl-C')) {
        clearTimeout(limit);
        resolve(found[0]);
      }
    });
    program.once('exit', (code) => {
      clearTimeout(limit);
      reject(new Error(`the installation ended with ${code}: ${said}${complained}`));
    });
  });
  const halt = async () => {
    const ended = new Promise((resolve) => program.once('exit', resolve));
    program.kill('SIGINT');
    await ended;
  };
  const link = await start();
  return {
    ...handle({ base: new URL(link).origin, link, data, secret }, readTokens(data)),
    start, halt,
    async stop() {
      await halt();
      rmSync(data, { recursive: true, force: true });
    },
  };
}

/** What `seeded` has. */
export const seeding = ['-jobs', '300', '-executions', '20000', '-days', '3', '-hostile'];

/** The installation that all files share, see run.mjs; a file that runs alone starts one. */
export async function share() {
  if (process.env.CONSOLE_E2E) return { ...JSON.parse(process.env.CONSOLE_E2E), stop: async () => {} };
  const { base, link, data, secret, stop } = await install();
  return { base, link, data, secret, stop };
}

/** The demo tenant with a history. */
export async function seeded() {
  const { stop, ...running } = await share();
  const tenant = handle(running, readTokens(running.data));
  const before = running.before ?? new Date().toISOString();
  if (!process.env.CONSOLE_E2E) await tenant.seed(...seeding);
  return { ...tenant, before, stop };
}

/** A tenant of its own in the installation that all files share: it has nothing yet. */
export async function tenancy() {
  const { stop, ...running } = await share();
  const demo = readTokens(running.data);
  const platform = handle(running, { ADMIN_TOKEN: demo.PLATFORM_ADMIN_TOKEN });
  const { id } = await platform.api('POST', '/tenants', { name: `tests ${randomBytes(4).toString('hex')}` });
  const token = (role, subject = 'demo') => mint(running.secret, id, role, subject);
  const tokens = { ECHO: demo.ECHO, VIEWER_TOKEN: token('viewer'), OPERATOR_TOKEN: token('operator'), DEVELOPER_TOKEN: token('developer'), ADMIN_TOKEN: token('admin'), PLATFORM_ADMIN_TOKEN: token('platform-admin') };
  return { ...handle(running, tokens), id, token, platform, stop };
}

/** What a browser reports of a definition that the API finds wrong while somebody types, and of a database that does not answer in time on a busy machine: the screen asks again. */
const borne = /400.*\/validate$|status of 503/;

/** How long a browser waits for anything: on a busy machine each process stands still for many seconds. */
const patience = 120_000;

/** A browser; it fails a test that leaves an error behind, or breaks the content policy. */
export async function openBrowser() {
  const browser = await chromium.launch({ executablePath: browserPath, args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'], timeout: patience });
  return {
    close: () => browser.close(),
    async page(options = {}) {
      const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, timezoneId: 'Europe/Berlin', reducedMotion: 'reduce', ...options });
      context.setDefaultTimeout(patience);
      const page = await context.newPage();
      const errors = [];
      page.on('pageerror', (error) => errors.push(`error: ${error.message}`));
      page.on('console', (message) => message.type() === 'error' && !borne.test(message.text() + message.location().url) && !page.expected?.test(message.text() + message.location().url) && errors.push(`console: ${message.text()} ${message.location().url}`));
      page.errors = errors;
      const asking = new Set();
      page.on('request', (request) => /\/api\/|\/health|openapi|session/.test(request.url()) && asking.add(request));
      for (const end of ['requestfinished', 'requestfailed']) page.on(end, (request) => asking.delete(request));
      /** Signs in with a token by the form. */
      page.signIn = async (installation, token, path = '') => {
        await page.goto(`${installation.base}/console/${path}`);
        await page.getByLabel('Token or API key').fill(token);
        await page.getByRole('button', { name: 'Sign in' }).click();
        await page.getByRole('navigation', { name: 'Screens' }).waitFor();
      };
      /** Waits until the screen has asked for all that it shows. */
      page.settled = async () => {
        await page.getByRole('heading', { level: 1 }).waitFor();
        for (let quiet = 0; quiet < 2; quiet = asking.size === 0 ? quiet + 1 : 0) {
          await page.waitForFunction(() => !document.querySelector('.loading'));
          await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve, 20))));
        }
      };
      /** The page is text alone, and no wider than its screen. */
      page.harmless = async (where = page.url()) => {
        assert.equal(await page.locator('main img, main script, main iframe, dialog img, dialog script').count(), 0, `${where}: a text became markup`);
        const wide = await page.evaluate(() => [document.documentElement, ...document.querySelectorAll('main, dialog')].filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => [one.tagName, one.scrollWidth, one.clientWidth, [...one.querySelectorAll('*')].filter((inner) => inner.getBoundingClientRect().right > one.getBoundingClientRect().right + 1 && !inner.closest('.scroll, .list, .output, pre, nav')).slice(0, 3).map((inner) => inner.outerHTML.slice(0, 160))]));
        assert.deepEqual(wide, [], `${where}: something is wider than the screen`);
      };
      return page;
    },
  };
}
